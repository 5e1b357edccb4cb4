//! The fleet's budget: how many machines may have their disks written at once, and how many may be powered on per minute.
//!
//! The budget is counted in the transaction that records the step, one such transaction at a time. So all regions together never
//! use more than the budget.

use crate::object::{signed, timestamp, unsigned};
use crate::store::Tx;
use crate::{Store, StoreError};
use basalt_api::values::{Attempt, MachineId, Timestamp, Uid};

/// The limits of the budget; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetLimits {
    /// Machines of one zone whose disks may be written at once.
    pub per_zone: Option<u32>,
    /// Machines of the region whose disks may be written at once.
    pub at_once: Option<u32>,
    /// Attempts to write disks that may begin within an hour.
    pub per_hour: Option<u32>,
    /// Machines that may be powered on within a minute.
    pub power_on_per_minute: Option<u32>,
}

/// The part of the budget that a step needs.
#[derive(Clone, Copy, Debug)]
pub enum Take<'a> {
    /// The disks of a machine are written.
    Disks {
        /// The machine's zone.
        zone: &'a str,
        /// When the attempt ends at the latest, if no report comes.
        until: Timestamp,
        /// The limits of the budget.
        limits: FleetLimits,
    },
    /// A machine is powered on.
    PowerOn {
        /// The limits of the budget.
        limits: FleetLimits,
    },
}

/// A machine's part of the budget, or its place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The attempt that writes its disks; `None`: it waits for the budget.
    pub attempt: Option<Attempt>,
    /// When the machine got the part, or began to wait.
    pub since: Timestamp,
}

/// The used part of the budget, from the view of one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetUse {
    /// Other machines of its zone whose disks are being written; 0 if no limit applies to them.
    pub in_zone: u32,
    /// Other machines of all zones whose disks are being written.
    pub in_region: u32,
    /// When the first of those ends at the latest.
    pub first_ends: Option<Timestamp>,
    /// Until when the limit per hour is reached: then the oldest start no longer counts. `None`: it is not reached.
    pub hour_full_until: Option<Timestamp>,
    /// Until when the limit per minute is reached: then the oldest start no longer counts. `None`: it is not reached.
    pub minute_full_until: Option<Timestamp>,
    /// The machine's own part.
    pub own: Option<Slot>,
}

const HOUR: f64 = 3600.0;
const MINUTE: f64 = 60.0;
const DISKS: &str = "destructive";
const POWER_ON: &str = "power_on";
/// The number of machines to wake when a part becomes free: several may become free at once, and some machines may be unable to go on.
const WOKEN: i64 = 8;

fn exceeds(used: i64, limit: Option<u32>) -> bool {
    limit.is_some_and(|limit| used >= i64::from(limit))
}

/// Takes a step's part of the budget. Returns false if the budget is used up.
pub(crate) async fn take(
    tx: &mut Tx,
    machine: Uid,
    attempt: Option<Attempt>,
    take: &Take<'_>,
) -> Result<bool, StoreError> {
    let machine = machine.get();
    // The counts below must not change before this transaction ends.
    sqlx::query!("select pg_advisory_xact_lock(5240, 3)").fetch_one(&mut **tx).await?;
    let (class, window, limit) = match take {
        Take::Disks { limits, .. } => (DISKS, HOUR, limits.per_hour),
        Take::PowerOn { limits } => (POWER_ON, MINUTE, limits.power_on_per_minute),
    };
    sqlx::query!("delete from fleet_start where at < now() - interval '1 hour'").execute(&mut **tx).await?;
    let begun = sqlx::query_scalar!(
        r#"select count(*) as "n!" from fleet_start where class = $1 and at > now() - make_interval(secs => $2)"#,
        class,
        window
    );
    if exceeds(begun.fetch_one(&mut **tx).await?, limit) {
        return Ok(false);
    }
    if let Take::Disks { zone, until, limits } = take {
        let used = sqlx::query!(
            r#"select count(*) as "region!", count(*) filter (where zone = $2) as "zone!"
               from fleet_slot where attempt is not null and machine <> $1"#,
            machine,
            zone
        );
        let used = used.fetch_one(&mut **tx).await?;
        if exceeds(used.zone, limits.per_zone) || exceeds(used.region, limits.at_once) {
            return Ok(false);
        }
        let hold = sqlx::query!(
            "insert into fleet_slot (machine, zone, attempt, until)
             values ($1, $2, $3, to_timestamp($4::bigint / 1000000.0))
             on conflict (machine) do update
             set zone = excluded.zone, attempt = excluded.attempt, until = excluded.until, since = excluded.since",
            machine,
            zone,
            attempt.map(|a| signed(a.get())),
            until.as_microsecond()
        );
        hold.execute(&mut **tx).await?;
    }
    sqlx::query!("insert into fleet_start (class, machine) values ($1, $2)", class, machine)
        .execute(&mut **tx)
        .await?;
    Ok(true)
}

