//! A MAC address belongs to one machine or one device.

use super::{Subject, of_kind};
use crate::StoreError;
use crate::store::Tx;
use basalt_api::values::Uid;
use basalt_api::{FieldCode, FieldError};
use serde_json::Value;
use uuid::Uuid;

/// The kinds that have MAC addresses, and the fields with them.
const HOLDERS: [(&str, &str); 2] = [("Machine", "/boot_macs"), ("Device", "/macs")];

/// Replaces the MACs of subjects, if they changed.
pub(super) async fn write(
    tx: &mut Tx,
    subjects: &[Subject<'_>],
) -> Result<Vec<(Uid, FieldError)>, StoreError> {
    let (mut had, mut owners, mut pointers, mut macs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (kind, field) in HOLDERS {
        for subject in of_kind(kind, subjects) {
            match subject.before {
                Some(before) if before.pointer(field) == subject.spec.pointer(field) => continue,
                Some(_) => had.push(subject.uid.get()),
                None => {}
            }
            let listed = subject.spec.pointer(field).and_then(Value::as_array);
            let listed = listed.into_iter().flatten().enumerate();
            for (index, mac) in listed.filter_map(|(index, mac)| Some((index, mac.as_str()?))) {
                owners.push(subject.uid.get());
                pointers.push(format!("{field}/{index}"));
                macs.push(mac.to_owned());
            }
        }
    }
    if !had.is_empty() {
        // Deleting rows of machine_mac also deletes those of mac_holder. Devices have only the latter.
        sqlx::query!("delete from machine_mac where machine = any($1)", &had).execute(&mut **tx).await?;
        sqlx::query!("delete from mac_holder where holder = any($1)", &had).execute(&mut **tx).await?;
    }
    if macs.is_empty() {
        return Ok(Vec::new());
    }
    hold(tx, &owners, &pointers, &macs).await?;
    taken(tx, &owners, &pointers, &macs).await
}

async fn hold(tx: &mut Tx, owners: &[Uuid], pointers: &[String], macs: &[String]) -> Result<(), StoreError> {
    let hold = sqlx::query!(
        "insert into mac_holder (mac, holder) select m::macaddr, o from unnest($1::text[], $2::uuid[]) u(m, o)
         on conflict (mac) do nothing",
        macs,
        owners
    );
    hold.execute(&mut **tx).await?;
    let boot = sqlx::query!(
        "insert into machine_mac (mac, machine, pointer)
         select h.mac, u.o, u.p from unnest($1::text[], $2::uuid[], $3::text[]) u(m, o, p)
         join mac_holder h on h.mac = u.m::macaddr and h.holder = u.o
         join object o on o.uid = u.o and o.kind = 'Machine'",
        macs,
        owners,
        pointers
    );
    boot.execute(&mut **tx).await?;
    Ok(())
}

/// The errors for MACs that other objects have.
async fn taken(
    tx: &mut Tx,
    owners: &[Uuid],
    pointers: &[String],
    macs: &[String],
) -> Result<Vec<(Uid, FieldError)>, StoreError> {
    let holders = sqlx::query!(
        r#"select u.o as "owner!", u.p as "pointer!", u.m as "mac!", o.kind, o.name
           from unnest($1::text[], $2::uuid[], $3::text[]) with ordinality u(m, o, p, n)
           join mac_holder h on h.mac = u.m::macaddr and h.holder <> u.o join object o on o.uid = h.holder
           order by u.n"#,
        macs,
        owners,
        pointers
    );
    let taken = holders.fetch_all(&mut **tx).await?.into_iter().map(|holder| {
        let what = if holder.kind == "Machine" { "a boot MAC" } else { "a MAC" };
        let message = format!("{} is {what} of {} {:?} already", holder.mac, holder.kind, holder.name);
        let hint = "a MAC address is one machine's or one device's: remove it there first";
        (Uid::from(holder.owner), FieldError::new(holder.pointer, FieldCode::Overlap, message, hint))
    });
    Ok(taken.collect())
}
