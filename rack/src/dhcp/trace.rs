//! DHCP messages in the trace of a boot: each request with its answer, or with the reason why there was none.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use basalt_dhcp::ingress::{self, Packet};
use basalt_dhcp::{
    Action, Boot, BootClient, BootMode, Event, Ignored, Mac, OtherArchitecture, Server, Subnet, Transport,
};
use dhcproto::v4::{MessageType, OptionCode};

use crate::trace::{Asker, Entry, Trace, reason};

/// The most requests that wait for a probe; the server has no more probes open.
const PARKED: usize = 2_048;

/// Longer than a probe takes: an answer that has not come by then will not come.
const PROBED: Duration = Duration::from_secs(5);

/// Requests that are answered after their addresses were probed.
#[derive(Debug, Default)]
pub(super) struct Parked(HashMap<Mac, Question>);

/// A request, and when it came.
#[derive(Debug)]
struct Question {
    at: Instant,
    entry: Entry,
    boots: Boots,
}

/// The kind of boot file that a client should get, before its subnet's settings are read.
#[derive(Debug, Clone, Copy)]
enum Boots {
    /// No boot file: the client is an operating system.
    Nothing,
    /// A loader or a script.
    Something,
    /// No boot file: the client announces another architecture than its machine is declared with.
    OtherArchitecture(OtherArchitecture),
}

impl Boots {
    fn of(client: Option<BootClient>, server: &Server, packet: &Packet) -> Self {
        match client {
            None => Self::Nothing,
            Some(_) => server.other_architecture(packet).map_or(Self::Something, Self::OtherArchitecture),
        }
    }
}

/// A line of a trace, and the MAC that it belongs to.
pub(super) type Line = (Mac, Entry);

impl Parked {
    /// The trace line of a message. `None` if it belongs to no boot, or if its answer is still to come.
    pub(super) fn message(
        &mut self,
        trace: &Trace,
        server: &Server,
        interface: u32,
        packet: &Packet,
        actions: &[Action],
    ) -> Option<Line> {
        let client = BootClient::of(packet);
        let Some(mac) = packet.mac() else { return infiniband(packet, client, actions) };
        if client.is_none() && !trace.follows(mac) {
            return None;
        }
        let (entry, boots) = (question(packet, client), Boots::of(client, server, packet));
        if actions.iter().all(|action| matches!(action, Action::Probe { .. })) {
            if packet.kind == MessageType::Discover {
                self.park(mac, Question { at: Instant::now(), entry, boots });
            }
            return None;
        }
        // An operating system that renews its lease.
        let renews = client.is_none() && !packet.ciaddr.is_unspecified();
        let entry = answered(entry, boots, server, interface, actions)?;
        (entry.reason.is_some() || !renews).then_some((mac, entry))
    }

    fn park(&mut self, mac: Mac, question: Question) {
        if self.0.len() >= PARKED {
            self.0.retain(|_, question| question.at.elapsed() < PROBED);
        }
        if self.0.len() < PARKED || self.0.contains_key(&mac) {
            self.0.insert(mac, question);
        }
    }

    /// The trace lines of ended probes.
    pub(super) fn concluded(&mut self, server: &Server, interface: u32, actions: &[Action]) -> Vec<Line> {
        let mut lines = Vec::new();
        if self.0.is_empty() {
            return lines;
        }
        for action in actions {
            if let Action::Report(Event::Taken { lease, holder }) = action
                && let Some(Question { entry, .. }) = self.0.get(&lease.mac)
            {
                let answered = format!("{} was to be offered, and {holder} has it", lease.address);
                let conflict =
                    Entry { answered: answered.into(), reason: Some(reason::CONFLICT), ..entry.clone() };
                lines.push((lease.mac, conflict));
            }
            if let Action::Report(Event::Ignored { mac: Some(mac), reason }) = action
                && let Some(Question { entry, .. }) = self.0.remove(mac)
            {
                lines.extend(ignored(entry, reason).map(|entry| (*mac, entry)));
            }
            if let Action::Send { bytes, .. } = action
                && let Some(mac) = ingress::parse(bytes).ok().and_then(|reply| reply.mac())
                && let Some(Question { at, entry, boots }) = self.0.remove(&mac)
                && at.elapsed() < PROBED
            {
                let entry = answer_of(entry, bytes, boots, server, interface);
                lines.extend(entry.map(|entry| (mac, entry)));
            }
        }
        lines
    }
}

