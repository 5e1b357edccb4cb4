//! The requests of machines that the trace keeps, without I/O: limits per machine and for all undeclared machines, and
//! one line for repeats.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use basalt_dhcp::Mac;

use super::{Asker, Due, Entry};
use basalt_proto::budget::{Budget, Spent};

/// The most declared machines remembered. The one with the oldest entry is dropped first.
const DECLARED: usize = 16_384;
/// The most undeclared machines remembered.
const OTHERS: usize = 1_024;
/// The budget of one machine: this many entries at once, and one more per interval in milliseconds.
const OF_ONE: Budget = Budget { most: 128, every_ms: 5_000 };
/// The budget of all undeclared machines together.
const OF_OTHERS: Budget = Budget { most: 1_024, every_ms: 250 };
/// The budget of undeclared machines from one address: one host that invents machines leaves room for others.
const OF_SOURCE: Budget = Budget { most: 128, every_ms: 5_000 };
/// The most addresses with a budget of their own. Beyond this, addresses share the common budget.
const SOURCES: usize = 4_096;
/// How long, in milliseconds, requests of a machine's operating system belong to its boot, counted from the last boot
/// client's request.
const BOOT_MS: i64 = 10 * 60_000;
/// Equal entries within this time, in milliseconds, are counted in one line.
const SAME_MS: i64 = 60_000;
/// The line is sent after this time without a further repeat, in milliseconds.
const PAUSE_MS: i64 = 10_000;

/// The entries of one machine.
#[derive(Debug, Default)]
struct Page {
    declared: bool,
    /// When its latest request came.
    heard_ms: i64,
    /// When the latest request of one of its boot clients came.
    booting_ms: Option<i64>,
    spent: Spent,
    lost: u64,
    waiting: Vec<(i64, u32, Entry)>,
    /// The latest entry, its time, and the number of repeats that are not sent yet.
    last: Option<(i64, u32, Entry)>,
    addresses: [Option<IpAddr>; 2],
}

/// The machines, their entries to be sent, and the owners of addresses.
#[derive(Debug, Default)]
pub struct Book {
    pages: HashMap<Mac, Page>,
    others: usize,
    addresses: HashMap<IpAddr, Mac>,
    /// Machines with entries to be sent.
    to_tell: BTreeSet<[u8; 6]>,
    spent: Spent,
    sources: HashMap<IpAddr, Spent>,
    others_lost: u64,
}

impl Book {
    /// True if a boot of this machine is under way, as far as this rack saw.
    #[must_use]
    pub fn follows(&self, mac: Mac, now_ms: i64) -> bool {
        let booting = self.pages.get(&mac).and_then(|page| page.booting_ms);
        booting.is_some_and(|at| (0..BOOT_MS).contains(&(now_ms - at)))
    }

    /// The machine that has an address.
    #[must_use]
    pub fn who(&self, address: IpAddr) -> Option<Mac> {
        self.addresses.get(&address).copied()
    }

    /// Takes an entry, or counts it as lost. An operating system's request long after a boot is dropped: it does not
    /// belong to the boot.
    pub fn note(&mut self, now_ms: i64, mac: Mac, declared: bool, entry: Entry) {
        if entry.asker == Asker::System && !self.follows(mac, now_ms) {
            return;
        }
        if !declared && !self.source_may(&entry, now_ms) {
            self.others_lost += 1;
            return;
        }
        // Undeclared machines share a budget. Each new machine and each further entry counts; repeats do not.
        let is_new = !self.pages.contains_key(&mac);
        if !declared && is_new && !self.spent.take(OF_OTHERS, now_ms) {
            self.others_lost += 1;
            return;
        }
        self.open(now_ms, mac, declared);
        let Some(page) = self.pages.get_mut(&mac) else { return };
        page.heard_ms = now_ms;
        if matches!(entry.asker, Asker::Firmware | Asker::Ipxe) {
            page.booting_ms = Some(now_ms);
        }
        if let Some(address) = entry.address
            && entry.service.starts_with("dhcp")
            && let Some(slot) = page.addresses.get_mut(usize::from(address.is_ipv6()))
        {
            // Another MAC may have the former address by now.
            if let Some(before) = slot.replace(address).filter(|before| *before != address)
                && self.addresses.get(&before) == Some(&mac)
            {
                self.addresses.remove(&before);
            }
            self.addresses.insert(address, mac);
        }
        self.to_tell.insert(mac.0);
        if let Some((at, more, last)) = &mut page.last
            && *last == entry
            && (0..SAME_MS).contains(&(now_ms - *at))
        {
            (*at, *more) = (now_ms, more.saturating_add(1));
            return;
        }
        let before = page.last.replace((now_ms, 0, entry.clone())).filter(|(_, more, _)| *more > 0);
        for line in before.into_iter().chain([(now_ms, 1, entry)]) {
            if !page.spent.take(OF_ONE, now_ms) {
                page.lost += u64::from(line.1);
            } else if !declared && !is_new && !self.spent.take(OF_OTHERS, now_ms) {
                self.others_lost += u64::from(line.1);
            } else {
                page.waiting.push(line);
            }
        }
    }

