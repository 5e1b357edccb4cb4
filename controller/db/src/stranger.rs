//! Undeclared machines, as their agents report them.
//!
//! A fact belongs to an object, and an undeclared machine has no object. So the result of its inspection is kept in table `stranger`. When
//! a Machine with one of its MACs is declared, the result becomes a fact of that Machine.
//!
//! Any host on a network of machines can invent machines. So there are limits for each VLAN, and a host harms only its own VLAN:
//!
//! | limit | value | a machine beyond it |
//! | --- | --- | --- |
//! | rows of one VLAN | [`MOST_OF_VLAN`] | takes the place of a row without an inventory, or of one that was not seen for 30 days ([`FORGET`]); else it is left out and counted |
//! | rows in all | 10,000 | the same |
//! | Machines that enlistment makes in one VLAN | [`MADE`] at once, then one a minute | stays a Discovery until there is room |

use crate::fact::{NewFact, insert};
use crate::ipam::parse;
use crate::object::{signed, timestamp, unsigned};
use crate::seal::Place;
use crate::{Store, StoreError};
use basalt_api::values::{Attempt, MachineId, Timestamp, Uid};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgConnection;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use uuid::Uuid;
use zeroize::Zeroizing;

/// The largest number of rows.
const MOST: i64 = 10_000;
/// The largest number of rows of one VLAN.
pub const MOST_OF_VLAN: i64 = 1_024;
/// A row is forgotten when its machine was not inspected for this long.
pub const FORGET: Duration = Duration::from_secs(30 * 86_400);
/// The largest number of Machines that enlistment makes in one VLAN at once: a few racks of servers.
pub const MADE: f64 = 256.0;
/// Machines of one VLAN that enlistment may make in a second, beyond [`MADE`].
const MADE_PER_SECOND: f64 = 1.0 / 60.0;
/// The number of undeclared machines whose Discoveries are made in one go.
pub const NEW_STRANGERS: usize = 100;
/// Key of the lock under which results are recorded one after the other: two results may be of the same machine.
const NOTING: i64 = 0x5374_7261_6e67_6572;
/// The kind of facts that are results of undeclared machines. Their body is a [`StrangerSeen`].
pub const STRANGER: &str = "stranger";

/// The place under which the attempt's key is sealed.
pub(crate) fn key_place() -> Place<'static> {
    Place { object: Uid::from(Uuid::nil()), pointer: "stranger_attempt" }
}

/// The result of a task of an undeclared machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StrangerSeen {
    /// The agent's result.
    pub result: Value,
    /// The MAC addresses of all its interfaces.
    pub macs: BTreeSet<String>,
    /// The board's identity, if it is unique. It recognises a machine whose interfaces have changed.
    pub board: Option<String>,
    /// The machine's address during the task.
    pub address: Option<IpAddr>,
}

/// An undeclared machine.
#[derive(Clone, Debug)]
pub struct Stranger {
    /// Number of the row.
    pub id: i64,
    /// The name of its Discovery.
    pub name: String,
    /// The interface from which it booted.
    pub boot_mac: String,
    /// All of its interfaces.
    pub macs: BTreeSet<String>,
    /// The agent's result.
    pub body: Value,
    /// The racks that reported it, the last one at the end.
    pub sources: Vec<String>,
    /// The machine's address during the last task.
    pub address: Option<IpAddr>,
    /// When it was first inspected.
    pub first_seen: Timestamp,
    /// When it was last inspected.
    pub last_seen: Timestamp,
}

impl Stranger {
    /// The rack that reported it last.
    #[must_use]
    pub fn rack(&self) -> &str {
        self.sources.last().map_or("", String::as_str)
    }
}

struct StrangerRow {
    id: i64,
    name: String,
    boot_mac: String,
    macs: Vec<String>,
    body: Value,
    sources: Vec<String>,
    address: Option<String>,
    first_us: i64,
    last_us: i64,
}

impl StrangerRow {
    fn stranger(self) -> Result<Stranger, StoreError> {
        Ok(Stranger {
            id: self.id,
            name: self.name,
            boot_mac: self.boot_mac,
            macs: self.macs.into_iter().collect(),
            body: self.body,
            sources: self.sources,
            address: self.address.as_deref().map(parse).transpose()?,
            first_seen: timestamp(self.first_us)?,
            last_seen: timestamp(self.last_us)?,
        })
    }
}

