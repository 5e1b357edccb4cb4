//! Deliveries to webhooks.
//!
//! The transaction that changes an object also writes its deliveries to the database (migration 0010). This module hands
//! deliveries out under leases: for each webhook and object, only the oldest that has not ended, so that their order is kept.

use crate::object::{Object, Row, timestamp, unsigned};
use crate::{Store, StoreError};
use basalt_api::values::{Timestamp, Uid};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::Duration;

/// The limit of waiting deliveries of one webhook, and of its dead letters. Beyond it, the oldest go first.
const KEPT: i64 = 100_000;

/// A delivery that this process is to make.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The delivery's id, the same at every attempt.
    pub id: Uid,
    /// The number of this attempt, from 1.
    pub attempt: i32,
    /// The event's number; it rises from event to event of one object.
    pub sequence: i64,
    /// The type of the event.
    pub event: String,
    /// When the event happened.
    pub at: Timestamp,
    /// The trace that the event belongs to.
    pub trace: Option<String>,
    /// How long ago the delivery began to wait.
    pub age: Duration,
    /// The object as it was then.
    pub object: Object,
}

/// One delivery, as the API shows it.
#[derive(Clone, Debug)]
pub struct DeliveryEntry {
    /// The delivery's id.
    pub id: Uid,
    /// `pending`, `delivered` or `dead`.
    pub state: String,
    /// The type of the event.
    pub event: String,
    /// When the event happened.
    pub at: Timestamp,
    /// The event's number; it rises from event to event.
    pub sequence: i64,
    /// The object of the event.
    pub uid: Uid,
    /// The object's kind.
    pub kind: String,
    /// The object's name at the time of the event.
    pub name: String,
    /// The number of attempts so far.
    pub attempts: i32,
    /// When the next attempt is due, while the delivery is pending.
    pub due: Option<Timestamp>,
    /// When the receiver accepted it, or when it was given up.
    pub ended_at: Option<Timestamp>,
    /// The error of the last attempt.
    pub error: Option<String>,
}

/// The counters and last results of one webhook's deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookState {
    /// The number of deliveries ever accepted.
    pub delivered: u64,
    /// The number of deliveries that have not ended.
    pub pending: u64,
    /// The number of dead letters that are kept.
    pub dead: u64,
    /// When the receiver last accepted a delivery.
    pub last_delivered_at: Option<Timestamp>,
    /// The error of the last delivery; `None`: it was accepted.
    pub last_error: Option<String>,
    /// When the receiver refused all further deliveries, and its answer. `None`: it has not.
    pub disabled: Option<(Timestamp, String)>,
}

/// Counts over all webhooks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WebhookGauge {
    /// The number of deliveries that have not ended.
    pub pending: i64,
    /// The number of dead letters that are kept.
    pub dead: i64,
    /// The age of the oldest delivery that has not ended, in seconds.
    pub oldest: f64,
}

/// The JSON that the SQL function `webhook_body` writes.
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
    /// The webhooks that have a delivery due now.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn due_webhooks(&self) -> Result<Vec<Uid>, StoreError> {
        let rows = sqlx::query_scalar!(
            "select w.uid from object w where w.kind = 'Webhook' and w.deletion_requested_at is null and exists (
               select from webhook_delivery d where d.webhook = w.uid and d.state = 'pending' and d.due <= now()
                 and (d.lease_until is null or d.lease_until < now()))"
        );
        Ok(rows.fetch_all(self.pool()).await?.into_iter().map(Uid::from).collect())
    }

    /// The time until the next delivery is due; `None` when none waits.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn next_delivery(&self) -> Result<Option<Duration>, StoreError> {
        let query = sqlx::query_scalar!(
            "select extract(epoch from min(greatest(now(), due, lease_until)) - now())::float8 from webhook_delivery
             where state = 'pending'"
        );
        Ok(query.fetch_one(self.pool()).await?.map(|s| Duration::from_secs_f64(s.max(0.0))))
    }

    /// Takes up to `limit` deliveries of a webhook: of each object only the oldest, and no delivery that another process holds.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
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

    /// Ends a delivery as accepted; the next one of its object becomes due. Does nothing if another attempt took the lease meanwhile.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn delivered(&self, webhook: Uid, delivery: &Delivery) -> Result<(), StoreError> {
        self.end_delivery(webhook, delivery, "delivered", None).await
    }

    /// Gives a delivery up: it becomes a dead letter, and the next one of its object becomes due.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
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

    /// Notes that an attempt failed. The next one is due after `pause`; later deliveries of the same object wait as long.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
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

    /// Disables a webhook whose receiver refuses further deliveries: the waiting ones become dead letters. New events make no deliveries
    /// for it until its spec changes or a person asks for redelivery.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
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

    /// Delivers dead letters again: one, or all. Returns how many. A disabled webhook is enabled again. A dry run does the same and
    /// rolls it back.
    ///
    /// # Errors
    /// `NotFound` if `id` is not a dead letter of this webhook; fails too if the database cannot be written.
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

    /// Deletes dead letters: one, or all. Returns how many. A dry run does the same and rolls it back.
    ///
    /// # Errors
    /// `NotFound` if `id` is not a dead letter of this webhook; fails too if the database cannot be written.
    pub async fn discard(&self, webhook: Uid, id: Option<Uid>, dry_run: bool) -> Result<u64, StoreError> {
        let mut tx = self.begin().await?;
        let delete = sqlx::query!(
            "delete from webhook_delivery where webhook = $1 and state = 'dead' and (id = $2 or $2::uuid is null)",
            webhook.get(),
            id.map(Uid::get)
        );
        let gone = delete.execute(&mut *tx).await?.rows_affected();
        if let (Some(id), 0) = (id, gone) {
            return Err(StoreError::NotFound { kind: "dead delivery".to_owned(), name: id.to_string() });
        }
        if gone != 0 && self.actor().is_some() {
            let count = sqlx::query_scalar!(
                r#"select count(*) as "count!" from webhook_delivery where webhook = $1 and state = 'dead'"#,
                webhook.get()
            );
            let left = unsigned(count.fetch_one(&mut *tx).await?);
            let row =
                crate::object::select_objects!("where uid = $1", webhook.get()).fetch_one(&mut *tx).await?;
            let (before, after) =
                (serde_json::json!({ "failed": left + gone }), serde_json::json!({ "failed": left }));
            self.audit(&mut tx, &[crate::audit::Written::beside(&row, &before, &after)]).await?;
        }
        self.end(tx, dry_run).await?;
        Ok(gone)
    }

    /// Deliveries of a webhook, newest event first.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
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

    /// The state of the deliveries of these webhooks. Webhooks without any are left out.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
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

    /// Counts over all webhooks.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
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

    /// Forgets deliveries that were accepted longer than `delivered` ago, and dead letters older than `dead`. If a webhook has over
    /// 100,000 waiting deliveries, the older ones become dead letters; of those, the newest 100,000 are kept.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
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

    /// Gives up the leases of `owner`, so that other processes can take the deliveries.
    pub(crate) async fn release_deliveries(&self, owner: Uid) -> Result<(), StoreError> {
        let update = sqlx::query!(
            "update webhook_delivery set lease_owner = null, lease_until = null where lease_owner = $1",
            owner.get()
        );
        update.execute(self.pool()).await?;
        Ok(())
    }
}
