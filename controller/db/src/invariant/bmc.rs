//! A BMC is one machine's. Triggers of the database keep who has which (migration 0014); this says whose it is already.

use super::{Subject, of_kind};
use crate::StoreError;
use crate::store::Tx;
use basalt_api::values::Uid;
use basalt_api::{FieldCode, FieldError};
use uuid::Uuid;

const FIELD: &str = "/bmc";

/// Which of the subjects describe a BMC that another machine has. Those that had one together before that was refused keep it.
pub(super) async fn taken(
    tx: &mut Tx,
    subjects: &[Subject<'_>],
) -> Result<Vec<(Uid, FieldError)>, StoreError> {
    let changed = of_kind("Machine", subjects).filter(|subject| {
        let bmc = subject.spec.pointer(FIELD);
        bmc.is_some() && subject.before.is_none_or(|before| before.pointer(FIELD) != bmc)
    });
    let changed: Vec<Uuid> = changed.map(|subject| subject.uid.get()).collect();
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
