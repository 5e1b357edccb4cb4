//! All zones of a server.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hickory_proto::rr::Name;

use crate::name::{WireName, to_key};
use crate::records::rtype;
use crate::zone::Zone;

/// Zones by name. A copy shares the zones. To change a zone: copy this, insert the zone, and replace the old value by
/// the copy.
#[derive(Debug, Clone, Default)]
pub struct Zones {
    zones: HashMap<Box<[u8]>, Arc<Zone>>,
    /// Domains of other servers.
    others: HashSet<Box<[u8]>>,
    /// The number of labels of the longest name in both.
    deepest: usize,
}

impl Zones {
    /// Adds a zone. Returns the zone of the same name that it replaces.
    pub fn insert(&mut self, zone: Arc<Zone>) -> Option<Arc<Zone>> {
        self.deepest = self.deepest.max(zone.labels());
        self.zones.insert(zone.key().into(), zone)
    }

    /// Leaves a domain to other servers, even below a zone: that zone does not answer for names at or below the domain.
    pub fn leave(&mut self, domain: &Name) {
        self.deepest = self.deepest.max(usize::from(domain.num_labels()));
        self.others.insert(to_key(domain));
    }

    /// Removes a zone.
    pub fn remove(&mut self, origin: &Name) -> Option<Arc<Zone>> {
        self.zones.remove(&to_key(origin))
    }

    /// The zone with exactly this name.
    #[must_use]
    pub fn get(&self, origin: &Name) -> Option<&Arc<Zone>> {
        self.zones.get(&to_key(origin))
    }

    /// The zone of this name, in wire form and lower case.
    pub(crate) fn of_key(&self, key: &[u8]) -> Option<&Arc<Zone>> {
        self.zones.get(key)
    }

    /// The zones, in any order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Zone>> {
        self.zones.values()
    }

    /// The zone that answers for a name in lower case: the one with the longest matching suffix. For the DS records of
    /// an origin it is the parent zone, if that is here (RFC 4035 §3.1.4.1).
    pub(crate) fn find(&self, name: &WireName, rtype: u16) -> Option<&Zone> {
        let longest = self.longest(name, name.labels())?;
        if rtype == rtype::DS && longest.labels() == name.labels() && name.labels() > 0 {
            return self.longest(name, name.labels() - 1).or(Some(longest));
        }
        Some(longest)
    }

    fn longest(&self, name: &WireName, labels: usize) -> Option<&Zone> {
        let labels = labels.min(self.deepest);
        for labels in (0..=labels).rev() {
            let suffix = name.last(labels);
            if let Some(zone) = self.zones.get(suffix) {
                return Some(zone);
            }
            if !self.others.is_empty() && self.others.contains(suffix) {
                return None;
            }
        }
        None
    }
}

impl FromIterator<Arc<Zone>> for Zones {
    fn from_iter<I: IntoIterator<Item = Arc<Zone>>>(zones: I) -> Self {
        let mut all = Self::default();
        zones.into_iter().for_each(|zone| drop(all.insert(zone)));
        all
    }
}
