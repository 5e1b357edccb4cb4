-- The region's store. Invariants are constraints here; the code only explains them.
-- Migrations expand first and contract a release later: two region versions run side by side during an upgrade.

create extension if not exists btree_gist;

create type inetrange as range (subtype = inet);

-- One row, made by the first migration of a database.
create table region_meta (
  only_row    boolean primary key default true check (only_row),
  incarnation uuid not null default gen_random_uuid(),
  created_at  timestamptz not null default now(),
  seal_check  bytea            -- a known text sealed with the seal key: a wrong key is noticed at start
);
insert into region_meta default values;

-- Every kind's objects. `spec` is kept byte for byte as a client declared it (json, not jsonb), secrets replaced by
-- their read form.
create table object (
  uid                   uuid primary key,
  kind                  text not null,
  name                  text not null,
  manager               text,
  labels                jsonb not null default '{}',   -- {manager: {key: value}}
  spec                  json not null,
  status                json not null default '{}',
  generation            bigint not null default 1 check (generation > 0),
  observed_generation   bigint not null default 0,
  created_at            timestamptz not null default now(),
  updated_at            timestamptz not null default now(),
  deletion_requested_at timestamptz,
  unique (kind, name)
);

-- References by uid: what is referred to cannot leave, and may be renamed.
create table object_ref (
  from_uid uuid not null references object on delete cascade,
  pointer  text not null,
  to_uid   uuid not null references object on delete restrict,
  primary key (from_uid, pointer)
);
create index object_ref_to on object_ref (to_uid);

-- A MAC address boots one machine.
create table machine_mac (
  mac     macaddr primary key,
  machine uuid not null references object on delete cascade,
  pointer text not null
);
create index machine_mac_machine on machine_mac (machine);

create table vlan_vid (
  vlan   uuid primary key references object on delete cascade,
  fabric uuid not null references object on delete restrict,
  vid    int not null check (vid between 0 and 4095),
  constraint vlan_vid_once unique (fabric, vid)
);

-- Subnets of a fabric do not overlap; two fabrics may use the same addresses.
create table subnet_cidr (
  subnet uuid primary key references object on delete cascade,
  fabric uuid not null references object on delete restrict,
  cidr   cidr not null,
  constraint subnet_cidr_disjoint exclude using gist (fabric with =, (cidr::inet) inet_ops with &&)
);

-- Ranges of a subnet do not overlap.
create table ip_range (
  range   uuid primary key references object on delete cascade,
  subnet  uuid not null references object on delete restrict,
  purpose text not null,
  span    inetrange not null,
  constraint ip_range_disjoint exclude using gist (subnet with =, span with &&)
);

-- One owner per address.
create table address (
  subnet     uuid not null references object on delete restrict,
  address    inet not null check (masklen(address) = case family(address) when 4 then 32 else 128 end),
  owner      uuid not null references object on delete cascade,
  purpose    text not null,
  mac        macaddr,
  hostname   text,
  created_at timestamptz not null default now(),
  primary key (subnet, address),
  unique (owner, subnet, purpose)
);

-- One live deployment per machine.
create table machine_claim (
  machine    uuid primary key references object on delete restrict,
  deployment uuid not null unique references object on delete cascade,
  epoch      bigint not null,
  claimed_at timestamptz not null default now()
);

-- What changed, in an order a follower can rely on: `seq` is drawn after the object's row is written, so positions of
-- one object never go backwards. Read it only as basalt_db::follower does.
create table change_log (
  seq        bigint generated always as identity primary key,
  object     uuid not null,
  kind       text not null,
  name       text not null,
  op         text not null check (op in ('put', 'status', 'delete')),
  generation bigint not null,
  at         timestamptz not null default clock_timestamp()
);

-- What was observed: the latest per (object, kind, source), and a history in daily partitions.
create table fact_latest (
  object      uuid not null references object on delete cascade,
  kind        text not null,
  source      text not null,
  id          bigint not null,
  step_key    text,
  attempt     bigint,
  body        jsonb not null,
  observed_at timestamptz not null,   -- by the source's clock: shown, never compared
  stored_at   timestamptz not null,
  primary key (object, kind, source)
);

