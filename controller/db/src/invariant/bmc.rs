//! A BMC is one machine's, and in a network of BMCs. Triggers of the database keep the owner of each BMC (migration 0014). This module names the owner in errors.

use super::{Subject, of_kind};
use crate::StoreError;
use crate::store::Tx;
use basalt_api::values::{Cidr, Uid};
use basalt_api::{FieldCode, FieldError};
use std::net::IpAddr;
use uuid::Uuid;

const FIELD: &str = "/bmc";

/// Which of the subjects describe a BMC that another machine has. Those that had one together before that was refused keep it.
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
            "a BMC is one machine's, and switches that one: correct the address, or remove it there first";
        (Uid::from(other.machine), FieldError::new("/bmc/address", FieldCode::Overlap, message, hint))
    });
    Ok(taken.collect())
}

/// The machines whose BMC is described, and was not so before.
fn changed<'a, 'b>(subjects: &'a [Subject<'b>]) -> impl Iterator<Item = &'a Subject<'b>> {
    of_kind("Machine", subjects).filter(|subject| {
        let bmc = subject.spec.pointer(FIELD);
        bmc.is_some() && subject.before.is_none_or(|before| before.pointer(FIELD) != bmc)
    })
}

/// The subjects whose BMC is outside of the networks that Settings allow. A host name is judged by the rack that resolves it.
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
            (uid, FieldError::new("/bmc/address", FieldCode::Rule, message, hint))
        })
        .collect())
}
