//! Deliveries to webhooks.
//!
//! The database notes what happens to objects, and for whom, in the transaction that does it (migration 0010). What is here
//! hands deliveries out under leases: of one webhook and object, always the oldest that is not ended, so that their order is kept.

use crate::object::{Object, Row, timestamp, unsigned};
use crate::{Store, StoreError};
use basalt_api::values::{Timestamp, Uid};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::Duration;

/// Deliveries of one webhook that may wait, and dead letters of one webhook that are kept; the oldest go first.
const KEPT: i64 = 100_000;

/// A delivery that this process is to make.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The same at every attempt.
    pub id: Uid,
    /// Which attempt this is, from 1.
    pub attempt: i32,
    /// Rises from event to event of one object.
    pub sequence: i64,
    /// What happened.
    pub event: String,
    /// When.
    pub at: Timestamp,
    /// The trace that it belongs to.
    pub trace: Option<String>,
    /// For how long it has been tried.
    pub age: Duration,
    /// The object as it was then.
    pub object: Object,
}

/// One delivery, for people.
#[derive(Clone, Debug)]
pub struct DeliveryEntry {
    /// Its id.
    pub id: Uid,
    /// `pending`, `delivered` or `dead`.
    pub state: String,
    /// What happened, and when.
    pub event: String,
    /// When.
    pub at: Timestamp,
    /// Its place among events.
    pub sequence: i64,
    /// To which object.
    pub uid: Uid,
    /// Its kind.
    pub kind: String,
    /// Its name then.
    pub name: String,
    /// Attempts so far.
    pub attempts: i32,
    /// When it is tried next, while it is pending.
    pub due: Option<Timestamp>,
    /// When it was accepted, or given up.
    pub ended_at: Option<Timestamp>,
    /// How the last attempt failed.
    pub error: Option<String>,
}

/// How the deliveries of a webhook go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookState {
    /// Accepted, ever.
    pub delivered: u64,
    /// Not ended.
    pub pending: u64,
    /// Given up, and still there.
    pub dead: u64,
    /// When one was accepted last.
    pub last_delivered_at: Option<Timestamp>,
    /// How the last one failed; `None`: it was accepted.
    pub last_error: Option<String>,
    /// The receiver wants no more: since when, and what it said.
    pub disabled: Option<(Timestamp, String)>,
}

/// All webhooks together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WebhookGauge {
    /// Not ended.
    pub pending: i64,
    /// Given up, and still there.
    pub dead: i64,
    /// Since how many seconds the oldest of those that are not ended has waited.
    pub oldest: f64,
}

/// As `webhook_body` has it.
#[derive(Deserialize)]
struct Body {
    manager: Option<String>,
    labels: serde_json::Value,
    spec: Box<RawValue>,
    status: Box<RawValue>,
    observed_generation: i64,
    created_us: i64,
    updated_us: i64,
    deletion_us: Option<i64>,
}

