-- Deliveries to webhooks, and the trace that work belongs to.
--
-- What happens to an object is noted by the transaction that does it, so that nothing is lost and nothing is told that did
-- not happen; whichever region wrote it. Events of one object are numbered while its row is locked: in the order in which
-- they happened. Without a Webhook that wants it, nothing is noted.

-- What happened, with the object as it was then.
create table webhook_event (
  id         bigint generated always as identity primary key,
  at         timestamptz not null default clock_timestamp(),
  object     uuid not null,
  kind       text not null,
  name       text not null,
  generation bigint not null,
  event      text not null check (event in ('created', 'changed', 'ready', 'stalled', 'deleted')),
  body       json not null,
  trace      text default nullif(current_setting('basalt.trace', true), '')
);

-- No foreign key to the Webhook: every writer would lock its row.
create table webhook_delivery (
  id          uuid primary key default gen_random_uuid(),
  webhook     uuid not null,
  event       bigint not null references webhook_event on delete cascade,
  object      uuid not null,
  state       text not null default 'pending' check (state in ('pending', 'delivered', 'dead')),
  attempts    int not null default 0,              -- the claims; (id, attempts) fences
  due         timestamptz not null default now(),
  since       timestamptz not null default now(),  -- from here its patience is counted
  lease_owner uuid,
  lease_until timestamptz,
  last_error  text,
  ended_at    timestamptz,
  unique (webhook, event)
);
create index webhook_delivery_due on webhook_delivery (webhook, due, event) where state = 'pending';
create index webhook_delivery_order on webhook_delivery (webhook, object, event) where state = 'pending';
create index webhook_delivery_ended on webhook_delivery (webhook, state, event) where state <> 'pending';
create index webhook_delivery_event on webhook_delivery (event);
create index webhook_delivery_lease on webhook_delivery (lease_owner) where lease_owner is not null;

-- How deliveries go.
create table webhook_state (
  webhook           uuid primary key,
  delivered         bigint not null default 0,
  last_delivered_at timestamptz,
  last_error        text,                          -- null: the last one was accepted
  disabled_at       timestamptz,
  disabled_reason   text
);

create function condition_holds(status json, condition text) returns boolean language sql immutable as $$
  select exists (
    select from json_array_elements(
      case json_typeof(status -> 'conditions') when 'array' then status -> 'conditions' else '[]' end) c
    where c ->> 'type' = condition and c ->> 'status' = 'true')
$$;

create function webhook_wants(spec json, event text) returns boolean language sql immutable as $$
  select case json_typeof(spec -> 'events')
    when 'array' then json_array_length(spec -> 'events') = 0 or (spec -> 'events')::jsonb ? event
    else true end
$$;

create function webhook_body(
  manager text, labels jsonb, spec json, status json, observed_generation bigint,
  created_at timestamptz, updated_at timestamptz, deletion_requested_at timestamptz
) returns json language sql stable as $$
  select json_build_object('manager', manager, 'labels', labels, 'spec', spec, 'status', status,
    'observed_generation', observed_generation,
    'created_us', (extract(epoch from created_at) * 1000000)::bigint,
    'updated_us', (extract(epoch from updated_at) * 1000000)::bigint,
    'deletion_us', (extract(epoch from deletion_requested_at) * 1000000)::bigint)
$$;

-- Around every write of objects. No nested loops: a plan that was made for one object would serve ten thousand.
create function note_events() returns trigger language plpgsql
  set enable_nestloop = off set jit = off as $$
declare
  wanted text[];
