-- What the engine's driver keeps besides facts and step records.

-- The region's certificate authority; its key is sealed.
create table authority (
  only_row        boolean primary key default true check (only_row),
  certificate_der bytea not null,
  sealed_key      bytea not null
);

-- What racks are to boot on a machine: the plan's last word. `settled` once every rack that matters has applied it.
create table machine_boot (
  machine    uuid primary key references object on delete cascade,
  action     jsonb not null,
  epoch      bigint not null,
  settled    boolean not null default false,
  changed_at timestamptz not null default now()
);
create index machine_boot_unsettled on machine_boot (machine) where not settled;

-- What a person or a release said about a machine that its spec does not say.
create table machine_mark (
  machine                   uuid primary key references object on delete cascade,
  unwiped                   boolean not null default false,
  recommission_requested_at timestamptz
);

-- The key of an attempt's boot tokens, sealed.
create table attempt_key (
  attempt bigint primary key,
  machine uuid not null references object on delete cascade,
  sealed  bytea not null
);
create index attempt_key_machine on attempt_key (machine);

-- What the planner reads: the latest fact of each kind, step and attempt.
create index fact_history_planning on fact_history (object, kind, attempt, step_key, id desc);