/// The trace line of a client over InfiniBand, under the MAC that represents it.
fn infiniband(packet: &Packet, client: Option<BootClient>, actions: &[Action]) -> Option<Line> {
    let heard = packet.infiniband()?;
    let is_it = |action: &Action| {
        matches!(action, Action::Report(Event::Ignored { reason: Ignored::InfiniBand, .. }))
    };
    if !actions.iter().any(is_it) {
        return None;
    }
    let question = question(packet, client);
    let asked = format!("{}, {heard}", question.asked);
    let answered = format!("not answered: {}", Ignored::InfiniBand);
    // An operating system has no trace here: its boot was not seen.
    let asker = if client.is_none() { Asker::Unknown } else { question.asker };
    let opens = packet.kind == MessageType::Discover;
    let (asked, answered) = (asked.into(), answered.into());
    let entry = Entry { asked, answered, asker, opens, reason: Some(reason::INFINIBAND), ..question };
    Some((heard.stand_in?, entry))
}

fn question(packet: &Packet, client: Option<BootClient>) -> Entry {
    let mut asked = kind(packet.kind).to_owned();
    asked.push_str(&client_in_words(client));
    let wanted =
        packet.options.ipv4(OptionCode::RequestedIpAddress).filter(|_| packet.kind == MessageType::Request);
    if let Some(address) = wanted.or(Some(packet.ciaddr)).filter(|address| !address.is_unspecified()) {
        asked.push_str(&format!(", for {address}"));
    }
    if !packet.giaddr.is_unspecified() {
        asked.push_str(&format!(", by relay {}", packet.giaddr));
    }
    let asker = asker(client);
    let opens = asker != Asker::System && packet.kind == MessageType::Discover;
    Entry { service: "dhcp", asker, asked: asked.into(), opens, ..Entry::default() }
}

/// The part of a machine's boot that the client is.
pub(crate) const fn asker(client: Option<BootClient>) -> Asker {
    match client {
        Some(BootClient::Ipxe { .. }) => Asker::Ipxe,
        Some(BootClient::Rom { .. } | BootClient::Unsupported { .. }) => Asker::Firmware,
        None => Asker::System,
    }
}

/// The name of a boot client for people, after a comma.
pub(crate) fn client_in_words(client: Option<BootClient>) -> String {
    match client {
        None => String::new(),
        Some(BootClient::Ipxe { firmware: None }) => ", iPXE".to_owned(),
        Some(BootClient::Ipxe { firmware: Some(firmware) }) => format!(", iPXE on {firmware}"),
        Some(BootClient::Rom { firmware, transport: Transport::Tftp }) => format!(", {firmware}"),
        Some(BootClient::Rom { firmware, transport: Transport::Http }) => format!(", {firmware} by HTTP"),
        Some(BootClient::Unsupported { architecture }) => format!(", architecture {architecture}"),
    }
}

fn answered(
    entry: Entry,
    boots: Boots,
    server: &Server,
    interface: u32,
    actions: &[Action],
) -> Option<Entry> {
    // The refusal is reported after the NAK.
    let refused = actions.iter().find_map(|action| match action {
        Action::Report(Event::Refused { address, reason, .. }) => Some((address, reason)),
        _ => None,
    });
    if let Some((address, why)) = refused {
        let answered = format!("NAK: {address}: {why}");
        return Some(Entry { answered: answered.into(), reason: Some(reason::ADDRESS_REFUSED), ..entry });
    }
    for action in actions {
        match action {
            Action::Report(Event::Ignored { reason, .. }) => return ignored(entry, reason),
            Action::Report(Event::Conflict { lease, .. }) => {
                let answered = format!("{} is kept from everybody for a while", lease.address);
                return Some(Entry { answered: answered.into(), reason: Some(reason::CONFLICT), ..entry });
            }
            // The boot report comes before the answer only if another server gives the address.
            Action::Report(Event::Boot { address, file, .. }) => {
                let answered = format!("nothing; it takes {address} of another server, and boots {file}");
                return Some(Entry { answered: answered.into(), address: Some((*address).into()), ..entry });
            }
            Action::Report(Event::Released(lease)) => {
                return Some(Entry { answered: format!("{} is free again", lease.address).into(), ..entry });
            }
            Action::Send { bytes, .. } => {
                return answer_of(entry, bytes, boots, server, interface);
            }
            _ => {}
        }
    }
    None
}

