//! Questions to the core that racks answer with, and its replies. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use basalt_dns::{Answer, Name, Origin, Record, RecordType, Transport, Zones, answer};
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};

/// The types of records that zones have, without aliases.
const TYPES: [RecordType; 9] = [
    RecordType::A,
    RecordType::AAAA,
    RecordType::PTR,
    RecordType::MX,
    RecordType::TXT,
    RecordType::SRV,
    RecordType::NS,
    RecordType::CAA,
    RecordType::SSHFP,
];

/// A record of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) name: Name,
    /// The same name in lower case, without the final dot.
    pub(crate) owner: String,
    pub(crate) rtype: String,
    /// Seconds that a resolver may keep it.
    pub(crate) ttl: u32,
    /// Its data in the words of a zone file.
    pub(crate) data: String,
}

/// The end of a chain of aliases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The name has records.
    Answered,
    /// The name exists without records.
    NoData,
    /// There is no such name.
    NoName,
    /// The alias leads to this name, which is already in the chain; or the chain is too long.
    AliasLoop(String),
    /// The zone delegates this domain to these servers, as far as their addresses are known.
    Delegated(String, Vec<IpAddr>),
    /// The name is in no zone.
    Elsewhere(Name),
    /// The zone is not written.
    NotWritten(String),
}

/// The reply for one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The name is an alias.
    Alias(Told),
    /// The name is not an alias. It has these records.
    End(Ending, Vec<Told>),
}

/// Asks the zones for a name, like a client for which racks may ask other servers.
pub(crate) fn ask(zones: &Zones, name: &Name) -> Step {
    if let Reply::Answers(_, records) = reply(zones, name, RecordType::CNAME)
        && let Some(alias) = records.into_iter().find(|it| it.record_type() == RecordType::CNAME)
    {
        return Step::Alias(told(&alias));
    }
    let (mut found, mut code) = (Vec::new(), ResponseCode::NoError);
    for rtype in TYPES {
        match reply(zones, name, rtype) {
            Reply::Answers(of_type, records) => {
                code = of_type;
                found.extend(records.iter().map(told));
            }
            Reply::Elsewhere(servers) => return Step::End(elsewhere(zones, name, servers), Vec::new()),
        }
    }
    let ending = match (found.is_empty(), code) {
        (false, _) => Ending::Answered,
        (true, ResponseCode::NXDomain) => Ending::NoName,
        (true, _) => Ending::NoData,
    };
    Step::End(ending, found)
}

fn elsewhere(zones: &Zones, name: &Name, servers: Vec<IpAddr>) -> Ending {
    let cut =
        zones.iter().filter(|zone| zone.origin().zone_of(name)).find_map(|zone| match zone.origin_of(name) {
            Origin::Delegated(cut) => Some(cut),
            _ => None,
        });
    match cut {
        Some(cut) => Ending::Delegated(plain(&cut), servers),
        None => Ending::Elsewhere(name.clone()),
    }
}

enum Reply {
    Answers(ResponseCode, Vec<Record>),
    Elsewhere(Vec<IpAddr>),
}

fn reply(zones: &Zones, name: &Name, rtype: RecordType) -> Reply {
    let nothing = Reply::Answers(ResponseCode::ServFail, Vec::new());
    let mut query = Message::new(1, MessageType::Query, OpCode::Query);
    query.metadata.recursion_desired = true;
    query.add_query(Query::query(name.clone(), rtype));
    let Ok(query) = query.to_vec() else { return nothing };
    match answer(zones, &query, Transport::Tcp, true) {
        Answer::Reply(reply) => match Message::from_vec(&reply) {
            Ok(message) => Reply::Answers(message.metadata.response_code, message.answers),
            Err(_) => nothing,
        },
        Answer::Forward(question) => Reply::Elsewhere(question.servers().to_vec()),
        Answer::Secondary | Answer::Drop => nothing,
    }
}

fn told(record: &Record) -> Told {
    Told {
        owner: plain(&record.name),
        rtype: record.record_type().to_string(),
        ttl: record.ttl,
        data: record.data.to_string(),
        name: record.name.clone(),
    }
}

/// A name in lower case, without the final dot.
pub(crate) fn plain(name: &Name) -> String {
    name.to_ascii().trim_end_matches('.').to_ascii_lowercase()
}

/// The address of a reverse name.
pub(crate) fn address_of(name: &str) -> Option<IpAddr> {
    if let Some(octets) = name.strip_suffix(".in-addr.arpa") {
        let parsed = octets.split('.').map(|it| it.parse::<u8>().ok()).collect::<Option<Vec<_>>>()?;
        let octets: [u8; 4] = parsed.try_into().ok()?;
        let [a, b, c, d] = octets;
        return Some(Ipv4Addr::new(d, c, b, a).into());
    }
    let nibbles = name.strip_suffix(".ip6.arpa")?;
    let mut bits = 0_u128;
    let mut count = 0;
    for nibble in nibbles.rsplit('.') {
        let value = u8::from_str_radix(nibble, 16).ok().filter(|_| nibble.len() == 1 && count < 32)?;
        bits = bits << 4 | u128::from(value);
        count += 1;
    }
    (count == 32).then(|| Ipv6Addr::from_bits(bits).into())
}
