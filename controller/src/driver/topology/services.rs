//! The state of a rack's services, from the rack's reports about them and about itself. A rack reports only changes since its start. It
//! does not withdraw a report about a service that it no longer has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use basalt_api::kinds::{RackService, SecondaryState, ServiceState};
use basalt_api::values::Timestamp;

use crate::racks::observed::{Health, Hello, Observed};

/// How long the services of an address that the rack no longer has are shown as stopped. After that, the rack counts as renumbered.
const RENUMBERED: Duration = Duration::from_secs(3600);

/// A report of a rack, with the fact's id. Later facts have higher ids.
#[derive(Clone, Debug)]
pub struct Said<T> {
    /// The id of the fact.
    pub id: i64,
    /// When the region received it.
    pub stored_at: Timestamp,
    /// The content of the report.
    pub what: T,
}

/// A rack's link to a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The region's address, `HOST:PORT`.
    pub address: String,
    /// When the state was stored.
    pub since: Timestamp,
    /// The reason why the link is down; `None`: it is up.
    pub problem: Option<String>,
}

/// The reports of a rack since its last start. After a start, a rack repeats the reports that still hold.
fn since_start(said: &[Said<Health>]) -> impl Iterator<Item = &Said<Health>> {
    let started = said.iter().filter(|it| it.what.service == basalt_proto::STARTED).map(|it| it.id).max();
    said.iter().filter(move |it| started.is_none_or(|started| it.id > started))
}

/// The links to these regions. A rack also dials regions that have gone for good; the caller leaves those out.
#[must_use]
pub fn links(said: &[Said<Health>], regions: &BTreeSet<String>) -> Vec<Link> {
    all_links(said).filter(|link| regions.contains(&link.address)).collect()
}

/// The links to all regions that the rack dials, in order of address.
pub fn all_links(said: &[Said<Health>]) -> impl Iterator<Item = Link> {
    let mut links: BTreeMap<&str, Link> = BTreeMap::new();
    for Said { stored_at, what, .. } in since_start(said) {
        let Some(address) = what.service.strip_prefix(basalt_proto::LINK) else { continue };
        let problem = (!what.ok).then(|| what.message.to_string());
        // The rack and the region each report that a link is down. The first report has the time.
        let is_same = links.get(address).is_some_and(|link| link.problem.is_some() && problem.is_some());
        let before = links.get(address).filter(|_| is_same).map(|link| link.since);
        let link = Link { address: address.to_owned(), since: before.unwrap_or(*stored_at), problem };
        links.insert(address, link);
    }
    links.into_values()
}

/// The state of each service, from the last report about it. Links are left out: see [`links`].
#[must_use]
pub fn services(
    said: &[Said<Health>],
    hello: Option<&Said<Hello>>,
    now: Timestamp,
) -> BTreeMap<String, RackService> {
    let reached: Vec<IpAddr> = hello.map(|it| it.what.reached().collect()).unwrap_or_default();
    let mut services = BTreeMap::new();
    for Said { id, stored_at, what } in since_start(said) {
        // Free addresses, and places for undeclared machines, are the normal case: only their lack is shown.
        let is_no_news = what.ok
            && (what.service.starts_with(basalt_proto::ADDRESSES)
                || &*what.service == basalt_proto::ENLISTMENT);
        let has_words =
            [basalt_proto::TIME, basalt_proto::SECONDARY].iter().any(|it| what.service.starts_with(it))
                || &*what.service == basalt_proto::PROXY;
        let is_gone = has_words && what.message.is_empty();
        if is_gone {
            services.remove(&*what.service);
        }
        if is_no_news || is_gone || what.service.starts_with(basalt_proto::LINK) {
            continue;
        }
        let mut service =
            RackService::new(if what.ok { ServiceState::Running } else { ServiceState::Stopped });
        service.message = Some(what.message.to_string()).filter(|it| !it.is_empty());
        // A rack of a version that does not report its start does not withdraw reports about former addresses.
        if hello.is_some_and(|hello| *id < hello.id) && is_away(&what.service, &reached) {
            if now.duration_since(*stored_at) >= RENUMBERED.try_into().unwrap_or_default() {
                continue;
            }
            service = RackService::new(ServiceState::Stopped);
            service.message = Some("the rack does not have this address any more".to_owned());
        }
        services.insert(what.service.to_string(), service);
    }
    if let Some(cannot_write) = hello.map(|it| &it.what.cannot_write).filter(|it| !it.is_empty()) {
        let mut disk = RackService::new(ServiceState::Stopped);
        disk.message = Some(cannot_write.to_string());
        services.insert(basalt_proto::DISK.to_owned(), disk);
    }
    services
}

