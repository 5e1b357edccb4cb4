//! The reconciliation of a rack: writes the concerns of all racks and its own ones, and its status from its answers.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use basalt_api::kinds::{
    CachedImage, ConcernState, Condition, ConditionStatus, RackCache, RackLeases, RackSpec, RackStatus,
    ServiceState,
};
use basalt_api::plan::{PlanReport, Wait};
use basalt_api::values::{RackId, Sha256, Timestamp};
use basalt_db::{Object, Requeue, StoreError, SubnetLeases, WorkLease};

use crate::driver::context::Driver;
use crate::driver::reconcile::{discovery, strangers};
use crate::driver::status::to_json;
use crate::driver::stored::spec;
use crate::driver::topology::estate::Image;
use crate::driver::topology::network::Net;
use crate::driver::topology::services::{self, Link, Said};
use crate::racks::observed::{Cache, Observed};

/// The interval at which a rack is reconciled. A Hello wakes it at once.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The interval at which a rack in deletion is reconciled. Its messages wake it earlier.
const LET_GO: Duration = Duration::from_secs(1);
/// How long a connected rack in deletion may take to stop leasing, in seconds.
const PATIENCE: i64 = 10;
/// The interval at which the status of a connected rack gets a new `last_seen`, in seconds. Each new status is a row, a change and
/// an event.
const SEEN_ANEW: i64 = 60;

/// Reconciles one rack.
///
/// # Errors
/// Fails if the database fails, or if the lease is over.
pub async fn reconcile(driver: &Driver, lease: &WorkLease) -> Result<Requeue, StoreError> {
    let Some(object) = driver.store.get_by_uid(lease.uid).await? else { return Ok(Requeue::WhenWoken) };
    if let Some(since) = object.deletion_requested_at {
        if lets_go(driver, RackId::from(object.uid), since).await? {
            return Ok(Requeue::After(LET_GO));
        }
        driver.store.revoke(RackId::from(object.uid)).await?;
        driver.store.finalise(object.uid).await?;
        driver.written.forget(RackId::from(object.uid));
        // Wake the other racks: they take over its address blocks.
        driver.store.enqueue_kind("Rack").await?;
        return Ok(Requeue::WhenWoken);
    }
    // If its spec cannot be read, the rack is in no estate, and gets the error here.
    spec::<RackSpec>(&object)?;
    let estate = driver.estate().await?;
    let uid = RackId::from(object.uid);
    if let Some(rack) = estate.racks.iter().find(|rack| rack.uid == uid) {
        driver.written.write(&driver.store, &driver.topology, &driver.meters, rack).await?;
    }
    // An entry or a zone that cannot be read keeps no rack from its own concerns.
    driver.common.write(&driver.store, &driver.topology, &driver.meters).await?;
    let now = driver.store.now().await?;
    if let Some(rack) = estate.racks.iter().find(|rack| rack.uid == uid) {
        discovery::note(driver, &estate, rack, now).await?;
    }
    let has_more = strangers::note(driver, now).await?;
    let (status, _) = status(driver, &object, now).await?;
    driver.write_status(lease, object.generation, &to_json(&status)?).await?;
    Ok(Requeue::After(if has_more { Duration::ZERO } else { LOOK_AGAIN }))
}

/// True if a rack in deletion must still report: while it is connected, it gets the order to lease nothing, and reports its leases. A rack
/// that is disconnected or does not answer is not waited for; its blocks are kept until its longest lease has ended.
async fn lets_go(driver: &Driver, rack: RackId, since: Timestamp) -> Result<bool, StoreError> {
    let patience = driver.store.now().await?.duration_since(since).as_secs() < PATIENCE;
    if driver.sessions.since(rack).is_none() || !patience || !driver.store.has_blocks(rack).await? {
        return Ok(false);
    }
    let estate = driver.estate().await?;
    if let Some(rack) = estate.racks.iter().find(|seen| seen.uid == rack) {
        driver.written.write(&driver.store, &driver.topology, &driver.meters, rack).await?;
    }
    driver.store.has_blocks(rack).await
}

