//! One authoritative zone, and what it says of a name (RFC 1034 §4.3.2, RFC 4592).

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use hickory_proto::rr::rdata::SOA;
use hickory_proto::rr::{Name, RData, Record};

use crate::computed::Computed;
use crate::name::{WireName, count_labels, parent, to_key, to_name};
use crate::records::{RrSet, rtype};

mod build;

pub use build::{BadZone, Reason};

/// The start of authority of a zone (RFC 1035 §3.3.13).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Soa {
    /// The zone's own name.
    pub origin: Name,
    /// The primary server.
    pub primary: Name,
    /// The mailbox of the person in charge, as a name.
    pub mailbox: Name,
    /// The version of the zone (RFC 1982).
    pub serial: u32,
    /// Seconds between a secondary's questions.
    pub refresh: i32,
    /// Seconds until a secondary asks again after a failure.
    pub retry: i32,
    /// Seconds after which a secondary without a primary no longer answers.
    pub expire: i32,
    /// Seconds for which a resolver may remember that a name or type does not exist (RFC 2308 §4).
    pub minimum: u32,
    /// Seconds for which this record may be kept.
    pub ttl: u32,
}

impl Soa {
    /// The start of authority of `origin`, with times that suit a zone whose secondaries hear NOTIFY.
    #[must_use]
    pub fn new(origin: Name, serial: u32) -> Self {
        let primary = origin.clone();
        let mailbox = Name::from_ascii("hostmaster").and_then(|it| it.append_domain(&origin));
        Self {
            mailbox: mailbox.unwrap_or_else(|_| origin.clone()),
            origin,
            primary,
            serial,
            refresh: 600,
            retry: 1800,
            expire: 604_800,
            minimum: 30,
            ttl: 30,
        }
    }

    fn record(&self) -> Record {
        let data = SOA::new(
            self.primary.clone(),
            self.mailbox.clone(),
            self.serial,
            self.refresh,
            self.retry,
            self.expire,
            self.minimum,
        );
        Record::from_rdata(self.origin.clone(), self.ttl, RData::SOA(data))
    }
}

/// The RRsets of one name, ordered by type. A name without any is an empty non-terminal.
type Node = Box<[RrSet]>;

/// An authoritative zone. It does not change; a new one takes its place.
#[derive(Debug)]
pub struct Zone {
    origin: Name,
    key: Box<[u8]>,
    labels: usize,
    serial: u32,
    /// By name in lower case.
    nodes: HashMap<Box<[u8]>, Node>,
    /// Labels of the longest name.
    deepest: usize,
    /// A name below the origin has NS records.
    has_cuts: bool,
    /// The SOA as negative answers carry it (RFC 2308 §3).
    negative: RrSet,
    computed: Vec<Computed>,
    /// The number of answers so far, if each answer begins with another record. `None`: the order is fixed.
    turn: Option<AtomicUsize>,
}

/// The part of a zone that answers for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Records of this very name.
    Records,
    /// An address of a range ([`Computed`]).
    Computed,
    /// Names below it: it has no records itself (RFC 4592 §2.2.2).
    NamesBelow,
    /// The wildcard of this name.
    Wildcard(Name),
    /// The zone of this name, which other servers have.
    Delegated(Name),
    /// Nothing: there is no such name.
    Nothing,
}

