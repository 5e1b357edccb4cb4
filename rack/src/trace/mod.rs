//! The requests that machines made to this rack during a boot, and the answers, or the reason for a refusal. People use
//! it to find out why a machine does not boot (`basalt explain boot`).
//!
//! Each service passes its observations here ([`Entry`]). The [`Book`] limits them, and every second they become facts.
//! They are only sent while the spool has plenty of room: facts that the planner needs go first. A trace contains no
//! tokens and no keys: services describe a request by the name of its route.

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

/// The interval at which entries are sent.
const EVERY: Duration = Duration::from_secs(1);
/// The most entries that wait for a lookup of an address this rack did not give. More are dropped.
const STRANGERS: usize = 256;

/// Codes for a missing answer, a refusal, or an answer that the client did not accept. For HTTP they are the codes of
/// its problems.
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
    /// The machine is not declared, and unknown machines are not served.
    pub const UNKNOWN_CLIENT: &str = "unknown_client";
    /// Every dynamic address is in use.
    pub const NO_FREE_ADDRESS: &str = "no_free_address";
    /// No dynamic address is free. Some are quarantined because other hosts use them.
    pub const ADDRESSES_REST: &str = "addresses_rest";
    /// The rack has no dynamic addresses there, and nothing is reserved for the client.
    pub const NO_DYNAMIC: &str = "no_dynamic";
    /// The client has the most addresses that one client may have.
    pub const TOO_MANY_ADDRESSES: &str = "too_many_addresses";
    /// No dynamic address is given until earlier leases are known.
    pub const WITHHELD: &str = "withheld";
    /// Another host uses the address.
    pub const CONFLICT: &str = "conflict";
    /// The client chose another server.
    pub const OTHER_SERVER: &str = "other_server";
    /// The rack has no record of the client's address.
    pub const NOT_OURS: &str = "not_ours";
    /// The client may not have the address that it asks for.
    pub const ADDRESS_REFUSED: &str = "address_refused";
    /// The message lacks a necessary field or option.
    pub const MALFORMED: &str = "malformed";
    /// The rack cannot write to its disk.
    pub const DISK: &str = "disk";
    /// The script would contain a token, and this client may not have one.
    pub const TOKEN_REFUSED: &str = "token_refused";
    /// The script would contain a token, and the request comes from another network than the machine's.
    pub const WRONG_NETWORK: &str = "wrong_network";
    /// The machine has no task and boots its disk.
    pub const NOTHING_TO_DO: &str = "nothing_to_do";
    /// The file does not exist.
    pub const NOT_FOUND: &str = "not_found";
    /// The file exists, but is not available now.
    pub const UNAVAILABLE: &str = "unavailable";
    /// The rack has too many requests at once.
    pub const BUSY: &str = "busy";
    /// The client never accepted a byte.
    pub const NEVER_TAKEN: &str = "never_taken";
    /// The client accepted some bytes, then stopped answering.
    pub const FELL_SILENT: &str = "fell_silent";
    /// The client ended the transfer.
    pub const ABORTED: &str = "aborted";
}

/// The part of a machine's boot that sends a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Asker {
    /// A PXE ROM, or UEFI.
    Firmware,
    /// The iPXE boot loader.
    Ipxe,
    /// The agent or an operating system.
    System,
    /// The request does not show it.
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

/// One request and its result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// `dhcp`, `dhcp6`, `tftp`, `http`, `agent`.
    pub service: &'static str,
    /// The part of the boot that sent the request.
    pub asker: Asker,
    /// The request. File names in it come from the machine.
    pub asked: UntrustedName,
    /// The answer, as text.
    pub answered: UntrustedName,
    /// One of [`reason`], or a problem's code.
    pub reason: Option<&'static str>,
    /// The client's address.
    pub address: Option<IpAddr>,
    /// The request may begin a boot: it is the first one of firmware, or of iPXE in ROM.
    pub opens: bool,
}

/// The entries of one machine that are to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Due {
    /// The machine's hardware address.
    pub mac: Mac,
    /// The entries, with their times and the number of equal ones in a row.
    pub entries: Vec<(i64, u32, Entry)>,
    /// The number of its entries that were dropped for lack of room.
    pub lost: u64,
    /// The number of entries of undeclared machines that were dropped for lack of room.
    pub others_lost: u64,
}

/// Takes the observations of services without making them wait.
#[derive(Debug, Default)]
pub struct Trace {
    clock: Clock,
    book: Mutex<Book>,
    /// The time, the address and the entry of unknown senders: the kernel's neighbour table may know them.
    of_strangers: Mutex<Vec<(i64, IpAddr, Entry)>>,
}

impl Trace {
    /// A trace with times from this clock.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, ..Self::default() }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        change(&mut self.book.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// True if DHCP requests of this machine's operating system belong to a boot.
    #[must_use]
    pub fn follows(&self, mac: Mac) -> bool {
        self.with(|book| book.follows(mac, self.clock.unix_now()))
    }

    /// Takes a request of a machine.
    pub fn saw(&self, mac: Mac, table: Option<&BootTable>, entry: Entry) {
        let declared = table.is_some_and(|table| table.machine(mac).is_some());
        self.with(|book| book.note(self.clock.unix_now(), mac, declared, entry));
    }

    /// Takes a request whose sender is known by its address only. The machine is the one that was last given the
    /// address, or else the one in the kernel's ARP table.
    pub fn saw_at(&self, address: IpAddr, table: Option<&BootTable>, entry: Entry) {
        let entry = Entry { address: Some(address), ..entry };
        if let Some(mac) = self.with(|book| book.who(address)) {
            return self.saw(mac, table, entry);
        }
        // Only IPv4 has a neighbour table that is read here.
        let mut of_strangers = self.of_strangers.lock().unwrap_or_else(PoisonError::into_inner);
        if address.is_ipv4() && of_strangers.len() < STRANGERS {
            of_strangers.push((self.clock.unix_now(), address, entry));
        }
    }

    /// Looks up all waiting addresses in one reading of the kernel's table.
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

/// Sends the entries as facts, until cancelled.
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

/// A file name without parts that could be tokens.
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