/// The addresses, or addresses with ports, at which a rack runs a service whose name begins with `kind`, from the last report about each.
/// Reports from before the rack's last start count too: while the rack starts, the service will soon be there again.
#[must_use]
pub fn answering<A: FromStr + Ord>(said: &[Said<Health>], kind: &str) -> BTreeSet<A> {
    let mut at = BTreeMap::new();
    for Said { what, .. } in said {
        if let Some(address) = what.service.strip_prefix(kind).and_then(|it| it.parse().ok()) {
            at.insert(address, what.ok);
        }
    }
    at.into_iter().filter(|(_, ok)| *ok).map(|(address, _)| address).collect()
}

/// True if the rack serves the caching proxy, by its last report. As in [`answering`], reports from before its last start count.
#[must_use]
pub fn serves_proxy(said: &[Said<Health>]) -> bool {
    let last = said.iter().rfind(|it| &*it.what.service == basalt_proto::PROXY);
    last.is_some_and(|it| it.what.ok && !it.what.message.is_empty())
}

/// The report of a rack about a secondary of the DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyReport {
    /// The state of its copies: the worst one, if it has several zones.
    pub state: SecondaryState,
    /// The serial of its copy, if it has one zone.
    pub serial: Option<u32>,
    /// When it last answered.
    pub answered_at: Option<Timestamp>,
    /// The reason why a copy is not current.
    pub problem: Option<String>,
}

/// The last report of a rack about each secondary, by name. Withdrawn reports are left out.
#[must_use]
pub fn copies(said: &[Said<Health>]) -> BTreeMap<String, CopyReport> {
    let mut copies = BTreeMap::new();
    for Said { stored_at, what, .. } in since_start(said) {
        let Some(name) = what.service.strip_prefix(basalt_proto::SECONDARY) else { continue };
        let ago = what.answered_ago_ms.map(Duration::from_millis);
        let state = match (what.ok, ago) {
            (true, _) => SecondaryState::Current,
            (false, Some(Duration::ZERO)) => SecondaryState::Behind,
            (false, _) => SecondaryState::Silent,
        };
        let answered_at = ago.and_then(|ago| stored_at.checked_sub(ago).ok());
        let problem = (!what.ok).then(|| what.message.to_string());
        let report = CopyReport { state, serial: what.serial, answered_at, problem };
        match what.ok && what.message.is_empty() {
            true => copies.remove(name),
            false => copies.insert(name.to_owned(), report),
        };
    }
    copies
}

/// True for a service at an address that is not one of these.
fn is_away(service: &str, addresses: &[IpAddr]) -> bool {
    let at = ["tftp ", "http ", basalt_proto::DNS, "ntp "]
        .iter()
        .find_map(|kind| service.strip_prefix(kind)?.parse::<IpAddr>().ok());
    let with_port = service.strip_prefix(basalt_proto::SYSLOG).and_then(|at| at.parse::<SocketAddr>().ok());
    let at = at.or(with_port.map(|at| at.ip()));
    at.is_some_and(|at| !addresses.contains(&at))
}

/// A rack's report that no address of a subnet is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// The use of the addresses, with advice.
    pub message: String,
    /// When the rack reported it.
    pub since: Timestamp,
}

