//! A BMC belongs to one machine, and is in a network of BMCs. Triggers of the database store the owner of each BMC (migration 0014). This
//! module names the owner in errors.

use super::{Subject, of_kind};
use crate::StoreError;
use crate::store::Tx;
use basalt_api::values::{Cidr, Uid};
use basalt_api::{FieldCode, FieldError};
use serde_json::{Value, json};
use std::net::IpAddr;
use uuid::Uuid;

const FIELD: &str = "/bmc";
const ADDRESS: &str = "/bmc/address";
/// The fields that decide about a machine's part in a BMC.
const PLACE: [&str; 4] = ["/bmc/driver", ADDRESS, "/bmc/port", "/bmc/options/system"];
/// The networks that Settings allow.
const NETWORKS: &str = "/bmc_networks";
/// The largest number of machines that an error names.
const NAMED: i64 = 5;

/// The subjects whose BMC belongs to another machine. Machines that shared a BMC before this was refused may keep it.
pub(super) async fn taken(
    tx: &mut Tx,
    subjects: &[Subject<'_>],
) -> Result<Vec<(Uid, FieldError)>, StoreError> {
    let changed: Vec<Uuid> = changed(subjects).map(|subject| subject.uid.get()).collect();
    if changed.is_empty() {
        return Ok(Vec::new());
    }
    let others = sqlx::query!(
        r#"select distinct on (own.machine) own.machine, own.host, own.port, o.name
           from machine_bmc own
           join machine_bmc other using (host, port, family) join object o on o.uid = other.machine
           where own.machine = any($1) and not own.inherited and other.machine <> own.machine
           order by own.machine, o.name"#,
        &changed
    );
    let taken = others.fetch_all(&mut **tx).await?.into_iter().map(|other| {
        let message =
            format!("{} port {} is the BMC of Machine {:?} already", other.host, other.port, other.name);
        let hint =
            "a BMC is one machine's, and switches that one: correct the address, options.system or webhook.on, or remove it there first";
        (Uid::from(other.machine), FieldError::new(ADDRESS, FieldCode::Overlap, message, hint))
    });
    Ok(taken.collect())
}

/// Machines that describe a host which another machine describes in another way.
#[derive(Default)]
pub(super) struct Shared {
    /// One machine is the only system of a Redfish service, and the other a named system of it.
    pub(super) errors: Vec<(Uid, FieldError)>,
    /// One is reached by IPMI, and the other by Redfish: most such hosts are one BMC, but not all.
    pub(super) notes: Vec<(Uid, FieldError)>,
}

/// Compares subjects whose BMC is at another place than before with the machines at the same host.
pub(super) async fn shared(tx: &mut Tx, subjects: &[Subject<'_>]) -> Result<Shared, StoreError> {
    let at = |spec: &Value| PLACE.map(|pointer| spec.pointer(pointer).cloned());
    let moved = changed(subjects).filter(|it| it.before.is_none_or(|before| at(before) != at(it.spec)));
    let moved: Vec<Uuid> = moved.map(|subject| subject.uid.get()).collect();
    let mut shared = Shared::default();
    if moved.is_empty() {
        return Ok(shared);
    }
    // A machine without `system` locks this place by a trigger. So of two writers, the later one sees the row of the earlier one.
    let lock = sqlx::query!(
        "insert into bmc_place (family, host, port)
         select distinct 'redfish', host, port from machine_bmc where machine = any($1) and family like 'redfish/%' order by 2, 3
         on conflict (family, host, port) do update set port = excluded.port",
        &moved
    );
    lock.execute(&mut **tx).await?;
    let others = sqlx::query!(
        r#"select distinct on (own.machine, s.is_system) own.machine, own.host, other.port, o.name,
             split_part(other.family, '/', 1) as "driver!", s.is_system as "is_system!"
           from machine_bmc own join machine_bmc other on other.host = own.host and other.machine <> own.machine
           join object o on o.uid = other.machine
           cross join lateral (select own.family like 'redfish%' and other.family like 'redfish%' as is_system) s
           where own.machine = any($1) and own.family not like 'webhook%' and other.family not like 'webhook%'
             and case when s.is_system
               then own.port = other.port and own.family <> other.family and 'redfish' in (own.family, other.family)
               else split_part(own.family, '/', 1) <> split_part(other.family, '/', 1) end
           order by own.machine, s.is_system, o.name"#,
        &moved
    );
    for other in others.fetch_all(&mut **tx).await? {
        let uid = Uid::from(other.machine);
        let place = format!("{} port {} is the BMC of Machine {:?}", other.host, other.port, other.name);
        if other.is_system {
            let message = format!("{place} already, and one of the two machines names no system of it");
            let hint =
                "options.system for each machine of this BMC; without it, the machine is the only system";
            shared.errors.push((uid, FieldError::new(ADDRESS, FieldCode::Overlap, message, hint)));
        } else {
            let message = format!("{place}, by driver {:?}", other.driver);
            let hint = "if both are one BMC, each of the two machines switches the other: correct the address of one";
            shared.notes.push((uid, FieldError::new(ADDRESS, FieldCode::Overlap, message, hint)));
        }
    }
    Ok(shared)
}

/// The machines whose description of the BMC is new or changed.
fn changed<'a, 'b>(subjects: &'a [Subject<'b>]) -> impl Iterator<Item = &'a Subject<'b>> {
    of_kind("Machine", subjects).filter(|subject| {
        let bmc = subject.spec.pointer(FIELD);
        bmc.is_some() && subject.before.is_none_or(|before| before.pointer(FIELD) != bmc)
    })
}

/// The subjects whose BMC is outside of the networks that Settings allow. A host name is checked by the rack that resolves it.
pub(super) async fn outside(
    tx: &mut Tx,
    subjects: &[Subject<'_>],
) -> Result<Vec<(Uid, FieldError)>, StoreError> {
    let address = |subject: &Subject<'_>| subject.text("/bmc/address")?.parse::<IpAddr>().ok();
    let changed: Vec<(Uid, IpAddr)> =
        changed(subjects).filter_map(|subject| Some((subject.uid, address(subject)?))).collect();
    if changed.is_empty() {
        return Ok(Vec::new());
    }
    let settings = sqlx::query_scalar!(
        r#"select spec #> '{bmc_networks}' as "networks: serde_json::Value" from object where kind = 'Settings'"#
    );
    let networks = settings.fetch_optional(&mut **tx).await?.flatten();
    let corrupt = |error| StoreError::Corrupt(format!("bmc_networks of Settings: {error}"));
    let networks = networks.map(serde_json::from_value::<Vec<Cidr>>).transpose().map_err(corrupt)?;
    let networks = networks.unwrap_or_default();
    if networks.is_empty() {
        return Ok(Vec::new());
    }
    let allowed = networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let outside =
        changed.into_iter().filter(|(_, address)| !networks.iter().any(|net| net.contains(*address)));
    Ok(outside
        .map(|(uid, address)| {
            let message = format!("{address} is outside of the networks of BMCs: {allowed}");
            let hint = "an address there; an admin adds networks to bmc_networks of Settings";
            (uid, FieldError::new(ADDRESS, FieldCode::Rule, message, hint))
        })
        .collect())
}

/// Settings whose networks leave out BMCs that machines have: nobody could switch those machines any more.
pub(super) async fn left_out(
    tx: &mut Tx,
    subjects: &[Subject<'_>],
) -> Result<Vec<(Uid, FieldError)>, StoreError> {
    let mut errors = Vec::new();
    for subject in of_kind("Settings", subjects) {
        let networks = |spec: &Value| spec.pointer(NETWORKS).cloned().unwrap_or_else(|| json!([]));
        let (now, before) = (networks(subject.spec), subject.before.map(networks));
        let now: Vec<Cidr> = serde_json::from_value(now).unwrap_or_default();
        let before = before.and_then(|it| serde_json::from_value::<Vec<Cidr>>(it).ok()).unwrap_or_default();
        if now.is_empty() || now.iter().eq(&before) {
            continue;
        }
        let allowed: Vec<String> = now.iter().map(ToString::to_string).collect();
        let outside = sqlx::query!(
            r#"select o.name, b.host, count(*) over () as "all!" from machine_bmc b join object o on o.uid = b.machine
               where (b.host like '%:%' or b.host ~ '^[0-9.]+$')
                 and not exists (select from unnest($1::text[]) as allowed (net) where b.host::inet <<= allowed.net::inet)
               order by o.name limit $2"#,
            &allowed,
            NAMED
        );
        let outside = outside.fetch_all(&mut **tx).await?;
        let Some(all) = outside.first().map(|machine| machine.all) else { continue };
        let mut named: Vec<String> =
            outside.iter().map(|machine| format!("{} of Machine {:?}", machine.host, machine.name)).collect();
        if all > NAMED {
            named.push(format!("{} more", all - NAMED));
        }
        let message =
            format!("BMCs that machines have are outside of {}: {}", allowed.join(", "), named.join(", "));
        let hint = "add their networks, or correct the addresses of these BMCs first";
        errors.push((subject.uid, FieldError::new(NETWORKS, FieldCode::Rule, message, hint)));
    }
    Ok(errors)
}