impl Store {
    /// The used part of the fleet's budget, from the view of a machine of a zone.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn fleet_use(
        &self,
        machine: MachineId,
        zone: &str,
        limits: FleetLimits,
    ) -> Result<FleetUse, StoreError> {
        let own = sqlx::query!(
            r#"select attempt, (extract(epoch from since) * 1000000)::bigint as "since_us!" from fleet_slot where machine = $1"#,
            machine.get()
        );
        let own = own.fetch_optional(self.pool()).await?.map(|row| {
            let attempt = row.attempt.map(|attempt| Attempt::new(unsigned(attempt)));
            Ok::<_, StoreError>(Slot { attempt, since: timestamp(row.since_us)? })
        });
        let (in_zone, in_region, first_ends) = match limits {
            // Without these limits the counts are not needed.
            FleetLimits { per_zone: None, at_once: None, .. } => (0, 0, None),
            FleetLimits { .. } => self.writing(machine, zone).await?,
        };
        Ok(FleetUse {
            in_zone,
            in_region,
            first_ends,
            hour_full_until: self.full_until(DISKS, HOUR, limits.per_hour).await?,
            minute_full_until: self.full_until(POWER_ON, MINUTE, limits.power_on_per_minute).await?,
            own: own.transpose()?,
        })
    }

    /// The other machines whose disks are being written, in the zone and in the region, and when the first of them ends at the latest.
    async fn writing(
        &self,
        machine: MachineId,
        zone: &str,
    ) -> Result<(u32, u32, Option<Timestamp>), StoreError> {
        let row = sqlx::query!(
            r#"select count(*) as "region!", count(*) filter (where zone = $2) as "zone!",
                 (extract(epoch from min(until)) * 1000000)::bigint as until_us
               from fleet_slot where attempt is not null and machine <> $1"#,
            machine.get(),
            zone
        );
        let row = row.fetch_one(self.pool()).await?;
        let count = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
        Ok((count(row.zone), count(row.region), row.until_us.map(timestamp).transpose()?))
    }

    /// Until when the limit of starts per window is reached; `None` if it is not reached.
    async fn full_until(
        &self,
        class: &str,
        window: f64,
        limit: Option<u32>,
    ) -> Result<Option<Timestamp>, StoreError> {
        let Some(limit) = limit else { return Ok(None) };
        let oldest = sqlx::query_scalar!(
            r#"select (extract(epoch from at + make_interval(secs => $2)) * 1000000)::bigint as "us!" from fleet_start
               where class = $1 and at > now() - make_interval(secs => $2) order by at desc offset $3 limit 1"#,
            class,
            window,
            i64::from(limit) - 1
        );
        oldest.fetch_optional(self.pool()).await?.map(timestamp).transpose()
    }

    /// Puts a machine into the queue for the fleet's budget, so that it is woken in its turn.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn await_fleet(&self, machine: MachineId, zone: &str) -> Result<(), StoreError> {
        let insert = sqlx::query!(
            "insert into fleet_slot (machine, zone) values ($1, $2)
             on conflict (machine) do update set zone = excluded.zone, attempt = null, until = null, since = clock_timestamp()
             where fleet_slot.zone <> excluded.zone",
            machine.get(),
            zone
        );
        insert.execute(self.pool()).await?;
        Ok(())
    }

    /// Returns a machine's part of the fleet's budget, and wakes the machines that have waited longest.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn leave_fleet(&self, machine: MachineId) -> Result<(), StoreError> {
        let delete = sqlx::query!("delete from fleet_slot where machine = $1", machine.get());
        let left = delete.execute(self.pool()).await?.rows_affected();
        if left > 0 { self.wake_fleet().await } else { Ok(()) }
    }

    async fn wake_fleet(&self) -> Result<(), StoreError> {
        let wake = sqlx::query!(
            "insert into reconcile_queue as q (kind, object)
             select 'Machine', machine from (
               select machine, row_number() over (partition by zone order by since) as nth from fleet_slot
               where attempt is null) w
             where nth <= $1 order by machine
             on conflict (kind, object) do update
             set wake = q.wake + 1, not_before = least(q.not_before, excluded.not_before)",
            WOKEN
        );
        wake.execute(self.pool()).await?;
        self.touched();
        Ok(())
    }
}