/// A Machine that has a MAC.
#[derive(Clone, Debug)]
pub struct DeclaredMachine {
    /// Uid of the Machine.
    pub uid: Uid,
    /// Name of the Machine.
    pub name: String,
    /// True if its hardware was read, or if a task of it has ended.
    pub has_result: bool,
}

async fn declared(
    database: impl sqlx::PgExecutor<'_>,
    macs: &[String],
) -> Result<Vec<DeclaredMachine>, StoreError> {
    let rows = sqlx::query!(
        r#"select o.uid, o.name, exists(select from fact_latest f where f.object = o.uid and f.kind = 'result') as "has_result!"
           from object o where o.uid in (select machine from machine_mac where mac = any($1::text[]::macaddr[])) order by o.name"#,
        macs
    );
    let rows = rows.fetch_all(database).await?;
    Ok(rows
        .into_iter()
        .map(|row| DeclaredMachine { uid: row.uid.into(), name: row.name, has_result: row.has_result })
        .collect())
}

/// Records a result of an undeclared machine. Returns the objects to wake: its Discovery, and the Machines that were declared with one
/// of the MACs in the meantime. If there are none, it returns the rack, because the reconciliation of the rack creates the Discovery.
///
/// A result proves only the MAC from which the machine booted; the machine may claim anything else. So a row belongs to the same machine
/// only if each of the two lists the other's boot MAC, or if both have the same board.
pub(crate) async fn note(
    tx: &mut PgConnection,
    rack: Uuid,
    source: &str,
    fact: &NewFact,
) -> Result<Vec<Uuid>, StoreError> {
    let Ok(seen) = StrangerSeen::deserialize(&fact.body) else { return Ok(Vec::new()) };
    let armed = sqlx::query_scalar!("select attempt from stranger_attempt").fetch_optional(&mut *tx).await?;
    let (Some(mac), true) = (&fact.mac, armed == fact.attempt.map(|it| signed(it.get()))) else {
        return Ok(Vec::new());
    };
    sqlx::query_scalar!("select pg_advisory_xact_lock($1)", NOTING).fetch_one(&mut *tx).await?;
    let macs: Vec<String> = seen.macs.iter().chain([mac]).cloned().collect();
    // The lock orders this change and the assignment of a Discovery. The Discovery reads the change, or the change wakes the Discovery.
    let same = sqlx::query!(
        r#"select id, discovery, has_inventory, array_append(array_remove(sources, source), source) as "sources!" from stranger
           where board = $2 or (boot_mac = any($1::text[]::macaddr[])
             and id = (select stranger from stranger_mac where mac = $3::text::macaddr)) order by id for update"#,
        &macs,
        seen.board,
        mac
    );
    let same = same.fetch_all(&mut *tx).await?;
    let mut woken: Vec<Uuid> = same.iter().filter_map(|it| it.discovery).collect();
    let mut sources: Vec<_> = same.iter().flat_map(|it| &it.sources).filter(|it| *it != source).collect();
    sources.sort();
    sources.dedup();
    let sources: Vec<String> = sources.into_iter().cloned().chain([source.to_owned()]).collect();
    let declared = declared(&mut *tx, &macs).await?;
    if declared.iter().any(|machine| machine.has_result) {
        // A known machine booted from another interface: the result has nothing new.
        let all: Vec<i64> = same.iter().map(|it| it.id).collect();
        sqlx::query!("delete from stranger where id = any($1)", &all).execute(&mut *tx).await?;
        return Ok(woken);
    }
    let address = seen.address.map(|it| it.to_string());
    let has_inventory = seen.result.get("inventory").is_some_and(Value::is_object);
    let vlan = vlan_at(&mut *tx, address.as_deref()).await?;
    let mut is_new = false;
    if let Some(first) = same.first().filter(|first| first.has_inventory && !has_inventory) {
        // An inspection that failed says less than the one before.
        let seen = sqlx::query!(
            "update stranger set sources = $2, source = $3, address = coalesce($4::text::inet, address), last_seen = clock_timestamp()
             where id = $1",
            first.id,
            &sources,
            source,
            address
        );
        seen.execute(&mut *tx).await?;
        woken.extend(declared.iter().map(|machine| machine.uid.get()));
        return Ok(woken);
    }
    let id = match same.first() {
        Some(first) => {
            let others: Vec<i64> = same.iter().skip(1).map(|it| it.id).collect();
            sqlx::query!("delete from stranger where id = any($1)", &others).execute(&mut *tx).await?;
            let update = sqlx::query!(
                "update stranger set boot_mac = $2::text::macaddr, board = $3, body = $4, sources = $5, source = $6,
                   address = coalesce($7::text::inet, address), vlan = coalesce($8, vlan), has_inventory = $9,
                   last_seen = clock_timestamp()
                 where id = $1",
                first.id,
                mac,
                seen.board,
                seen.result,
                &sources,
                source,
                address,
                vlan,
                has_inventory
            );
            update.execute(&mut *tx).await?;
            first.id
        }
        None => {
            let given_way = make_room(&mut *tx, vlan, has_inventory).await?;
            let Some(given_way) = given_way else {
                tracing::warn!(mac, "an undeclared machine is left out: there are too many in its VLAN");
                return leave_out(&mut *tx, vlan, rack).await;
            };
            woken.extend(given_way);
            let insert = sqlx::query_scalar!(
                "insert into stranger (name, boot_mac, board, body, sources, source, address, vlan, has_inventory)
                 select case when exists (select from stranger o where o.name = n.name) then n.name || '-' || nextval('attempt') else n.name end,
                   $1::text::macaddr, $2, $3, $4, $5, $6::text::inet, $7, $8
                 from (select 'mac-' || replace($1, ':', '-') as name) n
                 returning id",
                mac,
                seen.board,
                seen.result,
                &sources,
                source,
                address,
                vlan,
                has_inventory
            );
            let id = insert.fetch_one(&mut *tx).await?;
            is_new = true;
            id
        }
    };
    let delete =
        sqlx::query!("delete from stranger_mac where stranger = $1 or mac = $2::text::macaddr", id, mac);
    delete.execute(&mut *tx).await?;
    let insert = sqlx::query!(
        "insert into stranger_mac (mac, stranger)
         select distinct mac::macaddr, $2::bigint from unnest($1::text[]) mac on conflict do nothing",
        &macs,
        id
    );
    insert.execute(&mut *tx).await?;
    woken.extend(declared.iter().map(|machine| machine.uid.get()));
    if woken.is_empty() || is_new && declared.is_empty() {
        woken.push(rack);
    }
    Ok(woken)
}

