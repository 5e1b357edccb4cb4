-- Targets that the lines of machines are forwarded to: one region process at a time has the lease of each, and the position is everybody's.
create table log_target (
  name        text primary key,                   -- its key in Settings.remote_syslog
  owner       uuid,                               -- the region process that forwards to it
  lease_until timestamptz,
  connected   boolean not null default false,
  message     text not null default '',           -- why it is not connected
  forwarded   bigint not null default 0,          -- lines
  lost        bigint not null default 0,          -- lines that were gone before it took them
  waiting     bigint not null default 0           -- bytes of lines that wait for it
);
-- How far a rack's lines are forwarded: the last number of a spool that the target has.
create table log_position (
  target   text not null references log_target on delete cascade,
  spool    text not null,
  through  bigint not null,
  moved_at timestamptz not null default now(),
  primary key (target, spool)
);

-- Systems are told the racks that take logs. So the topology moves when a rack says how its syslog is.
create or replace function is_topology_fact(kind text) returns boolean language sql immutable as $$
  select kind = 'hello' or kind like 'health:addresses %' or kind like 'health:link %' or kind = 'health:start' or kind like 'health:dns %'
    or kind = 'health:proxy' or kind like 'health:syslog %'
$$;