    /// The entries to be sent now.
    pub fn due(&mut self, now_ms: i64) -> Vec<Due> {
        let mut due = Vec::new();
        for bytes in std::mem::take(&mut self.to_tell) {
            let mac = Mac(bytes);
            let Some(page) = self.pages.get_mut(&mac) else { continue };
            if let Some((at, more, last)) = &mut page.last
                && *more > 0
            {
                if !(0..PAUSE_MS).contains(&(now_ms - *at)) {
                    page.waiting.push((*at, std::mem::take(more), last.clone()));
                } else {
                    self.to_tell.insert(bytes);
                }
            }
            let entries = std::mem::take(&mut page.waiting);
            if entries.is_empty() {
                // The number of lost entries is sent with the next entry: a line of its own would displace kept
                // entries.
                continue;
            }
            let lost = std::mem::take(&mut page.lost);
            let others_lost = if page.declared { 0 } else { std::mem::take(&mut self.others_lost) };
            due.push(Due { mac, entries, lost, others_lost });
        }
        due
    }

    /// Takes from the budget of the address that sent the request; `false`: it is used up. In a DHCP entry the address
    /// is the one given to the client, so it has no budget.
    fn source_may(&mut self, entry: &Entry, now_ms: i64) -> bool {
        let Some(source) = entry.address.filter(|_| !entry.service.starts_with("dhcp")) else { return true };
        let source = match source.to_canonical() {
            // A host can use any address of its /64.
            IpAddr::V6(address) => IpAddr::from((address.to_bits() & !u128::from(u64::MAX)).to_be_bytes()),
            v4 => v4,
        };
        if self.sources.len() >= SOURCES && !self.sources.contains_key(&source) {
            self.sources.retain(|_, spent| !spent.is_whole(OF_SOURCE, now_ms));
            if self.sources.len() >= SOURCES {
                return true;
            }
        }
        self.sources.entry(source).or_default().take(OF_SOURCE, now_ms)
    }

    /// Makes room for a machine.
    fn open(&mut self, now_ms: i64, mac: Mac, declared: bool) {
        if let Some(page) = self.pages.get_mut(&mac) {
            if page.declared != declared {
                self.others = if declared { self.others - 1 } else { self.others + 1 };
                page.declared = declared;
            }
            return;
        }
        let (there, most) =
            if declared { (self.pages.len() - self.others, DECLARED) } else { (self.others, OTHERS) };
        if there >= most {
            let alike = self.pages.iter().filter(|(_, page)| page.declared == declared);
            if let Some(mac) = alike.min_by_key(|(_, page)| page.heard_ms).map(|(mac, _)| *mac) {
                self.forget(mac);
            }
        }
        self.others += usize::from(!declared);
        self.pages.insert(mac, Page { declared, heard_ms: now_ms, ..Page::default() });
    }

