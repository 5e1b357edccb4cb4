//! What machines asked of this rack as they booted, and what they were answered, or why not: for people who look for the reason that one
//! does not boot (`basalt explain boot`).
//!
//! Each service tells here what it saw ([`Entry`]); the [`Book`] keeps that within bounds, and every second it becomes facts. They are
//! told only while there is plenty of room: whatever a planner needs goes first. What is told names no token and no key: services
//! describe what was asked by the name of its route.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use basalt_api::values::UntrustedName;
use basalt_dhcp::Mac;
use basalt_proto::rack_v1::{BootTraceEntry, BootTraceFact, Fact, fact::Body};
use tokio_util::sync::CancellationToken;

use crate::boot::BootTable;
use crate::clock::Clock;
use crate::facts::About;
use crate::neighbours;
use crate::spool::writer::Facts;

mod book;

pub use book::Book;

/// How often what was seen is told.
const EVERY: Duration = Duration::from_secs(1);
/// Entries of addresses that nobody here gave which are looked up at once. Those beyond are left out.
const STRANGERS: usize = 256;

/// Codes of why nothing or a refusal was answered, or why an answer was not taken. Those of HTTP are the codes of its problems.
pub mod reason {
    /// No subnet is configured for the link.
    pub const NO_SUBNET: &str = "no_subnet";
    /// The subnet's boot mode is `none`.
    pub const BOOT_OFF: &str = "boot_off";
    /// There is no loader for this architecture, or the subnet does not boot it.
    pub const ARCHITECTURE: &str = "architecture";
    /// The client announced another architecture than the machine is declared with.
    pub const OTHER_ARCHITECTURE: &str = "other_architecture";
    /// The client asks over InfiniBand.
    pub const INFINIBAND: &str = "infiniband";
    /// Nobody declared the machine, and unknown machines are not served.
    pub const UNKNOWN_CLIENT: &str = "unknown_client";
    /// Every dynamic address is in use.
    pub const NO_FREE_ADDRESS: &str = "no_free_address";
    /// No dynamic address is free, and some of them are out of use since other hosts have them.
    pub const ADDRESSES_REST: &str = "addresses_rest";
    /// The rack has no dynamic addresses there, and nothing is reserved for the client.
    pub const NO_DYNAMIC: &str = "no_dynamic";
    /// The client has as many addresses as one may.
    pub const TOO_MANY_ADDRESSES: &str = "too_many_addresses";
    /// No address is given until earlier leases are known.
    pub const WITHHELD: &str = "withheld";
    /// Another host has the address.
    pub const CONFLICT: &str = "conflict";
    /// The client chose another server.
    pub const OTHER_SERVER: &str = "other_server";
    /// Nothing is known about the client's address.
    pub const NOT_OURS: &str = "not_ours";
    /// The address that it asks for cannot be its own.
    pub const ADDRESS_REFUSED: &str = "address_refused";
    /// The message lacks what it needs.
    pub const MALFORMED: &str = "malformed";
    /// The rack cannot write to its disk.
    pub const DISK: &str = "disk";
    /// The script has a token in it, and this client may have none.
    pub const TOKEN_REFUSED: &str = "token_refused";
    /// The script has a token in it, and the machine stands in another network than who asks in its name.
    pub const WRONG_NETWORK: &str = "wrong_network";
    /// The machine has nothing to do but boot its disk.
    pub const NOTHING_TO_DO: &str = "nothing_to_do";
    /// There is no such file.
    pub const NOT_FOUND: &str = "not_found";
    /// There is such a file, and it cannot be had now.
    pub const UNAVAILABLE: &str = "unavailable";
    /// Too much is asked for at once.
    pub const BUSY: &str = "busy";
    /// The client never took a byte.
    pub const NEVER_TAKEN: &str = "never_taken";
    /// The client took some, and fell silent.
    pub const FELL_SILENT: &str = "fell_silent";
    /// The client ended it.
    pub const ABORTED: &str = "aborted";
}

/// Which part of a machine asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Asker {
    /// A PXE ROM, or UEFI.
    Firmware,
    /// iPXE.
    Ipxe,
    /// Something that has booted.
    System,
    /// It does not show.
    #[default]
    Unknown,
}

impl Asker {
    const fn word(self) -> &'static str {
        match self {
            Self::Firmware => "firmware",
            Self::Ipxe => "ipxe",
            Self::System => "system",
            Self::Unknown => "",
        }
    }
}

/// Something that was asked, and what became of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// `dhcp`, `dhcp6`, `tftp`, `http`, `agent`.
    pub service: &'static str,
    /// Who asks.
    pub asker: Asker,
    /// What. File names are the machines'.
    pub asked: UntrustedName,
    /// What was answered, in words.
    pub answered: UntrustedName,
    /// One of [`reason`], or a problem's code.
    pub reason: Option<&'static str>,
    /// The client's address.
    pub address: Option<IpAddr>,
    /// A boot may begin with it: it is what firmware, or iPXE in its place, asks first.
    pub opens: bool,
}

/// What of a machine is to be told.
#[derive(Debug, Clone, PartialEq)]
pub struct Due {
    /// The machine.
    pub mac: Mac,
    /// With when, and how often in a row.
    pub entries: Vec<(i64, u32, Entry)>,
    /// Further ones that there was no room for.
    pub lost: u64,
    /// Those of undeclared machines that there was no room for.
    pub others_lost: u64,
}