/// The VLAN whose subnet has this address.
async fn vlan_at(tx: &mut PgConnection, address: Option<&str>) -> Result<Option<Uuid>, StoreError> {
    let vlan = sqlx::query_scalar!(
        "select r.to_uid from subnet_cidr c join object_ref r on r.from_uid = c.subnet and r.pointer = '/vlan'
         where c.cidr::inet >>= $1::text::inet order by masklen(c.cidr) desc, c.subnet limit 1",
        address
    );
    Ok(vlan.fetch_optional(&mut *tx).await?)
}

/// Makes room for a row of this VLAN. Returns the Discovery of the row that gave way, if one had to. `None`: there is no room.
///
/// A row with an inventory gives way only if it was not seen for [`FORGET`]: otherwise one host could replace every Discovery by invented
/// ones.
async fn make_room(
    tx: &mut PgConnection,
    vlan: Option<Uuid>,
    has_inventory: bool,
) -> Result<Option<Option<Uuid>>, StoreError> {
    let rows = sqlx::query!(
        r#"select count(*) as "all!", count(*) filter (where vlan is not distinct from $1) as "of_vlan!" from stranger"#,
        vlan
    );
    let rows = rows.fetch_one(&mut *tx).await?;
    let is_own_full = rows.of_vlan >= MOST_OF_VLAN;
    if !is_own_full && rows.all < MOST {
        return Ok(Some(None));
    }
    let gone = sqlx::query!(
        "delete from stranger where id = (
           select id from stranger
           where (vlan is not distinct from $1 or not $2)
             and (not has_inventory and $3 or last_seen < clock_timestamp() - make_interval(secs => $4))
           order by has_inventory, last_seen limit 1)
         returning discovery",
        vlan,
        is_own_full,
        has_inventory,
        FORGET.as_secs_f64()
    );
    Ok(gone.fetch_optional(&mut *tx).await?.map(|row| row.discovery))
}