/// The answer of a zone for a name and type.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// It has records of this type.
    Records(Cow<'a, RrSet>),
    /// It is an alias.
    Alias(&'a RrSet),
    /// It belongs to another zone, which begins at a name of so many labels.
    Cut(usize, &'a RrSet),
    /// The name exists, without such records.
    NoData,
    /// There is no such name.
    NoName,
}

impl Zone {
    /// A zone of these records, which are all but the SOA. The NS records of the origin may be missing.
    ///
    /// # Errors
    /// A record that cannot stand in this zone.
    pub fn new(soa: Soa, records: Vec<Record>) -> Result<Self, BadZone> {
        build::zone(&soa, &records)
    }

    /// Adds names that are computed from addresses at each query. A record has precedence over a computed name, and a
    /// computed name over a wildcard.
    #[must_use]
    pub fn computed(mut self, names: Computed) -> Self {
        self.computed.push(names);
        self
    }

    /// Each answer begins with another record of its RRset, so that clients share out servers of the same name.
    #[must_use]
    pub fn shuffled(mut self) -> Self {
        self.turn = Some(AtomicUsize::new(0));
        self
    }

    /// The name of the zone.
    #[must_use]
    pub fn origin(&self) -> &Name {
        &self.origin
    }

    /// The serial of its SOA.
    #[must_use]
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// How many records it has, without the SOA. Computed names have none.
    #[must_use]
    pub fn records(&self) -> usize {
        self.sets().map(|(_, set)| set.rdatas().count()).sum()
    }

    /// The origin in wire form and lower case.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Labels of the origin.
    pub(crate) fn labels(&self) -> usize {
        self.labels
    }

    /// The SOA as the zone has it at its origin.
    pub(crate) fn soa(&self) -> Option<&RrSet> {
        self.exact(&self.key, rtype::SOA)
    }

    /// All RRsets but the SOA, each with its owner. The order is the same each time.
    pub(crate) fn sets(&self) -> impl Iterator<Item = (&[u8], &RrSet)> {
        let all = self.nodes.iter().flat_map(|(owner, node)| node.iter().map(move |set| (&**owner, set)));
        all.filter(|(_, set)| set.rtype != rtype::SOA)
    }

    /// The SOA of negative answers.
    pub(crate) fn negative(&self) -> &RrSet {
        &self.negative
    }

    /// The record that the next answer begins with.
    pub(crate) fn turn(&self) -> usize {
        self.turn.as_ref().map_or(0, |turn| turn.fetch_add(1, Ordering::Relaxed))
    }

    /// Records of exactly this name and type, whether or not they are below a zone cut: for glue.
    pub(crate) fn exact(&self, key: &[u8], rtype: u16) -> Option<&RrSet> {
        of_type(self.nodes.get(key)?, rtype)
    }

    /// Answers for a name at or below the origin, in lower case.
    pub(crate) fn lookup(&self, name: &WireName, rtype: u16) -> Found<'_> {
        if let Some(cut) = self.cut_above(name, rtype) {
            return cut;
        }
        let node = self.nodes.get(name.as_bytes());
        if let Some(node) = node.filter(|node| !node.is_empty()) {
            return in_node(node, rtype);
        }
        match self.compute(name, rtype) {
            Some(found) => found,
            None if node.is_some() => Found::NoData,
            None => self.wildcard(name, rtype),
        }
    }

    /// The part of the zone that answers for a name, whatever the type of the query.
    #[must_use]
    pub fn origin_of(&self, name: &Name) -> Origin {
        let Some(name) = WireName::of(&to_key(name)) else { return Origin::Nothing };
        if let Some(Found::Cut(labels, _)) = self.cut_above(&name, rtype::ANY) {
            return Origin::Delegated(to_name(name.last(labels)));
        }
        let node = self.nodes.get(name.as_bytes());
        if node.is_some_and(|node| !node.is_empty()) {
            return Origin::Records;
        }
        match self.compute(&name, rtype::ANY) {
            Some(Found::Records(_)) => Origin::Computed,
            Some(_) => Origin::NamesBelow,
            None if node.is_some() => Origin::NamesBelow,
            None => self.star(&name).map_or(Origin::Nothing, |(star, _)| Origin::Wildcard(to_name(star))),
        }
    }

    /// The referral, if the name is at or below a zone cut. The parent answers for the DS records of a cut (RFC 4035 §3.1.4.1).
    fn cut_above(&self, name: &WireName, rtype: u16) -> Option<Found<'_>> {
        if !self.has_cuts {
            return None;
        }
        for labels in self.labels + 1..=name.labels() {
            let node = self.nodes.get(name.last(labels))?;
            if let Some(servers) = of_type(node, rtype::NS) {
                let of_parent = labels == name.labels() && rtype == rtype::DS;
                return (!of_parent).then_some(Found::Cut(labels, servers));
            }
        }
        None
    }

    /// The answer if the name is computed.
    fn compute(&self, name: &WireName, rtype: u16) -> Option<Found<'_>> {
        let mut exists = None;
        for names in &self.computed {
            match names.find(self, name, name.labels()) {
                Some(Some(set)) if set.rtype == rtype || rtype == rtype::ANY => {
                    return Some(Found::Records(Cow::Owned(set)));
                }
                Some(_) => exists = Some(Found::NoData),
                None => {}
            }
        }
        exists
    }

    /// The records of the wildcard below the closest encloser (RFC 4592 §3.3.1).
    fn wildcard(&self, name: &WireName, rtype: u16) -> Found<'_> {
        self.star(name).map_or(Found::NoName, |(_, node)| in_node(node, rtype))
    }

    /// The wildcard below the closest encloser, with its name.
    fn star(&self, name: &WireName) -> Option<(&[u8], &Node)> {
        // No name of the zone has more labels, but a computed one may.
        let deepest = if self.computed.is_empty() { self.deepest } else { usize::MAX };
        for labels in (self.labels..name.labels().min(deepest.saturating_add(1))).rev() {
            let encloser = name.last(labels);
            let computed = || self.computed.iter().any(|it| it.find(self, name, labels).is_some());
            if !self.nodes.contains_key(encloser) && !computed() {
                continue;
            }
            let mut key = [0; 257];
            let end = encloser.len() + 2;
            if let Some(key) = key.get_mut(..end)
                && let Some((star, rest)) = key.split_at_mut_checked(2)
            {
                star.copy_from_slice(b"\x01*");
                rest.copy_from_slice(encloser);
            }
            return self.nodes.get_key_value(key.get(..end)?).map(|(star, node)| (&**star, node));
        }
        None
    }
}

fn of_type(node: &[RrSet], rtype: u16) -> Option<&RrSet> {
    node.iter().find(|set| set.rtype == rtype)
}

/// The answer of a name with these records. To ANY it answers one RRset (RFC 8482 §4.1).
fn in_node(node: &[RrSet], rtype: u16) -> Found<'_> {
    if let Some(set) = of_type(node, rtype) {
        return Found::Records(Cow::Borrowed(set));
    }
    if rtype == rtype::ANY {
        return node.first().map_or(Found::NoData, |set| Found::Records(Cow::Borrowed(set)));
    }
    of_type(node, rtype::CNAME).map_or(Found::NoData, Found::Alias)
}