/// A reply as text. If a boot client gets no boot file, the line says why.
fn answer_of(entry: Entry, bytes: &[u8], boots: Boots, server: &Server, interface: u32) -> Option<Entry> {
    let reply = ingress::parse(bytes).ok()?;
    let given = Some(reply.yiaddr).filter(|address| !address.is_unspecified());
    let address = given.map_or_else(|| "no address".to_owned(), |address| address.to_string());
    let option = reply.options.raw(OptionCode::BootfileName);
    let file = String::from_utf8_lossy(option.unwrap_or(&reply.file)).trim_end_matches('\0').to_owned();
    let mut answered = format!("{} {address}", kind(reply.kind));
    let mut why = None;
    if !file.is_empty() {
        let from = if file.contains("://") { String::new() } else { format!(" from {}", reply.siaddr) };
        answered.push_str(&format!(": {file}{from}"));
        if let Some(boot) = subnet_of(server, interface, given).map(|subnet| &subnet.boot) {
            answered.push_str(&replaced(boot, &file));
        }
    } else if let Some((code, words)) = nothing_to_boot(boots, server, interface, given) {
        answered.push_str(&format!(", and nothing to boot: {words}"));
        why = Some(code);
    }
    let settled = (reply.kind == MessageType::Ack).then_some(given).flatten();
    Some(Entry { answered: answered.into(), reason: why, address: settled.map(Into::into), ..entry })
}

/// The subnet of an answer.
fn subnet_of(server: &Server, interface: u32, given: Option<Ipv4Addr>) -> Option<&Subnet> {
    let of_address = |address| server.config().subnets.iter().find(|it: &&Subnet| it.cidr.contains(&address));
    given.and_then(of_address).or_else(|| server.subnets_of(interface).next())
}

/// The reason why the named loader replaces another one, as text.
pub(crate) fn replaced(boot: &Boot, file: &str) -> String {
    match &boot.replaced {
        Some(why) if file.ends_with(&boot.loaders.efi_x64) => format!(", since {why}"),
        _ => String::new(),
    }
}

fn nothing_to_boot(
    boots: Boots,
    server: &Server,
    interface: u32,
    given: Option<Ipv4Addr>,
) -> Option<(&'static str, String)> {
    let is_off =
        || subnet_of(server, interface, given).is_some_and(|subnet| subnet.boot.mode == BootMode::Off);
    Some(match boots {
        Boots::Nothing => return None,
        _ if is_off() => (reason::BOOT_OFF, "the subnet's boot mode is none".to_owned()),
        Boots::OtherArchitecture(other) => (reason::OTHER_ARCHITECTURE, other.to_string()),
        Boots::Something => (reason::ARCHITECTURE, "nothing of this architecture is booted here".to_owned()),
    })
}

fn ignored(entry: Entry, ignored: &Ignored) -> Option<Entry> {
    let code = match ignored {
        Ignored::NotARequest { .. } | Ignored::NotEthernet | Ignored::Detector => return None,
        Ignored::InfiniBand => reason::INFINIBAND,
        Ignored::NoSubnet(_) => reason::NO_SUBNET,
        Ignored::UnknownClient => reason::UNKNOWN_CLIENT,
        Ignored::OtherServer(_) | Ignored::OthersClient => reason::OTHER_SERVER,
        Ignored::OtherArchitecture(_) => reason::OTHER_ARCHITECTURE,
        Ignored::NotOurs(_) | Ignored::OtherAddress { .. } => reason::NOT_OURS,
        Ignored::NoFreeAddress(_) => reason::NO_FREE_ADDRESS,
        Ignored::SomeRest(_) => reason::ADDRESSES_REST,
        Ignored::NoDynamic(_) => reason::NO_DYNAMIC,
        Ignored::Taken(_) => reason::CONFLICT,
        Ignored::Withheld => reason::WITHHELD,
        Ignored::Unwritable => reason::DISK,
        Ignored::Missing(_) => reason::MALFORMED,
    };
    Some(Entry { answered: format!("not answered: {ignored}").into(), reason: Some(code), ..entry })
}