/// The answer of `explain`: the state of the rack, and the regions that it cannot reach.
///
/// # Errors
/// Fails if the database does not answer.
pub(crate) async fn report(
    driver: &Driver,
    object: &Object,
    now: Timestamp,
) -> Result<PlanReport, StoreError> {
    let (status, silent) = status(driver, object, now).await?;
    let ready = status.common.condition(Condition::READY);
    let message = ready.map(|ready| ready.message.clone()).unwrap_or_default();
    let lacks = |cause: &str, message: String, since, human: String| Wait {
        cause: cause.to_owned(),
        message,
        since,
        deadline: None,
        human: Some(human),
        remedy: None,
        rule: None,
    };
    let mut waits = Vec::new();
    if !status.connected {
        let to_do = format!("see that basalt-rack runs on the host of {}, and reaches a region", object.name);
        let since = status.last_seen.unwrap_or(object.created_at);
        waits.push(lacks("RackAway", message.clone(), since, to_do));
    }
    for Link { address, since, problem } in silent {
        let message = format!("region {address} does not answer it ({})", problem.unwrap_or_default());
        let to_do = format!(
            "start that region, or let {} reach it; if it is gone for good, take it out of --join-urls of the others",
            object.name
        );
        waits.push(lacks("RegionSilent", message, since, to_do));
    }
    let ports = driver.store.infiniband_heard(Some(&object.name)).await?;
    if let Some(last) = ports.first() {
        let named: Vec<&str> = ports.iter().map(|port| port.mac.as_str()).collect();
        let message = format!(
            "{} heard DHCP over InfiniBand within the last day, as {}; Basalt boots no machine there",
            object.name,
            named.join(", ")
        );
        let to_do = "connect an Ethernet port of such a machine, or set its card to Ethernet; `basalt explain boot` with the address says the \
                     GUID of the port";
        waits.push(lacks("InfiniBand", message, last.at, to_do.to_owned()));
    }
    for machines in strangers::left_out(driver.store.strangers_left_out().await?, &status.vlans) {
        let to_do = format!(
            "accept Discoveries of {vlan} or delete them; if one host invents machines, find it, or set `enlist` of Vlan {vlan:?} to off",
            vlan = machines.vlan
        );
        waits.push(lacks("StrangersLeftOut", strangers::words(&machines), machines.at, to_do));
    }
    Ok(PlanReport { summary: format!("{}: {message}", object.name), waits, ..PlanReport::default() })
}

/// The status of a rack, and the regions that it does not reach.
async fn status(
    driver: &Driver,
    object: &Object,
    now: Timestamp,
) -> Result<(RackStatus, Vec<Link>), StoreError> {
    let uid = RackId::from(object.uid);
    let before: RackStatus = serde_json::from_str(object.status.get()).unwrap_or_default();
    let mut status = RackStatus::default();
    status.common.observed_generation = object.generation;
    let (mut introduced, mut told, mut cached) = (None, Vec::new(), None);
    for fact in driver.store.latest_facts(object.uid).await? {
        status.last_seen = status.last_seen.max(Some(fact.stored_at));
        match Observed::of(&fact) {
            Some(Observed::Hello(what)) => {
                introduced = Some(Said { id: fact.id, stored_at: fact.stored_at, what });
            }
            Some(Observed::Health(what)) => {
                told.push(Said { id: fact.id, stored_at: fact.stored_at, what });
            }
            Some(Observed::Cache(what)) => cached = Some((fact.stored_at, what)),
            _ => {}
        }
    }
    let known = driver.sessions.regions().borrow().clone();
    let is_here = driver.sessions.since(uid).is_some();
    let links = services::links(&told, &known.all);
    let is_up = |link: &Link| link.problem.is_none() && known.living.contains(&link.address);
    status.connected = is_here || links.iter().any(is_up);
    let is_silent =
        |link: &Link| link.problem.is_some() && !(is_here && known.own.as_ref() == Some(&link.address));
    // Every link of a rack that is away has ended. Only a connected rack can report a silent region.
    let silent: Vec<Link> = match status.connected {
        true => links.into_iter().filter(is_silent).collect(),
        false => Vec::new(),
    };
    let heard = status.last_seen.max(driver.sessions.ended(uid));
    status.last_seen = last_seen(&before, status.connected, heard, now);
    status.services = services::services(&told, introduced.as_ref(), now);
    let hello = introduced.map(|it| it.what).unwrap_or_default();
    status.addresses = hello.addresses().collect();
    let served: Vec<IpAddr> = hello.served().collect();
    status.version = Some(String::from(hello.version)).filter(|it| !it.is_empty());
    status.spki_sha256 = hello.spki_sha256.parse().ok();
    let estate = driver.estate().await?;
    status.cache = cached.map(|(at, cache)| cache_of(&cache, at, &estate.images));
    for net in estate.nets.iter() {
        if served.iter().any(|address| net.subnet.cidr.contains(*address)) {
            status.vlans.insert(net.subnet.vlan.clone());
        }
    }
    // Leases are counted when `last_seen` changes, so about once a minute.
    let is_due = status.last_seen != before.last_seen || before.leases.is_empty();
    status.leases = match is_due {
        true => leases_of(&driver.store.rack_leases(uid).await?, &estate.nets),
        false => before.leases.clone(),
    };
    let stored = driver.store.concern_heads(uid).await?;
    let mut refused = Vec::new();
    for ack in driver.store.concern_acks(uid).await? {
        let mut state = ConcernState::default();
        if ack.is_applied() {
            state.applied = ack.generation;
            let bytes = stored.iter().find(|c| c.name == ack.concern && c.generation == ack.generation);
            state.sha256 = bytes.map(|c| Sha256::new(c.sha256));
        }
        // The message of an applied concern lists the parts that the rack left out.
        if !ack.is_applied() || !ack.message.is_empty() {
            refused.push(format!("{}: {} ({})", ack.concern, ack.outcome, ack.message));
            state.error = Some(ack.message);
        }
        status.concerns.insert(ack.concern, state);
    }
    let left_out = strangers::left_out(driver.store.strangers_left_out().await?, &status.vlans);
    let lacks = failing(&status).into_iter().chain(silent.iter().map(remark));
    let lacks: Vec<String> = lacks.chain(left_out.iter().map(strangers::words)).collect();
    status.common.conditions = conditions(status.connected, &refused, &lacks, now);
    basalt_engine::machine::carry_since(&before.common.conditions, &mut status.common.conditions, now);
    Ok((status, silent))
}