create sequence fact_id as bigint;
create table fact_history (
  id          bigint not null default nextval('fact_id'),
  object      uuid,                   -- null: nobody's MAC yet
  mac         macaddr,
  kind        text not null,
  source      text not null,
  step_key    text,
  attempt     bigint,
  body        jsonb not null,
  observed_at timestamptz not null,
  stored_at   timestamptz not null default now(),
  primary key (stored_at, id)
) partition by range (stored_at);
create index fact_history_object on fact_history (object, id);
create index fact_history_step on fact_history (object, step_key) where step_key is not null;
create table fact_history_rest partition of fact_history default;

-- Makes the partitions of the coming days, and drops those older than `keep_days`. Any region may call it at any time.
create function maintain_fact_history(keep_days int) returns void language plpgsql as $$
declare
  day  date;
  part text;
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
    execute format('drop table %I', part);
  end loop;
  delete from fact_history_rest where stored_at < now() - make_interval(days => keep_days);
end $$;

-- How far each rack's spool is stored.
create table rack_spool (
  rack        uuid not null references object on delete cascade,
  spool       uuid not null,
  through_seq bigint not null,
  updated_at  timestamptz not null default now(),
  primary key (rack, spool)
);

-- Region-wide sequences. Epochs fence: a per-row counter would go backwards when its row is deleted.
create sequence epoch as bigint;
create sequence attempt as bigint;

create table reconcile_queue (
  kind        text not null,
  object      uuid not null,
  wake        bigint not null default 1,   -- bumped by every enqueue, so that no wake-up is lost during handling
  not_before  timestamptz not null default now(),
  lease_owner uuid,
  lease_epoch bigint not null default 0,
  lease_until timestamptz,
  attempts    int not null default 0,      -- claims since the last finish: a handler that keeps dying shows here
  primary key (kind, object)
);
create index reconcile_queue_due on reconcile_queue (not_before);

-- The bytes a rack is told, exactly as sent.
create table rack_concern (
  rack       uuid not null references object on delete cascade,
  concern    text not null,
  generation bigint not null,
  sha256     bytea not null check (length(sha256) = 32),
  body       bytea not null,
  updated_at timestamptz not null default now(),
  primary key (rack, concern)
);

-- What a rack answered to the concerns it was sent.
create table rack_concern_ack (
  rack       uuid not null references object on delete cascade,
  concern    text not null,
  generation bigint not null,
  outcome    text not null,
  message    text not null,
  at         timestamptz not null default now(),
  primary key (rack, concern)
);

-- What the driver announced, started and finished.
create table step_record (
  id           bigint generated always as identity primary key,
  object       uuid not null references object on delete cascade,
  step_key     text not null,
  epoch        bigint not null,
  attempt      bigint,
  detail       jsonb not null default '{}',
  announced_at timestamptz not null default now(),
  started_at   timestamptz,
  finished_at  timestamptz,
  outcome      jsonb,
  unique (object, step_key, epoch)
);

-- Plaintexts of secret fields, sealed by a key that is not in the database.
create table secret (
  object   uuid not null references object on delete cascade,
  pointer  text not null,
  revision bigint not null,
  sealed   bytea not null,
  primary key (object, pointer)
);

create table blob (
  sha256     bytea primary key check (length(sha256) = 32),
  size       bigint not null check (size >= 0),
  location   text not null,
  created_at timestamptz not null default now()
);

create table api_token (
  id           uuid primary key default gen_random_uuid(),
  name         text not null,
  sha256       bytea not null unique check (length(sha256) = 32),
  role         text not null check (role in ('admin', 'operator', 'viewer')),
  created_at   timestamptz not null default now(),
  expires_at   timestamptz,
  last_used_at timestamptz
);

-- One-time secrets that let a rack enrol.
create table join_secret (
  sha256     bytea primary key check (length(sha256) = 32),
  rack_name  text,                       -- null: any name
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  used_by    bytea                       -- the key that used it: repeating the same request is answered the same
);

create table rack_enrolment (
  rack            uuid primary key references object on delete cascade,
  spki_sha256     bytea not null unique,
  cert_sha256     bytea not null,
  certificate_der bytea not null,
  not_after       timestamptz not null,
  revoked_at      timestamptz,
  enrolled_at     timestamptz not null default now()
);

-- Region processes that live; racks dial them all.
create table region_process (
  id          uuid primary key,
  rpc_address text not null,
  api_address text not null,
  version     text not null,
  incarnation uuid not null,
  started_at  timestamptz not null default now(),
  heartbeat   timestamptz not null default now()
);