    fn forget(&mut self, mac: Mac) {
        let Some(page) = self.pages.remove(&mac) else { return };
        self.others -= usize::from(!page.declared);
        self.others_lost += page.waiting.len() as u64;
        self.to_tell.remove(&mac.0);
        for address in page.addresses.into_iter().flatten() {
            if self.addresses.get(&address) == Some(&mac) {
                self.addresses.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);

    fn entry(service: &'static str, asker: Asker, asked: &str) -> Entry {
        Entry { service, asker, asked: asked.into(), ..Entry::default() }
    }

    fn discover() -> Entry {
        Entry { opens: true, ..entry("dhcp", Asker::Firmware, "DISCOVER") }
    }

    fn made_up(number: u32) -> Mac {
        let [a, b, c, d] = number.to_be_bytes();
        Mac([6, 0, a, b, c, d])
    }

    fn told(book: &mut Book, now_ms: i64) -> Vec<(String, u32)> {
        let due = book.due(now_ms);
        due.into_iter()
            .flat_map(|it| it.entries)
            .map(|(_, times, entry)| (entry.asked.into(), times))
            .collect()
    }

    #[test]
    fn tells_what_was_asked_once_and_in_order() {
        let mut book = Book::default();
        book.note(0, MAC, true, discover());
        book.note(5, MAC, true, entry("dhcp", Asker::Firmware, "REQUEST"));
        let due = book.due(1000);
        assert_eq!((due.len(), due[0].mac, due[0].lost), (1, MAC, 0));
        let asked: Vec<_> =
            due[0].entries.iter().map(|(at, times, it)| (*at, *times, it.asked.as_str())).collect();
        assert_eq!(asked, [(0, 1, "DISCOVER"), (5, 1, "REQUEST")]);
        assert!(book.due(2000).is_empty());
    }

    #[test]
    fn what_is_the_same_again_is_one_more_line_that_counts() {
        let mut book = Book::default();
        for at in [0, 4_000, 12_000, 28_000] {
            book.note(at, MAC, true, discover());
        }
        assert_eq!(told(&mut book, 29_000), [("DISCOVER".to_owned(), 1)]);
        assert_eq!(told(&mut book, 38_000), [("DISCOVER".to_owned(), 3)]);
        book.note(200_000, MAC, true, discover());
        assert_eq!(told(&mut book, 201_000), [("DISCOVER".to_owned(), 1)], "long after, it is news");
        book.note(201_000, MAC, true, discover());
        book.note(202_000, MAC, true, entry("tftp", Asker::Unknown, "undionly.kpxe"));
        let expected = [("DISCOVER".to_owned(), 1), ("undionly.kpxe".to_owned(), 1)];
        assert_eq!(told(&mut book, 203_000), expected, "the line that counts comes before what follows");
    }

    #[test]
    fn an_operating_system_belongs_to_the_boot_before_it_and_not_to_nothing() {
        let mut book = Book::default();
        let renewal = || entry("dhcp", Asker::System, "DISCOVER");
        book.note(0, MAC, true, renewal());
        assert!(book.due(1000).is_empty() && book.pages.is_empty(), "it did not boot from here");
        book.note(2_000, MAC, true, discover());
        book.note(60_000, MAC, true, renewal());
        assert_eq!(told(&mut book, 61_000).len(), 2);
        for minutes in 11..600 {
            book.note(minutes * 60_000, MAC, true, renewal());
        }
        assert!(told(&mut book, 601 * 60_000).is_empty());
    }

    #[test]
    fn a_machine_that_asks_without_end_is_cut_and_it_is_said() {
        let mut book = Book::default();
        for number in 0..1_000 {
            book.note(number, MAC, true, entry("http", Asker::Unknown, &number.to_string()));
        }
        let due = book.due(1_000);
        assert_eq!((due[0].entries.len(), due[0].lost), (128, 872));
        book.note(60_000, MAC, true, discover());
        assert_eq!(told(&mut book, 61_000).len(), 1, "it has regained some");
    }

    #[test]
    fn a_hundred_thousand_made_up_machines_take_little_room_and_none_of_the_declared() {
        let mut book = Book::default();
        book.note(0, MAC, true, discover());
        let mut told = 0;
        for number in 0..100_000 {
            book.note(
                0,
                made_up(number),
                false,
                Entry { address: Some(IpAddr::from(made_up_address(number))), ..discover() },
            );
        }
        assert_eq!((book.pages.len(), book.others), (OTHERS + 1, OTHERS));
        assert!(book.addresses.len() <= 2 * (OTHERS + 1));
        let due = book.due(1_000);
        assert!(due.iter().any(|it| it.mac == MAC && it.others_lost == 0));
        told += due.iter().map(|it| it.entries.len() as u64).sum::<u64>();
        let lost: u64 = due.iter().map(|it| it.others_lost).sum();
        assert_eq!(told + lost, 100_001, "each was told or is counted");
        // One hour of the flood, with four entries a second.
        let mut told = 0;
        for number in 0..36_000 {
            let now_ms = 1_000 + i64::from(number) * 100;
            book.note(now_ms, made_up(number), false, discover());
            if number % 10 == 0 {
                told += book.due(now_ms).iter().map(|it| it.entries.len()).sum::<usize>();
            }
        }
        assert!((10_000..=4 * 3_600 + 1_024).contains(&told), "{told}");
        assert_eq!(book.others, OTHERS);
    }

    #[test]
    fn questions_that_take_turns_are_within_the_bounds_as_well() {
        let mut book = Book::default();
        for number in 0..4_000 {
            book.note(
                number,
                MAC,
                true,
                entry("dhcp", Asker::Firmware, ["a", "a", "b", "b"][number as usize % 4]),
            );
        }
        let due = book.due(4_000);
        assert_eq!(due[0].entries.len(), 128);
        assert!(book.due(5_000).is_empty(), "what was lost is told with the next");
    }

    #[test]
    fn one_address_that_makes_names_up_leaves_room_for_other_addresses() {
        let mut book = Book::default();
        let script =
            |address: &str| Entry { address: address.parse().ok(), ..entry("http", Asker::Ipxe, "script") };
        for number in 0..9_000 {
            book.note(0, made_up(number), false, script("10.0.0.66"));
            book.note(0, made_up(9_000 + number), false, script(&format!("2001:db8::{number:x}")));
        }
        book.note(0, made_up(99_999), false, script("10.0.0.5"));
        let due = book.due(1_000);
        assert!(due.iter().any(|it| it.mac == made_up(99_999)));
        let told: usize = due.iter().map(|it| it.entries.len()).sum();
        assert_eq!(told, 128 + 128 + 1);
        assert_eq!(due.iter().map(|it| it.others_lost).sum::<u64>(), 18_000 - 256, "the others are counted");
    }

    #[test]
    fn one_undeclared_machine_that_repeats_itself_leaves_room_for_the_others() {
        let mut book = Book::default();
        for number in 0..5_000 {
            book.note(number, made_up(1), false, discover());
        }
        book.note(5_000, made_up(2), false, discover());
        assert!(book.due(6_000).iter().any(|it| it.mac == made_up(2) && it.entries.len() == 1));
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_silence_anybody() {
        let mut book = Book::default();
        for number in 0..200 {
            book.note(1_000_000_000, MAC, true, entry("http", Asker::Unknown, &number.to_string()));
        }
        book.due(1_000_000_000);
        book.note(0, MAC, true, entry("http", Asker::Unknown, "x"));
        assert!(book.due(1).is_empty());
        book.note(60_000, MAC, true, discover());
        book.note(60_001, MAC, true, discover());
        assert_eq!(told(&mut book, 60_002).len(), 1);
        assert_eq!(told(&mut book, 0), [("DISCOVER".to_owned(), 1)]);
    }

    fn made_up_address(number: u32) -> [u8; 4] {
        (0x0a00_0000 + number).to_be_bytes()
    }

    #[test]
    fn an_address_is_whose_was_told_it_last() {
        let mut book = Book::default();
        let at = |last| Some(IpAddr::from([10, 0, 0, last]));
        book.note(0, MAC, true, Entry { address: at(5), ..discover() });
        assert_eq!(book.who(at(5).unwrap()), Some(MAC));
        book.note(1, MAC, true, Entry { address: at(6), ..discover() });
        assert_eq!((book.who(at(5).unwrap()), book.who(at(6).unwrap())), (None, Some(MAC)));
        book.note(2, made_up(1), false, Entry { address: at(6), ..discover() });
        assert_eq!(book.who(at(6).unwrap()), Some(made_up(1)));
    }

    #[test]
    fn a_machine_that_is_declared_later_is_no_stranger_any_more() {
        let mut book = Book::default();
        book.note(0, MAC, false, discover());
        assert_eq!(book.others, 1);
        book.note(1, MAC, true, discover());
        assert_eq!(book.others, 0);
    }
}