impl Store {
    /// The webhooks that have something to deliver now.
    ///
    /// # Errors
    /// The database.
    pub async fn due_webhooks(&self) -> Result<Vec<Uid>, StoreError> {
        let rows = sqlx::query_scalar!(
            "select w.uid from object w where w.kind = 'Webhook' and w.deletion_requested_at is null and exists (
               select from webhook_delivery d where d.webhook = w.uid and d.state = 'pending' and d.due <= now()
                 and (d.lease_until is null or d.lease_until < now()))"
        );
        Ok(rows.fetch_all(self.pool()).await?.into_iter().map(Uid::from).collect())
    }

    /// How long until a delivery is due; `None` when there is none.
    ///
    /// # Errors
    /// The database.
    pub async fn next_delivery(&self) -> Result<Option<Duration>, StoreError> {
        let query = sqlx::query_scalar!(
            "select extract(epoch from min(greatest(now(), due, lease_until)) - now())::float8 from webhook_delivery
             where state = 'pending'"
        );
        Ok(query.fetch_one(self.pool()).await?.map(|s| Duration::from_secs_f64(s.max(0.0))))
    }

    /// Takes up to `limit` deliveries of a webhook: of each object only the oldest, and none while that is another's.
    ///
    /// # Errors
    /// The database.
    pub async fn claim_deliveries(
        &self,
        webhook: Uid,
        owner: Uid,
        limit: i64,
        lease: Duration,
    ) -> Result<Vec<Delivery>, StoreError> {
        let rows = sqlx::query!(
            r#"with head as (
                 select d.id from webhook_delivery d
                 where d.webhook = $1 and d.state = 'pending' and d.due <= now()
                   and (d.lease_until is null or d.lease_until < now())
                   and not exists (
                     select from webhook_delivery e where e.webhook = d.webhook and e.object = d.object
                       and e.state = 'pending' and e.event < d.event)
                 order by d.due, d.event limit $2 for update of d skip locked
               ), taken as (
                 update webhook_delivery d
                 set lease_owner = $3, lease_until = now() + make_interval(secs => $4), attempts = d.attempts + 1
                 from head where d.id = head.id
                 returning d.id, d.attempts, d.event, extract(epoch from now() - d.since)::float8 as age
               )
               select t.id as "id!", t.attempts as "attempts!", t.age as "age!", e.id as "sequence!", e.object as "uid!",
                 e.kind as "kind!", e.name as "name!", e.generation as "generation!", e.event as "event!",
                 e.body::text as "body!", e.trace, (extract(epoch from e.at) * 1000000)::bigint as "at_us!"
               from taken t join webhook_event e on e.id = t.event order by e.id"#,
            webhook.get(),
            limit,
            owner.get(),
            lease.as_secs_f64()
        );
        let mut deliveries = Vec::new();
        for row in rows.fetch_all(self.pool()).await? {
            let corrupt =
                |error: serde_json::Error| StoreError::Corrupt(format!("an event's object: {error}"));
            let body: Body = serde_json::from_str(&row.body).map_err(corrupt)?;
            let object = Row {
                uid: row.uid,
                kind: row.kind,
                name: row.name,
                manager: body.manager,
                labels: body.labels,
                spec: body.spec.get().to_owned(),
                status: body.status.get().to_owned(),
                generation: row.generation,
                observed_generation: body.observed_generation,
                created_us: body.created_us,
                updated_us: body.updated_us,
                deletion_us: body.deletion_us,
            };
            deliveries.push(Delivery {
                id: Uid::from(row.id),
                attempt: row.attempts,
                sequence: row.sequence,
                event: row.event,
                at: timestamp(row.at_us)?,
                trace: row.trace,
                age: Duration::from_secs_f64(row.age.max(0.0)),
                object: object.object()?,
            });
        }
        Ok(deliveries)
    }

    /// A delivery was accepted; what waited behind it is due. Nothing, when its lease went to another attempt meanwhile.
    ///
    /// # Errors
    /// The database.
    pub async fn delivered(&self, webhook: Uid, delivery: &Delivery) -> Result<(), StoreError> {
        self.end_delivery(webhook, delivery, "delivered", None).await
    }

    /// A delivery is given up; what waited behind it is due.
    ///
    /// # Errors
    /// The database.
    pub async fn give_up(&self, webhook: Uid, delivery: &Delivery, error: &str) -> Result<(), StoreError> {
        self.end_delivery(webhook, delivery, "dead", Some(error)).await
    }

    async fn end_delivery(
        &self,
        webhook: Uid,
        delivery: &Delivery,
        state: &str,
        error: Option<&str>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let update = sqlx::query!(
            "update webhook_delivery set state = $3, last_error = $4, ended_at = now(), lease_owner = null, lease_until = null
             where id = $1 and attempts = $2 and state = 'pending'",
            delivery.id.get(),
            delivery.attempt,
            state,
            error
        );
        if update.execute(&mut *tx).await?.rows_affected() == 0 {
            return Ok(());
        }
        let behind = sqlx::query!(
            "update webhook_delivery set due = now()
             where webhook = $1 and object = $2 and state = 'pending' and due > now()",
            webhook.get(),
            delivery.object.uid.get()
        );
        behind.execute(&mut *tx).await?;
        let count = sqlx::query!(
            "insert into webhook_state as s (webhook, delivered, last_delivered_at, last_error)
             values ($1, $2, case when $2::bigint = 1 then now() end, $3)
             on conflict (webhook) do update set delivered = s.delivered + excluded.delivered,
               last_delivered_at = coalesce(excluded.last_delivered_at, s.last_delivered_at), last_error = excluded.last_error",
            webhook.get(),
            i64::from(state == "delivered"),
            error
        );
        count.execute(&mut *tx).await?;
        self.commit(tx).await
    }

    /// A delivery failed, and is tried again after `pause`; what waits behind it need not be looked at before.
    ///
    /// # Errors
    /// The database.
    pub async fn delivery_failed(
        &self,
        webhook: Uid,
        delivery: &Delivery,
        error: &str,
        pause: Duration,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let update = sqlx::query!(
            "update webhook_delivery set due = now() + make_interval(secs => $3), last_error = $4,
               lease_owner = null, lease_until = null
             where id = $1 and attempts = $2 and state = 'pending'",
            delivery.id.get(),
            delivery.attempt,
            pause.as_secs_f64(),
            error
        );
        if update.execute(&mut *tx).await?.rows_affected() == 0 {
            return Ok(());
        }
        let behind = sqlx::query!(
            "update webhook_delivery set due = now() + make_interval(secs => $4)
             where webhook = $1 and object = $2 and event > $3 and state = 'pending'",
            webhook.get(),
            delivery.object.uid.get(),
            delivery.sequence,
            pause.as_secs_f64()
        );
        behind.execute(&mut *tx).await?;
        let note = sqlx::query!(
            "insert into webhook_state as s (webhook, last_error) values ($1, $2)
             on conflict (webhook) do update set last_error = excluded.last_error",
            webhook.get(),
            error
        );
        note.execute(&mut *tx).await?;
        self.commit(tx).await
    }

    /// The receiver wants no more: what waits becomes dead letters, and nothing new is noted for it until its spec
    /// changes or somebody asks for redelivery.
    ///
    /// # Errors
    /// The database.
    pub async fn disable_webhook(&self, webhook: Uid, reason: &str) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let note = sqlx::query!(
            "insert into webhook_state as s (webhook, last_error, disabled_at, disabled_reason) values ($1, $2, now(), $2)
             on conflict (webhook) do update set last_error = excluded.last_error, disabled_at = excluded.disabled_at,
               disabled_reason = excluded.disabled_reason",
            webhook.get(),
            reason
        );
        note.execute(&mut *tx).await?;
        let end = sqlx::query!(
            "update webhook_delivery set state = 'dead', last_error = $2, ended_at = now(), lease_owner = null,
               lease_until = null
             where webhook = $1 and state = 'pending'",
            webhook.get(),
            reason
        );
        end.execute(&mut *tx).await?;
        self.commit(tx).await
    }

    /// Has dead letters delivered again: one, or all; says how many. A receiver that wanted no more is asked again.
    /// Or only tries that, and rolls it back.
    ///
    /// # Errors
    /// `NotFound` for an id that is no dead letter of this webhook, or the database.
    pub async fn redeliver(&self, webhook: Uid, id: Option<Uid>, dry_run: bool) -> Result<u64, StoreError> {
        let mut tx = self.begin().await?;
        let before = sqlx::query!(
            r#"select (select count(*) from webhook_delivery where webhook = $1 and state = 'dead') as "failed!",
                      (select disabled_reason from webhook_state where webhook = $1) as disabled"#,
            webhook.get()
        );
        let before = before.fetch_one(&mut *tx).await?;
        let update = sqlx::query!(
            "update webhook_delivery set state = 'pending', attempts = 0, due = now(), since = now(), ended_at = null
             where webhook = $1 and state = 'dead' and (id = $2 or $2::uuid is null)",
            webhook.get(),
            id.map(Uid::get)
        );
        let again = update.execute(&mut *tx).await?.rows_affected();
        if let (Some(id), 0) = (id, again) {
            return Err(StoreError::NotFound { kind: "dead delivery".to_owned(), name: id.to_string() });
        }
        let enable = sqlx::query!(
            "update webhook_state set disabled_at = null, disabled_reason = null
             where webhook = $1 and disabled_at is not null",
            webhook.get()
        );
        let enabled = enable.execute(&mut *tx).await?.rows_affected();
        if (again, enabled) != (0, 0) && self.actor().is_some() {
            let row =
                crate::object::select_objects!("where uid = $1", webhook.get()).fetch_one(&mut *tx).await?;
            let failed = unsigned(before.failed);
            let (before, after) = (
                serde_json::json!({ "failed": failed, "disabled": before.disabled }),
                serde_json::json!({ "failed": failed.saturating_sub(again), "disabled": null }),
            );
            self.audit(&mut tx, &[crate::audit::Written::beside(&row, &before, &after)]).await?;
        }
        self.end(tx, dry_run).await?;
        Ok(again)
    }

    /// Deliveries of a webhook, the newest event first.
    ///
    /// # Errors
    /// The database.
    pub async fn deliveries(
        &self,
        webhook: Uid,
        state: Option<&str>,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<DeliveryEntry>, StoreError> {
        let rows = sqlx::query!(
            r#"select d.id, d.state, d.attempts, d.last_error, e.id as sequence, e.event, e.object, e.kind, e.name,
                 (extract(epoch from e.at) * 1000000)::bigint as "at_us!",
                 (extract(epoch from d.due) * 1000000)::bigint as "due_us!",
                 (extract(epoch from d.ended_at) * 1000000)::bigint as ended_us
               from webhook_delivery d join webhook_event e on e.id = d.event
               where d.webhook = $1 and (d.state = $2 or $2::text is null) and (d.event < $3 or $3::bigint is null)
               order by d.event desc limit $4"#,
            webhook.get(),
            state,
            before,
            limit
        );
        let mut entries = Vec::new();
        for r in rows.fetch_all(self.pool()).await? {
            let due = if r.state == "pending" { Some(timestamp(r.due_us)?) } else { None };
            entries.push(DeliveryEntry {
                id: Uid::from(r.id),
                state: r.state,
                event: r.event,
                at: timestamp(r.at_us)?,
                sequence: r.sequence,
                uid: Uid::from(r.object),
                kind: r.kind,
                name: r.name,
                attempts: r.attempts,
                due,
                ended_at: r.ended_us.map(timestamp).transpose()?,
                error: r.last_error,
            });
        }
        Ok(entries)
    }

    /// How the deliveries of these webhooks go; those of which there is nothing to say are left out.
    ///
    /// # Errors
    /// The database.
    pub async fn webhook_states(&self, webhooks: &[Uid]) -> Result<BTreeMap<Uid, WebhookState>, StoreError> {
        let uids: Vec<uuid::Uuid> = webhooks.iter().map(|uid| uid.get()).collect();
        let rows = sqlx::query!(
            r#"select u.uid as "uid!", s.delivered as "delivered?", s.last_error, s.disabled_reason,
                 (extract(epoch from s.last_delivered_at) * 1000000)::bigint as last_us,
                 (extract(epoch from s.disabled_at) * 1000000)::bigint as disabled_us,
                 (select count(*) from webhook_delivery d where d.webhook = u.uid and d.state = 'pending') as "pending!",
                 (select count(*) from webhook_delivery d where d.webhook = u.uid and d.state = 'dead') as "dead!"
               from unnest($1::uuid[]) u(uid) left join webhook_state s on s.webhook = u.uid"#,
            &uids
        );
        let mut states = BTreeMap::new();
        for r in rows.fetch_all(self.pool()).await? {
            let disabled = match (r.disabled_us, r.disabled_reason) {
                (Some(at), reason) => Some((timestamp(at)?, reason.unwrap_or_default())),
                (None, _) => None,
            };
            let state = WebhookState {
                delivered: unsigned(r.delivered.unwrap_or_default()),
                pending: unsigned(r.pending),
                dead: unsigned(r.dead),
                last_delivered_at: r.last_us.map(timestamp).transpose()?,
                last_error: r.last_error,
                disabled,
            };
            states.insert(Uid::from(r.uid), state);
        }
        Ok(states)
    }

    /// All webhooks together.
    ///
    /// # Errors
    /// The database.
    pub async fn webhook_gauge(&self) -> Result<WebhookGauge, StoreError> {
        let row = sqlx::query_as!(
            WebhookGauge,
            r#"select count(*) filter (where d.state = 'pending') as "pending!",
                 count(*) filter (where d.state = 'dead') as "dead!",
                 coalesce(extract(epoch from now() - min(d.since) filter (where d.state = 'pending')), 0)::float8 as "oldest!"
               from webhook_delivery d where d.state <> 'delivered'"#
        );
        Ok(row.fetch_one(self.pool()).await?)
    }

    /// Forgets deliveries that were accepted longer than `delivered` ago, and dead letters older than `dead`; of one
    /// webhook, all but the newest hundred thousand that wait become dead letters, and as many of those are kept.
    ///
    /// # Errors
    /// The database.
    pub async fn prune_deliveries(&self, delivered: Duration, dead: Duration) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let overflow = sqlx::query!(
            "update webhook_delivery set state = 'dead', ended_at = now(), lease_owner = null, lease_until = null,
               last_error = 'more deliveries waited than are kept'
             from (select w.uid, (select e.event from webhook_delivery e where e.webhook = w.uid and e.state = 'pending'
                     order by e.event desc offset $1 limit 1) as through from object w where w.kind = 'Webhook') o
             where webhook = o.uid and state = 'pending' and event <= o.through",
            KEPT
        );
        overflow.execute(&mut *tx).await?;
        let old = sqlx::query!(
            "delete from webhook_delivery d
             where (d.state = 'delivered' and d.ended_at < now() - make_interval(secs => $1))
                or (d.state = 'dead' and d.ended_at < now() - make_interval(secs => $2))
                or not exists (select from object w where w.uid = d.webhook)",
            delivered.as_secs_f64(),
            dead.as_secs_f64()
        );
        old.execute(&mut *tx).await?;
        let surplus = sqlx::query!(
            "delete from webhook_delivery d
             using (select w.uid, (select e.event from webhook_delivery e where e.webhook = w.uid and e.state = 'dead'
                      order by e.event desc offset $1 limit 1) as through from object w where w.kind = 'Webhook') o
             where d.webhook = o.uid and d.state = 'dead' and d.event <= o.through",
            KEPT
        );
        surplus.execute(&mut *tx).await?;
        let told = sqlx::query!(
            "delete from webhook_event e where not exists (select from webhook_delivery d where d.event = e.id)"
        );
        told.execute(&mut *tx).await?;
        self.commit(tx).await
    }

    /// Gives back the deliveries that `owner` has taken.
    pub(crate) async fn release_deliveries(&self, owner: Uid) -> Result<(), StoreError> {
        let update = sqlx::query!(
            "update webhook_delivery set lease_owner = null, lease_until = null where lease_owner = $1",
            owner.get()
        );
        update.execute(self.pool()).await?;
        Ok(())
    }
}
