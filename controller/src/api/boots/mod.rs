//! Shows why a machine does not boot: its requests to racks, boot by boot (`GET /api/v1/boots/{machine}`).
//!
//! A new boot begins in these cases:
//!
//! 1. A first request of firmware or iPXE (DISCOVER, SOLICIT) follows a minute of silence. Retransmissions of firmware are at most 32
//!    seconds apart.
//! 2. Such a first request follows any request of a later stage in the same boot.
//! 3. Any request follows 30 minutes of silence.

mod architecture;
mod judge;
mod network;

use super::App;
use super::body;
use super::caller::Caller;
use super::problem::{Answer, Refusal};
use super::query::NoParameters;
use crate::racks::observed::BootTrace;
use axum::Json;
use axum::extract::{Path, State};
use basalt_api::kinds::{Machine, MachineSpec, RackStatus};
use basalt_api::values::{Mac, Name, Timestamp, Uid, UntrustedName};
use basalt_api::wire::{Boot, BootEntry, Boots, Listener};
use basalt_api::{FieldCode, Kind, KindOf, ProblemCode};
use basalt_db::Key;

/// The silence in milliseconds after which a request of firmware begins a new boot.
const PAUSE_MS: i64 = 60_000;
/// The silence in milliseconds after which any request begins a new boot.
const OVER_MS: i64 = 30 * 60_000;
/// The largest number of boots in an answer.
const MOST: usize = 32;

/// The boots of a MAC in any spelling, or of a machine by its name or uid.
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    Path(asked): Path<String>,
    _: NoParameters,
) -> Answer<Json<Boots>> {
    let kind = Machine::KIND;
    let (store, mac) = (app.store(), asked.parse::<Mac>().ok());
    let uid = match mac {
        Some(mac) => store.machine_of(&mac.to_string()).await?,
        None => Some(store.get(kind.name, named(kind, &asked)?).await?.uid),
    };
    match uid {
        Some(uid) => {
            let seen = caller.sees(&app, kind, Key::Uid(uid)).await;
            seen.map_err(|refusal| match refusal.code() {
                ProblemCode::NotFound => unseen(kind, mac, &asked),
                _ => refusal,
            })?;
        }
        // The answer is the same if a hidden machine has the MAC or if no machine has it.
        None if caller.rights.unlimited().is_none() => return Err(unseen(kind, mac, &asked)),
        None => {}
    }
    let mut macs: Vec<Mac> = mac.into_iter().collect();
    let (mut machine, mut declared) = (None, None);
    if let Some(uid) = uid {
        if let Some(object) = store.get_by_uid(uid).await? {
            machine = object.name.parse::<Name>().ok();
            declared = serde_json::from_str::<MachineSpec>(object.spec.get()).ok().map(|it| it.architecture);
        }
        if mac.is_none() {
            macs = store.macs_of(uid).await?.iter().filter_map(|mac| mac.parse().ok()).collect();
        }
    }
    let texts: Vec<String> = macs.iter().map(ToString::to_string).collect();
    let mut boots = of_macs(&app, &macs).await?;
    boots.sort_by_key(|boot| std::cmp::Reverse(boot.began));
    boots.truncate(MOST);
    look_into_subnets(&app, &mut boots).await?;
    if let Some(declared) = declared {
        architecture::compare(declared, &mut boots);
    }
    let racks = listeners(&app).await?;
    let others_lost = if machine.is_none() { store.boot_traces_lost().await? } else { 0 };
    let judgement = match boots.is_empty() {
        true => {
            // An account that is limited to pools must not see unknown clients.
            let infiniband = match caller.rights.unlimited() {
                Some(_) => store.infiniband_heard(None).await?,
                None => Vec::new(),
            };
            Some(judge::silence(&texts, &racks, store.lease_of(&texts).await?.as_ref(), &infiniband))
        }
        false => None,
    };
    Ok(Json(Boots { machine, macs, boots, judgement, racks, others_lost }))
}

/// When the boots of a machine began, newest first.
pub(super) async fn began(app: &App, machine: Uid) -> Answer<Vec<Timestamp>> {
    let macs: Vec<Mac> =
        app.store().macs_of(machine).await?.iter().filter_map(|mac| mac.parse().ok()).collect();
    let mut began: Vec<Timestamp> = of_macs(app, &macs).await?.iter().map(|boot| boot.began).collect();
    began.sort_unstable_by_key(|at| std::cmp::Reverse(*at));
    began.truncate(MOST);
    Ok(began)
}

/// The boots by these MACs.
async fn of_macs(app: &App, macs: &[Mac]) -> Answer<Vec<Boot>> {
    let mut boots = Vec::new();
    for mac in macs {
        let traces = app.store().boot_traces(&[mac.to_string()]).await?;
        let told =
            traces.into_iter().filter_map(|it| Some((it.source, serde_json::from_value(it.body).ok()?)));
        boots.extend(told_apart(*mac, told.collect()));
    }
    Ok(boots)
}