/// The CIDR of the subnet, if the observation is such a report.
#[must_use]
pub fn short(observed: &Observed, stored_at: Timestamp) -> Option<(String, Short)> {
    let Observed::Health(Health { service, ok: false, message, .. }) = observed else { return None };
    let cidr = service.strip_prefix(basalt_proto::ADDRESSES)?;
    Some((cidr.to_owned(), Short { message: message.to_string(), since: stored_at }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millisecond(second * 1000).unwrap()
    }

    /// The n-th fact, one second after the one before.
    fn said(id: i64, service: &str, message: &str) -> Said<Health> {
        let what = Health::new(service.into(), message.is_empty(), message.into());
        Said { id, stored_at: at(id), what }
    }

    fn hello(id: i64, address: &str, cannot_write: &str) -> Said<Hello> {
        let (addresses, cannot_write) = (vec![address.into()], cannot_write.into());
        Said { id, stored_at: at(id), what: Hello { addresses, cannot_write, ..Hello::default() } }
    }

    fn names(services: &BTreeMap<String, RackService>) -> Vec<&str> {
        services.keys().map(String::as_str).collect()
    }

    #[test]
    fn what_a_rack_said_before_it_started_is_so_no_more() {
        let before =
            || [said(1, "dhcp eth1", "eth1 is gone"), said(2, "addresses 10.77.0.0/24", "none is free")];
        assert_eq!(names(&services(&before(), None, at(9))), ["addresses 10.77.0.0/24", "dhcp eth1"]);
        let since = [said(3, basalt_proto::STARTED, ""), said(4, "dhcp eth0", "")];
        let all = [&before()[..], &since].concat();
        assert_eq!(names(&services(&all, None, at(9))), ["dhcp eth0"]);
    }

    #[test]
    fn an_ntp_server_is_told_of_until_it_is_asked_no_more() {
        let health = |message: &str| Health::new("time a".into(), true, message.into());
        let said = |id, message| Said { id, stored_at: at(id), what: health(message) };
        let told = services(&[said(1, "does not answer")], None, at(9));
        assert_eq!(told["time a"].state, ServiceState::Running);
        assert_eq!(told["time a"].message.as_deref(), Some("does not answer"));
        assert!(services(&[said(1, "does not answer"), said(2, "")], None, at(9)).is_empty());
    }

    #[test]
    fn a_secondary_is_told_of_until_it_is_declared_no_more() {
        let name = "secondary lab.example ns1";
        let said = |id, ok, message: &str| {
            let what = Health::new(name.into(), ok, message.into());
            Said { id, stored_at: at(id), what }
        };
        let all = [
            said(1, true, "it holds the zone as it is"),
            said(2, false, "192.0.2.53:53: it does not answer"),
            said(3, true, ""),
        ];
        assert_eq!(services(&all[..1], None, at(9))[name].state, ServiceState::Running);
        assert_eq!(services(&all[..2], None, at(9))[name].state, ServiceState::Stopped);
        assert!(services(&all, None, at(9)).is_empty());
    }

    #[test]
    fn a_proxy_is_served_while_the_rack_says_where_and_is_no_service_when_it_is_switched_off() {
        let said = |id, ok, message: &str| {
            let what = Health::new("proxy".into(), ok, message.into());
            Said { id, stored_at: at(id), what }
        };
        let (serves, lacks, off) = (
            said(1, true, "Squid serves 10.77.0.2:8000"),
            said(2, false, "not installed"),
            said(3, true, ""),
        );
        assert!(serves_proxy(std::slice::from_ref(&serves)));
        let lacking = [serves.clone(), lacks];
        assert!(!serves_proxy(&lacking));
        assert_eq!(services(&lacking, None, at(9))["proxy"].state, ServiceState::Stopped);
        assert!(!serves_proxy(&[serves.clone(), off.clone()]));
        assert!(services(&[serves, off], None, at(9)).is_empty());
    }

    #[test]
    fn a_service_of_an_address_that_is_gone_has_stopped_and_is_forgotten_when_the_host_was_renumbered() {
        let all = || vec![said(1, "tftp 10.77.0.2", ""), said(2, "http 10.77.0.7", "")];
        let moved = hello(3, "10.77.0.7/24", "");
        let soon = services(&all(), Some(&moved), at(3600));
        assert_eq!(names(&soon), ["http 10.77.0.7", "tftp 10.77.0.2"]);
        assert_eq!(soon["tftp 10.77.0.2"].state, ServiceState::Stopped);
        assert!(soon["tftp 10.77.0.2"].message.as_deref().is_some_and(|it| it.contains("any more")));
        assert_eq!(names(&services(&all(), Some(&moved), at(3601))), ["http 10.77.0.7"]);
    }

    #[test]
    fn a_region_that_does_not_answer_is_told_of_while_it_is_one_of_the_database() {
        let all = [
            said(1, "link 10.0.0.9:5250", "refused"),
            said(2, basalt_proto::STARTED, ""),
            said(3, "link 10.0.0.1:5250", ""),
            said(4, "link 10.0.0.2:5250", ""),
            said(5, "link 10.0.0.3:5250", "no route"),
            said(6, "link 10.0.0.1:5250", "refused"),
            said(7, "link 10.0.0.1:5250", "the link ended"),
        ];
        let regions = ["10.0.0.1:5250", "10.0.0.2:5250", "10.0.0.9:5250"].map(str::to_owned).into();
        let link = |address: &str, second, problem: Option<&str>| Link {
            address: address.to_owned(),
            since: at(second),
            problem: problem.map(str::to_owned),
        };
        let wanted = [link("10.0.0.1:5250", 6, Some("the link ended")), link("10.0.0.2:5250", 4, None)];
        assert_eq!(links(&all, &regions), wanted);
        assert!(services(&all, None, at(9)).is_empty());
    }

    #[test]
    fn a_disk_that_takes_nothing_is_told_of_whatever_the_last_fact_said() {
        let full = hello(2, "10.77.0.2/24", "leases cannot be written: no space");
        let all = services(&[said(1, "disk", "")], Some(&full), at(9));
        assert_eq!(all["disk"].state, ServiceState::Stopped);
        assert_eq!(all["disk"].message.as_deref(), Some("leases cannot be written: no space"));
        let again = services(&[said(3, "disk", "")], Some(&hello(4, "10.77.0.2/24", "")), at(9));
        assert_eq!(again["disk"].state, ServiceState::Running);
    }
}