/// Counts a machine that was left out. Returns the rack, whose status says so.
async fn leave_out(tx: &mut PgConnection, vlan: Option<Uuid>, rack: Uuid) -> Result<Vec<Uuid>, StoreError> {
    let Some(vlan) = vlan else { return Ok(Vec::new()) };
    let count = sqlx::query!(
        "insert into enlistment_use as u (vlan, left_out, left_out_at) values ($1, 1, clock_timestamp())
         on conflict (vlan) do update set left_out = u.left_out + 1, left_out_at = excluded.left_out_at",
        vlan
    );
    count.execute(&mut *tx).await?;
    Ok(vec![rack])
}

/// A VLAN whose undeclared machines were left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The name of the VLAN.
    pub vlan: String,
    /// Number of results that were left out since the VLAN was declared.
    pub count: u64,
    /// When the last one was left out.
    pub at: Timestamp,
    /// True if that was within the last day.
    pub is_recent: bool,
}

impl Store {
    /// The attempt with which racks inspect undeclared machines, and its key. If there is none yet, it is created with `new_key`.
    ///
    /// # Errors
    /// Fails if the seal key does not open the key, or if the database cannot be written.
    pub async fn stranger_attempt(
        &self,
        new_key: &[u8; 32],
    ) -> Result<(Attempt, Zeroizing<Vec<u8>>), StoreError> {
        loop {
            let row = sqlx::query!("select attempt, sealed from stranger_attempt");
            if let Some(row) = row.fetch_optional(self.pool()).await? {
                return Ok((
                    Attempt::new(unsigned(row.attempt)),
                    self.seal().open(&key_place(), &row.sealed)?,
                ));
            }
            let mut tx = self.begin().await?;
            let sealed = self.seal().seal(&key_place(), new_key)?;
            self.hold_seal(&mut tx).await?;
            let insert = sqlx::query!(
                "insert into stranger_attempt (attempt, sealed) values (nextval('attempt'), $1) on conflict do nothing",
                sealed
            );
            insert.execute(&mut *tx).await?;
            self.commit(tx).await?;
        }
    }