/// Explains boots for which racks had no subnet.
async fn look_into_subnets(app: &App, boots: &mut [Boot]) -> Answer<()> {
    let has_none = |boot: &Boot| boot.judgement.as_ref().is_some_and(|it| it.code == network::NO_SUBNET);
    let Some(machinery) = app.machinery().filter(|_| boots.iter().any(has_none)) else { return Ok(()) };
    let network = machinery.network().await?;
    for boot in boots.iter_mut().filter(|boot| has_none(boot)) {
        if let Some(judgement) = network::judge(&boot.entries, &network) {
            boot.judgement = Some(judgement);
        }
    }
    Ok(())
}

fn named<'a>(kind: &Kind, asked: &'a str) -> Answer<Key<'a>> {
    body::key(kind, asked).map_err(|_| {
        let message = format!("{asked:?} is neither a machine's name nor a MAC");
        Refusal::field("/machine", FieldCode::Format, message, "web1, uid:UUID or 52:54:00:12:34:56")
    })
}

fn unseen(kind: &Kind, mac: Option<Mac>, asked: &str) -> Refusal {
    match mac {
        None => named(kind, asked).map_or_else(|refusal| refusal, |key| Caller::unseen(kind, key)),
        Some(mac) => Refusal::new(
            ProblemCode::NotFound,
            format!(
                "no machine that you may see boots by {mac}; who is limited to pools is told of no others"
            ),
        ),
    }
}

/// The boots of one MAC from racks' reports, each with its judgement.
fn told_apart(mac: Mac, told: Vec<(String, BootTrace)>) -> Vec<Boot> {
    let mut lost = Vec::new();
    let mut entries: Vec<BootEntry> = Vec::new();
    for (rack, trace) in told {
        let mut last = None;
        for it in trace.entries {
            let Ok(at) = Timestamp::from_millisecond(it.at_unix_ms) else { continue };
            last = Some(at);
            let text = |text: UntrustedName| Some(String::from(text)).filter(|text| !text.is_empty());
            entries.push(BootEntry {
                at,
                rack: rack.clone(),
                service: it.service.into(),
                client: text(it.client),
                asked: it.asked.into(),
                answered: it.answered.into(),
                reason: text(it.reason),
                address: text(it.address),
                times: it.times.max(1),
                opens: it.opens,
            });
        }
        let last = last.or_else(|| entries.last().map(|entry| entry.at));
        lost.extend(last.filter(|_| trace.lost > 0).map(|at| (at, trace.lost)));
    }
    entries.sort_by_key(|entry| entry.at);
    let mut boots: Vec<Boot> = Vec::new();
    for entry in entries {
        match boots.last_mut().filter(|boot| !begins(&entry, boot)) {
            Some(boot) => boot.entries.push(entry),
            None => {
                boots.push(Boot { began: entry.at, mac, entries: vec![entry], lost: 0, judgement: None });
            }
        }
    }
    for (at, count) in lost {
        if let Some(boot) = boots.iter_mut().rev().find(|boot| boot.began <= at) {
            boot.lost += count;
        }
    }
    for boot in &mut boots {
        boot.judgement = judge::of(&boot.entries);
    }
    boots
}

/// True if a new boot begins with this entry.
fn begins(entry: &BootEntry, boot: &Boot) -> bool {
    let Some(last) = boot.entries.last() else { return false };
    let silent_ms = entry.at.duration_since(last.at).as_millis();
    if silent_ms > i128::from(OVER_MS) {
        return true;
    }
    let comes_later = |it: &BootEntry| stage(it) > stage(entry);
    entry.opens && (silent_ms > i128::from(PAUSE_MS) || boot.entries.iter().any(comes_later))
}

/// The stage of a machine with this request: 0 is firmware, 1 is iPXE before its script, 2 is everything later.
fn stage(entry: &BootEntry) -> u8 {
    match (entry.service.as_str(), entry.client.as_deref()) {
        ("dhcp" | "dhcp6", Some("firmware")) => 0,
        ("dhcp" | "dhcp6", Some("ipxe")) => 1,
        ("dhcp" | "dhcp6", _) | ("agent", _) => 2,
        _ if entry.asked.starts_with("script") || entry.asked.contains("/blobs/") => 2,
        _ => 0,
    }
}

async fn listeners(app: &App) -> Answer<Vec<Listener>> {
    let mut listeners = Vec::new();
    for rack in app.store().all("Rack").await? {
        let status: Option<RackStatus> = serde_json::from_str(rack.status.get()).ok();
        let Ok(name) = rack.name.parse::<Name>() else { continue };
        let (connected, addresses) = status.map_or_else(Default::default, |status| {
            (status.connected, status.addresses.iter().map(ToString::to_string).collect())
        });
        listeners.push(Listener { rack: name, connected, addresses });
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests;