begin
  if not exists (select from object where kind = 'Webhook') and tg_op <> 'DELETE' then
    return null;
  end if;
  if tg_op = 'UPDATE' then
    -- A receiver that was declared anew gets another chance.
    update webhook_state s set disabled_at = null, disabled_reason = null
    from come n join gone o on o.uid = n.uid
    where n.kind = 'Webhook' and n.generation <> o.generation and s.webhook = n.uid and s.disabled_at is not null;
  end if;
  wanted := array(
    select e from unnest(array['created', 'changed', 'ready', 'stalled', 'deleted']) e
    where exists (
      select from object w where w.kind = 'Webhook' and w.deletion_requested_at is null and webhook_wants(w.spec, e)
        and not exists (select from webhook_state s where s.webhook = w.uid and s.disabled_at is not null)));
  if tg_op = 'INSERT' then
    insert into webhook_event (object, kind, name, generation, event, body)
    select n.uid, n.kind, n.name, n.generation, e.event, webhook_body(n.manager, n.labels, n.spec, n.status,
      n.observed_generation, n.created_at, n.updated_at, n.deletion_requested_at)
    from come n cross join lateral (values
      (1, 'created', true),
      (2, 'ready', n.observed_generation >= n.generation and condition_holds(n.status, 'Ready')),
      (3, 'stalled', condition_holds(n.status, 'Stalled'))) e(place, event, holds)
    where e.event = any(wanted) and e.holds order by n.uid, e.place;
  elsif tg_op = 'UPDATE' then
    insert into webhook_event (object, kind, name, generation, event, body)
    select n.uid, n.kind, n.name, n.generation, e.event, webhook_body(n.manager, n.labels, n.spec, n.status,
      n.observed_generation, n.created_at, n.updated_at, n.deletion_requested_at)
    from come n join gone o on o.uid = n.uid cross join lateral (values
      (1, 'changed', n.generation <> o.generation or n.name <> o.name or n.labels <> o.labels
         or n.deletion_requested_at is distinct from o.deletion_requested_at),
      (2, 'ready', n.observed_generation >= n.generation and condition_holds(n.status, 'Ready')
         and not (o.observed_generation >= o.generation and condition_holds(o.status, 'Ready'))),
      (3, 'stalled', condition_holds(n.status, 'Stalled') and not condition_holds(o.status, 'Stalled')))
      e(place, event, holds)
    where e.event = any(wanted) and e.holds order by n.uid, e.place;
  else
    delete from webhook_delivery d using gone o where o.kind = 'Webhook' and d.webhook = o.uid;
    delete from webhook_state s using gone o where o.kind = 'Webhook' and s.webhook = o.uid;
    if 'deleted' = any(wanted) then
      insert into webhook_event (object, kind, name, generation, event, body)
      select o.uid, o.kind, o.name, o.generation, 'deleted', webhook_body(o.manager, o.labels, o.spec, o.status,
        o.observed_generation, o.created_at, o.updated_at, o.deletion_requested_at)
      from gone o order by o.uid;
    end if;
  end if;
  return null;
end $$;

create trigger object_events_come after insert on object
  referencing new table as come for each statement execute function note_events();
create trigger object_events_change after update on object
  referencing old table as gone new table as come for each statement execute function note_events();
create trigger object_events_gone after delete on object
  referencing old table as gone for each statement execute function note_events();

-- One delivery for each Webhook that wants the event.
create function note_deliveries() returns trigger language plpgsql as $$
begin
  insert into webhook_delivery (webhook, event, object)
  select w.uid, e.id, e.object from object w join come e on webhook_wants(w.spec, e.event)
  where w.kind = 'Webhook' and w.deletion_requested_at is null
    and not exists (select from webhook_state s where s.webhook = w.uid and s.disabled_at is not null)
  order by e.id, w.uid;
  return null;
end $$;
create trigger webhook_event_deliveries after insert on webhook_event
  referencing new table as come for each statement execute function note_deliveries();

-- The trace (W3C traceparent) that asked for something: of the transaction's `basalt.trace`, where it is traced.
alter table change_log add column trace text default nullif(current_setting('basalt.trace', true), '');
alter table reconcile_queue add column trace text default nullif(current_setting('basalt.trace', true), '');
alter table reconcile_queue add column traced_at timestamptz
  default case when current_setting('basalt.trace', true) <> '' then now() end;
alter table rack_concern add column trace text default nullif(current_setting('basalt.trace', true), '');