/// Takes what services see. They do not wait for it.
#[derive(Debug, Default)]
pub struct Trace {
    clock: Clock,
    book: Mutex<Book>,
    /// When, at which address, and what: the kernel may know whose that is.
    of_strangers: Mutex<Vec<(i64, IpAddr, Entry)>>,
}

impl Trace {
    /// A trace that is dated by this clock.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, ..Self::default() }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        change(&mut self.book.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether what this machine's operating system asks of DHCP belongs to a boot.
    #[must_use]
    pub fn follows(&self, mac: Mac) -> bool {
        self.with(|book| book.follows(mac, self.clock.unix_now()))
    }

    /// A machine asked for something.
    pub fn saw(&self, mac: Mac, table: Option<&BootTable>, entry: Entry) {
        let declared = table.is_some_and(|table| table.machine(mac).is_some());
        self.with(|book| book.note(self.clock.unix_now(), mac, declared, entry));
    }

    /// The same, where only the address shows who asks: who was last told that it has it, otherwise whose the kernel knows it to be.
    pub fn saw_at(&self, address: IpAddr, table: Option<&BootTable>, entry: Entry) {
        let entry = Entry { address: Some(address), ..entry };
        if let Some(mac) = self.with(|book| book.who(address)) {
            return self.saw(mac, table, entry);
        }
        // There is no such table for IPv6.
        let mut of_strangers = self.of_strangers.lock().unwrap_or_else(PoisonError::into_inner);
        if address.is_ipv4() && of_strangers.len() < STRANGERS {
            of_strangers.push((self.clock.unix_now(), address, entry));
        }
    }

    /// Looks up whom the kernel knows, in one reading.
    async fn introduce_strangers(&self, table: Option<&BootTable>) {
        let entries = std::mem::take(&mut *self.of_strangers.lock().unwrap_or_else(PoisonError::into_inner));
        if entries.is_empty() {
            return;
        }
        let known = tokio::task::spawn_blocking(neighbours::all).await.unwrap_or_default();
        for (at, address, entry) in entries {
            if let Some(mac) = known.get(&address) {
                let declared = table.is_some_and(|table| table.machine(*mac).is_some());
                self.with(|book| book.note(at, *mac, declared, entry));
            }
        }
    }

    fn due(&self) -> Vec<Due> {
        self.with(|book| book.due(self.clock.unix_now()))
    }
}

/// Tells what was seen, until cancelled.
pub async fn tell(
    facts: Facts,
    boot: tokio::sync::watch::Receiver<Option<Arc<BootTable>>>,
    stop: CancellationToken,
) {
    let mut timer = tokio::time::interval(EVERY);
    loop {
        tokio::select! {
            () = stop.cancelled() => {
                facts.tell_deferred(true);
                return;
            }
            _ = timer.tick() => {}
        }
        facts.tell_deferred(false);
        let table = boot.borrow().clone();
        facts.trace().introduce_strangers(table.as_deref()).await;
        for due in facts.trace().due() {
            facts.tell_if_there_is_room(fact(due, table.as_deref()));
        }
    }
}

fn fact(due: Due, table: Option<&BootTable>) -> Fact {
    let Due { mac, entries, lost, others_lost } = due;
    let entry = |(at_unix_ms, times, entry): (i64, u32, Entry)| BootTraceEntry {
        at_unix_ms,
        service: entry.service.to_owned(),
        client: entry.asker.word().to_owned(),
        asked: entry.asked.into(),
        answered: entry.answered.into(),
        reason: entry.reason.unwrap_or_default().to_owned(),
        address: entry.address.map(|address| address.to_string()).unwrap_or_default(),
        times,
        opens: entry.opens,
    };
    let entries = entries.into_iter().map(entry).collect();
    About::mac(mac, table).saw(Body::BootTrace(BootTraceFact { entries, lost, others_lost }))
}

/// A file name as it may be shown: a part that could be a token is not.
#[must_use]
pub fn without_secrets(path: &str) -> String {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let part = |part: &str| {
        let digest = part.len() == 64 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        match (digest, part.get(..12)) {
            (true, Some(first)) => format!("{first}…"),
            _ if part.len() > 32 && !part.starts_with("grub.cfg-01-") => "(not shown)".to_owned(),
            _ => part.to_owned(),
        }
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_a_token_is_not_shown_and_digests_are_shown_in_short() {
        let token = "AAAAAAAAABFSVAAAAAEAAAAAZVPxAAAAAYvP5WgA-9s1mR4mD3KZ2y8vJ1";
        assert_eq!(without_secrets(&format!("/report/{token}/booted")), "/report/(not shown)/booted");
        assert_eq!(without_secrets(&format!("/ipxe?token={token}")), "/ipxe");
        let digest = "0123456789abcdef".repeat(4);
        assert_eq!(without_secrets(&format!("/blobs/{digest}")), "/blobs/0123456789ab…");
        for name in
            ["undionly.kpxe", "grub/grub.cfg-01-52-54-00-00-00-01", "pxelinux.cfg/01-52-54-00-00-00-01"]
        {
            assert_eq!(without_secrets(name), name);
        }
    }

    #[test]
    fn names_are_shown_without_control_characters_and_not_in_any_length() {
        let asked = |name: &str| Entry { asked: without_secrets(name).into(), ..Entry::default() }.asked;
        assert_eq!(asked("a\u{1b}[2J\nb"), "a<U+001B>[2J<U+000A>b");
        assert!(asked(&"x/".repeat(9_999)).chars().count() <= 256);
    }
}
