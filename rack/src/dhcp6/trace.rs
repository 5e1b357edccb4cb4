//! DHCPv6 messages in the trace of a boot: each request with its answer, or with the reason why there was none.

use std::net::IpAddr;

use basalt_dhcp::v6::ingress::{self, Packet};
use basalt_dhcp::v6::{
    Action, Arrival, Event, Ignored, Refusal, Server, boot_client, hardware_address, infiniband,
};
use basalt_dhcp::{BootClient, Mac};
use dhcproto::v6::{MessageType, OptionCode};
use ipnet::IpNet;

use crate::dhcp::trace::{asker, client_in_words, replaced};
use crate::trace::{Asker, Entry, Trace, reason};

/// The trace line of a message, and its MAC; `None` if it belongs to no boot.
pub(super) fn message(
    trace: &Trace,
    server: &Server,
    via: Arrival,
    packet: &Packet,
    actions: &[Action],
) -> Option<(Mac, Entry)> {
    let client = boot_client(packet);
    if let Some(heard) = infiniband(packet) {
        // An InfiniBand client gets addresses like any other, so only its boot is traced.
        client?;
        let question = question(packet, client);
        let question = Entry { asked: format!("{}, {heard}", question.asked).into(), ..question };
        let lacks = (reason::INFINIBAND, "racks boot no machines over InfiniBand".to_owned());
        return Some((heard.stand_in?, answered(question, Some(lacks), server, actions)?));
    }
    let mac = hardware_address(packet, via.from)?;
    let renews = matches!(packet.kind, MessageType::Renew | MessageType::Rebind | MessageType::Confirm);
    if client.is_none() && (renews || !trace.follows(mac)) {
        return None;
    }
    let lacks = client.map(|_| match server.other_architecture(packet, via.from) {
        Some(other) => (reason::OTHER_ARCHITECTURE, other.to_string()),
        None => (reason::ARCHITECTURE, "the subnet boots nothing of this architecture".to_owned()),
    });
    Some((mac, answered(question(packet, client), lacks, server, actions)?))
}

fn question(packet: &Packet, client: Option<BootClient>) -> Entry {
    let mut asked = kind(packet.kind).to_owned();
    asked.push_str(&client_in_words(client));
    if !packet.relays.is_empty() {
        asked.push_str(", by a relay");
    }
    let asker = asker(client);
    let opens = asker != Asker::System && packet.kind == MessageType::Solicit;
    Entry { service: "dhcp6", asker, asked: asked.into(), opens, ..Entry::default() }
}

/// The answer as text. `lacks` is the reason for a missing boot file, for a boot client that got none.
fn answered(
    entry: Entry,
    lacks: Option<(&'static str, String)>,
    server: &Server,
    actions: &[Action],
) -> Option<Entry> {
    if let Some(Action::Report(Event::Ignored { reason, .. })) = actions.first() {
        return ignored(entry, reason);
    }
    let refused = actions.iter().find_map(|action| match action {
        Action::Report(Event::Refused { reason, .. }) => Some(*reason),
        _ => None,
    });
    let bytes = actions.iter().find_map(|action| match action {
        Action::Send { bytes, .. } => Some(bytes),
        _ => None,
    })?;
    let Some((reply, addresses)) = reply(bytes) else {
        return Some(Entry { answered: "answered by its relay".into(), ..entry });
    };
    let mut answered = match addresses.first() {
        Some(address) => format!("{} {address}", kind(reply.kind)),
        None => format!("{} no address", kind(reply.kind)),
    };
    let mut why = None;
    if let Some(words) = refused {
        answered.push_str(&format!(": {words}"));
        why = Some(refusal(words));
    } else if let Some(url) = reply.options.raw(OptionCode::OptBootfileUrl) {
        let url = String::from_utf8_lossy(url);
        answered.push_str(&format!(": {url}"));
        let subnet =
            |address: &IpAddr| server.config().subnets.iter().find(|it| IpNet::V6(it.cidr).contains(address));
        if let Some(subnet) = addresses.first().and_then(subnet) {
            answered.push_str(&replaced(&subnet.boot, &url));
        }
    } else if let Some((code, words)) = lacks {
        answered.push_str(&format!(", and nothing to boot: {words}"));
        why = Some(code);
    }
    let settled = addresses.first().filter(|_| reply.kind == MessageType::Reply);
    Some(Entry { answered: answered.into(), reason: why, address: settled.copied(), ..entry })
}

/// A reply sent directly to its client, and the addresses in it.
fn reply(bytes: &[u8]) -> Option<(Packet, Vec<IpAddr>)> {
    let reply = ingress::parse(bytes).ok()?;
    if !matches!(reply.kind, MessageType::Advertise | MessageType::Reply) {
        return None;
    }
    let addresses = reply.associations.iter().flat_map(|it| &it.addresses);
    let addresses = addresses.map(|address| IpAddr::V6(*address)).collect();
    Some((reply, addresses))
}

fn ignored(entry: Entry, ignored: &Ignored) -> Option<Entry> {
    let code = match ignored {
        Ignored::NotARequest(_) => return None,
        Ignored::Identifiers(_) | Ignored::Unicast => reason::MALFORMED,
        Ignored::NoSubnet(_) => reason::NO_SUBNET,
        Ignored::UnknownClient => reason::UNKNOWN_CLIENT,
        Ignored::OtherServer => reason::OTHER_SERVER,
        Ignored::NotOurs => reason::NOT_OURS,
        Ignored::Withheld => reason::WITHHELD,
        Ignored::Unwritable => reason::DISK,
    };
    Some(Entry { answered: format!("not answered: {ignored}").into(), reason: Some(code), ..entry })
}

const fn refusal(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NoFreeAddress(_) | Refusal::NoRoom(_) => reason::NO_FREE_ADDRESS,
        Refusal::SomeRest(_) => reason::ADDRESSES_REST,
        Refusal::NoDynamic(_) => reason::NO_DYNAMIC,
        Refusal::TooMany => reason::TOO_MANY_ADDRESSES,
        Refusal::Withheld => reason::WITHHELD,
        Refusal::Asked(_) => reason::ADDRESS_REFUSED,
    }
}

const fn kind(kind: MessageType) -> &'static str {
    match kind {
        MessageType::Solicit => "SOLICIT",
        MessageType::Advertise => "ADVERTISE",
        MessageType::Request => "REQUEST",
        MessageType::Confirm => "CONFIRM",
        MessageType::Renew => "RENEW",
        MessageType::Rebind => "REBIND",
        MessageType::Reply => "REPLY",
        MessageType::Release => "RELEASE",
        MessageType::Decline => "DECLINE",
        MessageType::InformationRequest => "INFORMATION-REQUEST",
        _ => "message",
    }
}