    /// Undeclared machines without a Discovery; the first [`NEW_STRANGERS`] of them.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn new_strangers(&self) -> Result<Vec<String>, StoreError> {
        let names = sqlx::query_scalar!(
            "select name from stranger s where discovery is null and not exists (
               select from stranger_mac of join machine_mac m on m.mac = of.mac where of.stranger = s.id)
             order by id limit $1",
            i64::try_from(NEW_STRANGERS).unwrap_or(i64::MAX)
        );
        Ok(names.fetch_all(self.pool()).await?)
    }

    /// The machine of a Discovery. A row without a Discovery is assigned to the Discovery of its name.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn stranger(&self, discovery: Uid, name: &str) -> Result<Option<Stranger>, StoreError> {
        let found = sqlx::query!(
            "update stranger set discovery = $1 where discovery is null and name = $2",
            discovery.get(),
            name
        );
        found.execute(self.pool()).await?;
        let row = sqlx::query_as!(
            StrangerRow,
            r#"select id, name, boot_mac::text as "boot_mac!", body, host(address) as address,
                 array_append(array_remove(sources, source), source) as "sources!",
                 array(select mac::text from stranger_mac where stranger = s.id) as "macs!",
                 (extract(epoch from first_seen) * 1000000)::bigint as "first_us!",
                 (extract(epoch from last_seen) * 1000000)::bigint as "last_us!"
               from stranger s where discovery = $1"#,
            discovery.get()
        );
        row.fetch_optional(self.pool()).await?.map(StrangerRow::stranger).transpose()
    }

    /// The Machines that have one of these MACs.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn machines_with(&self, macs: &BTreeSet<String>) -> Result<Vec<DeclaredMachine>, StoreError> {
        let macs: Vec<String> = macs.iter().cloned().collect();
        declared(self.pool(), &macs).await
    }

    /// Deletes the row of a machine.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn forget_stranger(&self, id: i64) -> Result<(), StoreError> {
        sqlx::query!("delete from stranger where id = $1", id).execute(self.pool()).await?;
        Ok(())
    }

    /// Takes one Machine from the budget of a VLAN ([`MADE`]). False: the budget is used up.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn take_enlistment(&self, vlan: &str) -> Result<bool, StoreError> {
        let taken = sqlx::query_scalar!(
            r#"insert into enlistment_use as u (vlan, made) select uid, 1 from object where kind = 'Vlan' and name = $1
               on conflict (vlan) do update
               set made = greatest(0, u.made - greatest(0, extract(epoch from clock_timestamp() - u.made_at)::float8) * $2) + 1, made_at = clock_timestamp()
               where greatest(0, u.made - greatest(0, extract(epoch from clock_timestamp() - u.made_at)::float8) * $2) + 1 <= $3
               returning true as "taken!""#,
            vlan,
            MADE_PER_SECOND,
            MADE
        );
        Ok(taken.fetch_optional(self.pool()).await?.is_some())
    }

    /// Gives a Machine back to the budget of a VLAN: it could not be made.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn return_enlistment(&self, vlan: &str) -> Result<(), StoreError> {
        let update = sqlx::query!(
            "update enlistment_use u set made = greatest(0, u.made - 1)
             from object o where o.uid = u.vlan and o.kind = 'Vlan' and o.name = $1",
            vlan
        );
        update.execute(self.pool()).await?;
        Ok(())
    }

    /// The VLANs whose undeclared machines were left out, in the order of their names.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn strangers_left_out(&self) -> Result<Vec<LeftOut>, StoreError> {
        let rows = sqlx::query!(
            r#"select o.name, u.left_out, (extract(epoch from u.left_out_at) * 1000000)::bigint as "at_us!",
                 u.left_out_at > clock_timestamp() - interval '1 day' as "is_recent!"
               from enlistment_use u join object o on o.uid = u.vlan where u.left_out_at is not null order by o.name"#
        );
        let left_out = rows.fetch_all(self.pool()).await?.into_iter().map(|row| {
            Ok(LeftOut {
                vlan: row.name,
                count: unsigned(row.left_out),
                at: timestamp(row.at_us)?,
                is_recent: row.is_recent,
            })
        });
        left_out.collect()
    }

    /// The last address of an undeclared machine that has one of this Machine's MACs.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn stranger_address(&self, machine: MachineId) -> Result<Option<IpAddr>, StoreError> {
        let row = sqlx::query_scalar!(
            r#"select host(s.address) from stranger s where s.address is not null and s.id in (
                 select of.stranger from stranger_mac of join machine_mac m on m.mac = of.mac where m.machine = $1)
               order by s.last_seen desc limit 1"#,
            machine.get()
        );
        row.fetch_optional(self.pool()).await?.flatten().as_deref().map(parse).transpose()
    }

    /// Deletes the row of a Machine that is now declared. If `takes`, and if the machine booted from a MAC of the Machine, the result
    /// becomes a fact of the Machine. Returns true if the Machine has a new fact.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn adopt_stranger(&self, machine: MachineId, takes: bool) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let rows = sqlx::query!(
            r#"delete from stranger where id in (
                 select s.stranger from stranger_mac s join machine_mac m on m.mac = s.mac where m.machine = $1)
               returning discovery, boot_mac::text as "boot_mac!",
                 boot_mac in (select mac from machine_mac where machine = $1) as "is_proven!", body, source, host(address) as address,
                 (extract(epoch from last_seen) * 1000000)::bigint as "last_us!""#,
            machine.get()
        );
        let mut rows = rows.fetch_all(&mut *tx).await?;
        if rows.is_empty() {
            return Ok(false);
        }
        let discoveries: Vec<Uuid> = rows.iter().filter_map(|row| row.discovery).collect();
        self.wake_with(&mut tx, &[], &discoveries).await?;
        rows.sort_by_key(|row| row.last_us);
        rows.retain(|row| row.is_proven);
        let adopted = rows.pop().filter(|_| takes);
        if let Some(row) = &adopted {
            let attempt = row.body.get("attempt").and_then(Value::as_u64).map(Attempt::new);
            let fact = |kind: &str, body| {
                Ok::<_, StoreError>(NewFact {
                    seq: 0,
                    object: Some(machine.into()),
                    mac: Some(row.boot_mac.clone()),
                    kind: kind.to_owned(),
                    step_key: None,
                    attempt,
                    body,
                    observed_at: timestamp(row.last_us)?,
                    wakes: true,
                })
            };
            if let Some(address) = &row.address {
                let claim = fact("claim", json!({"address": address, "boot_id": ""}))?;
                insert(&mut tx, &row.source, &claim).await?;
            }
            insert(&mut tx, &row.source, &fact("result", row.body.clone())?).await?;
            self.wake_by_facts(&mut tx, &[machine.get()], &[]).await?;
        }
        self.commit(tx).await?;
        Ok(adopted.is_some())
    }
}