/// Marks an entry as unanswered if its lease could not be written.
pub(crate) fn kept(entry: Entry, kept: bool) -> Entry {
    if kept || entry.reason.is_some() {
        return entry;
    }
    let answered = "not answered: this rack cannot write its leases to its disk";
    Entry { answered: answered.into(), reason: Some(reason::DISK), address: None, ..entry }
}

const fn kind(kind: MessageType) -> &'static str {
    match kind {
        MessageType::Discover => "DISCOVER",
        MessageType::Offer => "OFFER",
        MessageType::Request => "REQUEST",
        MessageType::Decline => "DECLINE",
        MessageType::Ack => "ACK",
        MessageType::Nak => "NAK",
        MessageType::Release => "RELEASE",
        MessageType::Inform => "INFORM",
        _ => "message",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_dhcp::{AddressRange, Architecture, Arrival, Config, Firmware, Time, egress};

    const MAC: &str = "52:54:00:00:00:01";
    const VIA: Arrival = Arrival { interface: 1, local: Ipv4Addr::new(10, 77, 0, 2), unicast: false };

    fn server(change: impl FnOnce(&mut Config)) -> Server {
        let mut subnet = Subnet::new("s1", "10.77.0.0/24".parse().unwrap());
        let (start, end) = (Ipv4Addr::new(10, 77, 0, 100), Ipv4Addr::new(10, 77, 0, 101));
        subnet.dynamic.push(AddressRange { start, end });
        subnet.boot = Boot { script_url: "http://{server}:5248/ipxe?mac={mac}".into(), ..Boot::default() };
        let mut config = Config { subnets: vec![subnet], ..Config::default() };
        change(&mut config);
        Server::new(config).unwrap()
    }

    fn rom(kind: MessageType, architecture: u16) -> egress::Message {
        let mut message = egress::Message::request(kind, 7, MAC.parse().unwrap());
        message.option(OptionCode::ClassIdentifier, "PXEClient:Arch:00000:UNDI:002001");
        message.option(OptionCode::ClientSystemArchitecture, architecture.to_be_bytes());
        message
    }

    fn ask(server: &mut Server, message: &egress::Message) -> Option<Entry> {
        let packet = ingress::parse(&message.encode()).unwrap();
        let actions = server.handle(Time(1_700_000_000_000), VIA, &packet);
        let (trace, mut parked) = (Trace::default(), Parked::default());
        parked.message(&trace, server, 1, &packet, &actions).map(|(_, entry)| entry)
    }

    #[test]
    fn a_rom_that_is_offered_an_address_and_a_loader() {
        let mut server = server(|_| {});
        let entry = ask(&mut server, &rom(MessageType::Discover, 0)).unwrap();
        assert_eq!(entry.asked, "DISCOVER, x86 BIOS");
        assert_eq!(entry.answered, "OFFER 10.77.0.100: undionly.kpxe from 10.77.0.2");
        assert!(entry.opens && entry.asker == Asker::Firmware && entry.reason.is_none());
        let mut request = rom(MessageType::Request, 0);
        request.option(OptionCode::RequestedIpAddress, [10, 77, 0, 100]);
        let entry = ask(&mut server, &request).unwrap();
        assert_eq!(entry.asked, "REQUEST, x86 BIOS, for 10.77.0.100");
        assert_eq!(entry.address, Some(Ipv4Addr::new(10, 77, 0, 100).into()));
        assert!(!entry.opens);
    }

    #[test]
    fn every_refusal_says_why() {
        let refused = |change: fn(&mut Config), message: egress::Message| {
            let entry = ask(&mut server(change), &message).unwrap();
            (entry.reason.unwrap_or_default(), entry.answered)
        };
        let discover = |architecture| rom(MessageType::Discover, architecture);
        let (code, words) = refused(|it| it.subnets.clear(), discover(0));
        assert_eq!(
            (code, words.as_str()),
            (reason::NO_SUBNET, "not answered: no subnet is configured for 10.77.0.2")
        );
        let (code, words) = refused(|it| it.subnets[0].boot.mode = BootMode::Off, discover(0));
        let expected = "OFFER 10.77.0.100, and nothing to boot: the subnet's boot mode is none";
        assert_eq!((code, words.as_str()), (reason::BOOT_OFF, expected));
        assert_eq!(refused(|_| {}, discover(2)).0, reason::ARCHITECTURE);
        assert_eq!(
            refused(|it| it.subnets[0].boot.firmware = [Firmware::EfiX64].into(), discover(0)).0,
            reason::ARCHITECTURE
        );
        assert_eq!(refused(|it| it.serve_unknown = false, discover(0)).0, reason::UNKNOWN_CLIENT);
        assert_eq!(refused(|it| it.subnets[0].dynamic.clear(), discover(0)).0, reason::NO_DYNAMIC);
        let own = AddressRange { start: VIA.local, end: VIA.local };
        let mut taken = server(|it| it.subnets[0].dynamic = vec![own]);
        let entry = ask(&mut taken, &discover(0)).unwrap();
        assert_eq!(entry.reason, Some(reason::NO_FREE_ADDRESS), "{}", entry.answered);
        let mut elsewhere = rom(MessageType::Request, 0);
        elsewhere.option(OptionCode::ServerIdentifier, [10, 77, 0, 9]);
        elsewhere.option(OptionCode::RequestedIpAddress, [10, 77, 0, 100]);
        let (code, words) = refused(|_| {}, elsewhere);
        assert_eq!(
            (code, words.as_str()),
            (reason::OTHER_SERVER, "not answered: the client chose server 10.77.0.9")
        );
        let mut stranger = rom(MessageType::Request, 0);
        stranger.option(OptionCode::RequestedIpAddress, [10, 78, 0, 1]);
        assert_eq!(refused(|_| {}, stranger).0, reason::ADDRESS_REFUSED);
    }

    #[test]
    fn another_architecture_than_declared_is_told_with_both() {
        let declare = |server: &mut Server, architecture| {
            server.set_declared(HashMap::from([(MAC.parse().unwrap(), architecture)]).into());
        };
        let words = "and nothing to boot: x86-64 UEFI starts programs for amd64, and the machine is declared as arm64";
        let mut server = server(|_| {});
        declare(&mut server, Architecture::Arm64);
        let entry = ask(&mut server, &rom(MessageType::Discover, 7)).unwrap();
        assert_eq!(entry.asked, "DISCOVER, x86-64 UEFI");
        assert_eq!(entry.answered, format!("OFFER 10.77.0.100, {words}").as_str());
        assert_eq!(entry.reason, Some(reason::OTHER_ARCHITECTURE));
        declare(&mut server, Architecture::Amd64);
        assert_eq!(ask(&mut server, &rom(MessageType::Discover, 7)).unwrap().reason, None);

        let mut server = self::server(|it| it.subnets[0].boot.mode = BootMode::Proxy);
        declare(&mut server, Architecture::Arm64);
        let entry = ask(&mut server, &rom(MessageType::Discover, 7)).unwrap();
        assert_eq!(
            entry.reason,
            Some(reason::OTHER_ARCHITECTURE),
            "beside another server: {}",
            entry.answered
        );
    }

    #[test]
    fn an_offer_after_a_probe_says_why_it_has_nothing_to_boot() {
        let mut server = server(|_| {});
        server.set_declared(HashMap::from([(MAC.parse().unwrap(), Architecture::Arm64)]).into());
        server.set_probing(1, Some(Duration::from_millis(200)));
        let packet = ingress::parse(&rom(MessageType::Discover, 7).encode()).unwrap();
        let (trace, mut parked) = (Trace::default(), Parked::default());
        let now = Time(1_700_000_000_000);
        let actions = server.handle(now, VIA, &packet);
        assert_eq!(parked.message(&trace, &server, 1, &packet, &actions), None);
        let actions = server.conclude(now + Duration::from_millis(200), 1);
        let lines = parked.concluded(&server, 1, &actions);
        assert_eq!(lines[0].1.reason, Some(reason::OTHER_ARCHITECTURE));
    }

    #[test]
    fn who_asks_over_infiniband_is_told_with_the_guid_of_the_port_and_why_nobody_answers() {
        let mut message = rom(MessageType::Discover, 7);
        message.option(OptionCode::ClientIdentifier, [0, 0, 0x02, 0xc9, 0x03, 0x00, 0x12, 0x34, 0x56]);
        let mut datagram = message.encode();
        datagram[1..3].copy_from_slice(&[32, 0]);
        datagram[28..44].fill(0);
        let packet = ingress::parse(&datagram).unwrap();
        let mut server = server(|_| {});
        let actions = server.handle(Time(1_700_000_000_000), VIA, &packet);
        let (trace, mut parked) = (Trace::default(), Parked::default());
        let (mac, entry) = parked.message(&trace, &server, 1, &packet, &actions).unwrap();
        assert_eq!(mac.to_string(), "00:02:c9:12:34:56");
        assert_eq!(entry.asked, "DISCOVER, x86-64 UEFI, over InfiniBand, port GUID 0002:c903:0012:3456");
        let words = "not answered: racks lease no addresses over InfiniBand and boot no machines there";
        assert_eq!((entry.answered.as_str(), entry.reason), (words, Some(reason::INFINIBAND)));
        assert!(entry.opens);
        let mut system = egress::Message::request(MessageType::Discover, 7, MAC.parse().unwrap()).encode();
        system[1] = 32;
        let packet = ingress::parse(&system).unwrap();
        let actions = server.handle(Time(1_700_000_000_000), VIA, &packet);
        let (mac, entry) = parked.message(&trace, &server, 1, &packet, &actions).unwrap();
        assert_eq!((mac.to_string().as_str(), entry.asker), (MAC, Asker::Unknown), "an operating system too");
    }

    #[test]
    fn ipxe_is_told_with_the_firmware_that_it_announces() {
        let mut message = rom(MessageType::Discover, 7);
        message.option(OptionCode::UserClass, "iPXE");
        assert_eq!(ask(&mut server(|_| {}), &message).unwrap().asked, "DISCOVER, iPXE on x86-64 UEFI");
    }

    #[test]
    fn an_answer_that_waits_for_a_probe_is_told_with_its_question() {
        let mut server = server(|_| {});
        server.set_probing(1, Some(Duration::from_millis(200)));
        let packet = ingress::parse(&rom(MessageType::Discover, 0).encode()).unwrap();
        let (trace, mut parked) = (Trace::default(), Parked::default());
        let now = Time(1_700_000_000_000);
        let actions = server.handle(now, VIA, &packet);
        assert_eq!(parked.message(&trace, &server, 1, &packet, &actions), None);
        let holder = Mac([2, 0, 0, 0, 0, 9]);
        let actions = server.heard(now, 1, Ipv4Addr::new(10, 77, 0, 100), holder);
        let lines = parked.concluded(&server, 1, &actions);
        assert_eq!(lines[0].1.reason, Some(reason::CONFLICT));
        assert_eq!(lines[0].1.answered, "10.77.0.100 was to be offered, and 02:00:00:00:00:09 has it");
        let actions = server.conclude(now + Duration::from_millis(200), 1);
        let lines = parked.concluded(&server, 1, &actions);
        assert_eq!(lines[0].1.asked, "DISCOVER, x86 BIOS");
        assert_eq!(lines[0].1.answered, "OFFER 10.77.0.101: undionly.kpxe from 10.77.0.2");
    }

    #[test]
    fn a_question_whose_addresses_were_all_taken_ends_with_that() {
        let mut server = server(|_| {});
        server.set_probing(1, Some(Duration::from_millis(200)));
        let packet = ingress::parse(&rom(MessageType::Discover, 0).encode()).unwrap();
        let (trace, mut parked) = (Trace::default(), Parked::default());
        let now = Time(1_700_000_000_000);
        let actions = server.handle(now, VIA, &packet);
        parked.message(&trace, &server, 1, &packet, &actions);
        let mut lines = Vec::new();
        for last in [100, 101] {
            let actions = server.heard(now, 1, Ipv4Addr::new(10, 77, 0, last), Mac([2, 0, 0, 0, 0, last]));
            lines = parked.concluded(&server, 1, &actions);
        }
        let [(_, taken), (_, end)] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((taken.reason, end.reason), (Some(reason::CONFLICT), Some(reason::ADDRESSES_REST)));
        assert!(
            end.answered.starts_with("not answered: no address of 10.77.0.0/24 is free: some rest"),
            "{}",
            end.answered
        );
        assert!(parked.0.is_empty());
    }

    #[test]
    fn an_operating_system_is_of_no_boot_by_itself() {
        let message = egress::Message::request(MessageType::Discover, 7, MAC.parse().unwrap());
        assert_eq!(ask(&mut server(|_| {}), &message), None);
    }
}
