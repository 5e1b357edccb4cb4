-- What the engine promises: what plans rest on stays, decisions can be replayed, a budget holds for the whole fleet.

-- Makes the partitions of the coming days, and drops those older than `keep_days`. What plans rest on stays for as long as
-- its object: of each kind, attempt and step the latest fact, of claims the first, of readiness the latest of each level.
-- Any region may call it at any time.
create or replace function maintain_fact_history(keep_days int) returns void language plpgsql as $$
declare
  day     date;
  part    text;
  dropped boolean := false;
begin
  perform pg_advisory_xact_lock(5240, 2);
  for day in select generate_series(current_date + 1, current_date + 3, interval '1 day')::date loop
    part := 'fact_history_' || to_char(day, 'YYYYMMDD');
    if to_regclass(part) is null then
      execute format('create table %I partition of fact_history for values from (%L) to (%L)', part, day, day + 1);
    end if;
  end loop;
  for part in
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'fact_history'::regclass and c.relname ~ '^fact_history_[0-9]{8}$'
      and to_date(right(c.relname, 8), 'YYYYMMDD') < current_date - keep_days
  loop
    execute format(
      'create temporary table fact_kept on commit drop as
       select distinct on (object, kind, attempt, step_key, case when kind = ''readiness'' then body->>''level'' end) f.*
       from %I f where kind <> ''log'' and exists (select from object o where o.uid = f.object)
       order by object, kind, attempt, step_key, case when kind = ''readiness'' then body->>''level'' end,
         case when kind = ''claim'' then id else -id end', part);
    execute format('drop table %I', part);
    insert into fact_history_rest (id, object, mac, kind, source, step_key, attempt, body, observed_at, stored_at)
    select id, object, mac, kind, source, step_key, attempt, body, observed_at, stored_at from fact_kept;
    drop table fact_kept;
    dropped := true;
  end loop;
  delete from fact_history_rest r where stored_at < now() - make_interval(days => keep_days)
    and (kind = 'log' or object is null or not exists (select from object o where o.uid = r.object));
  -- What was outdated since: once a day.
  if dropped then
    delete from fact_history_rest r where stored_at < now() - make_interval(days => keep_days)
      and exists (
        select from fact_history n
        where n.object = r.object and n.kind = r.kind
          and n.attempt is not distinct from r.attempt and n.step_key is not distinct from r.step_key
          and (r.kind <> 'readiness' or n.body->>'level' is not distinct from r.body->>'level')
          and case when r.kind = 'claim' then n.id < r.id else n.id > r.id end);
  end if;
end $$;

-- Why an object could not be worked on the last time; null once it could.
alter table reconcile_queue add column error text;

-- How each reconciled object is, beside its status: what is counted must not be read from ten thousand of those.
create table object_state (
  object  uuid primary key references object on delete cascade,
  kind    text not null,
  phase   text not null,
  stalled boolean not null,
  since   timestamptz not null default now()   -- of the phase
);
create index object_state_kind on object_state (kind, phase);

-- What a decision rested on and no history keeps: specs, image, addresses. The same for many decisions.
create table decision_ground (
  sha256 bytea primary key check (length(sha256) = 32),
  body   json not null
);

-- Every decision that began a step. The object may be gone.
create table decision (
  id         bigint generated always as identity primary key,
  object     uuid not null,
  at         timestamptz not null default clock_timestamp(),
  step_key   text not null,
  epoch      bigint not null,
  generation bigint not null,
  planner    text not null,
  now_us     bigint not null,       -- the planner's
  ground     bytea not null references decision_ground,
  seen       jsonb not null,        -- racks, budget, policy
  facts      bigint[] not null,     -- ids in fact_history
  steps      bigint[] not null,     -- ids in step_record
  delivered  bigint[] not null,     -- when the effects of those were handed over, in microseconds; 0: not yet
  digest     bytea not null,
  plan       jsonb not null
);
create index decision_object on decision (object, id);
create index decision_at on decision (at);
create index decision_on_ground on decision (ground);

-- Machines whose disks are being written, or that wait until they may be. `attempt` is null while one waits.
create table fleet_slot (
  machine uuid primary key references object on delete cascade,
  zone    text not null,
  attempt bigint,
  since   timestamptz not null default clock_timestamp(),
  until   timestamptz
);
create index fleet_slot_zone on fleet_slot (zone, since);

-- What was begun in the last hour, for rates.
create table fleet_start (
  class   text not null check (class in ('destructive', 'power_on')),
  at      timestamptz not null default clock_timestamp(),
  machine uuid not null
);
create index fleet_start_at on fleet_start (class, at);