/// When a rack was last heard; `heard` is the time of its last message.
fn last_seen(
    before: &RackStatus,
    connected: bool,
    heard: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    if !connected {
        return heard.max(before.last_seen);
    }
    let is_young = |at: &Timestamp| before.connected && now.duration_since(*at).as_secs() < SEEN_ANEW;
    before.last_seen.filter(is_young).or(Some(now))
}

/// The cache as it is shown: the images of which it has files.
fn cache_of(cache: &Cache, reported_at: Timestamp, images: &[Image]) -> RackCache {
    let held: HashSet<&Sha256> = cache.held.iter().collect();
    let shown = images.iter().filter_map(|image| {
        let files = image.spec.files.values();
        let here = files.clone().filter(|file| held.contains(&file.sha256)).count() as u64;
        (here > 0).then(|| (image.name.clone(), CachedImage { held: here, files: files.count() as u64 }))
    });
    RackCache {
        files: cache.files,
        bytes: cache.bytes,
        limit_bytes: cache.limit_bytes,
        images: shown.collect(),
        unnamed: cache.more,
        reported_at: Some(reported_at),
    }
}

/// The leases of each subnet by the subnet's name.
fn leases_of(counts: &[SubnetLeases], nets: &[Net]) -> BTreeMap<String, RackLeases> {
    let names: BTreeMap<_, _> = nets.iter().map(|net| (net.uid, &net.name)).collect();
    let shown = counts.iter().filter_map(|it| {
        let leases = RackLeases { running: it.running, addresses: it.addresses };
        Some((names.get(&it.subnet)?.to_string(), leases))
    });
    shown.collect()
}

fn remark(silent: &Link) -> String {
    let Link { address, since, problem } = silent;
    let since = since.strftime("%Y-%m-%d %H:%M:%S UTC");
    format!("region {address} does not answer it since {since} ({})", problem.as_deref().unwrap_or_default())
}

/// The services that do not work, each with the reason.
fn failing(status: &RackStatus) -> Vec<String> {
    let failing = status.services.iter().filter(|(_, service)| service.state != ServiceState::Running);
    failing
        .map(|(name, service)| format!("{name}: {}", service.message.as_deref().unwrap_or("stopped")))
        .collect()
}

fn conditions(connected: bool, refused: &[String], failing: &[String], now: Timestamp) -> Vec<Condition> {
    let (reason, message) = match (connected, refused) {
        (true, []) if !failing.is_empty() => (
            "Connected",
            format!("the rack is connected, and does what it is told, but for this: {}", failing.join("; ")),
        ),
        (false, _) => ("Away", "the rack is not connected; it goes on with what it holds".to_owned()),
        (true, []) => ("Connected", "the rack is connected, and does what it is told".to_owned()),
        (true, refused) => ("Refused", format!("the rack does not apply: {}", refused.join("; "))),
    };
    let truth = |holds| if holds { ConditionStatus::True } else { ConditionStatus::False };
    let ready = connected && refused.is_empty();
    [
        (Condition::READY, ready),
        (Condition::PROGRESSING, !connected),
        (Condition::STALLED, connected && !ready),
    ]
    .map(|(kind, holds)| Condition {
        kind: kind.to_owned(),
        status: truth(holds),
        reason: reason.to_owned(),
        message: message.clone(),
        since: now,
        deadline: None,
    })
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connected_rack_is_seen_anew_once_a_minute_and_one_that_is_away_when_it_last_said_something() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let before = |connected, second| RackStatus {
            connected,
            last_seen: Some(at(second)),
            ..RackStatus::default()
        };
        let seen = |before: &RackStatus, connected, heard, now| {
            last_seen(before, connected, Some(at(heard)), at(now)).map(|it| it.as_second())
        };
        assert_eq!(seen(&before(true, 100), true, 150, 159), Some(100), "the status is the same");
        assert_eq!(seen(&before(true, 100), true, 150, 160), Some(160));
        assert_eq!(seen(&before(false, 100), true, 101, 102), Some(102), "it has come");
        assert_eq!(seen(&RackStatus::default(), true, 1, 2), Some(2));
        assert_eq!(seen(&before(true, 100), false, 130, 150), Some(130), "it has gone");
        assert_eq!(seen(&before(false, 140), false, 130, 150), Some(140));
    }
}
