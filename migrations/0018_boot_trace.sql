-- What machines asked of racks as they booted (docs/decisions/054-boot-trace.md): for people, apart from facts, so that plans wait for
-- none of it and nothing of it stands in their way.

create table boot_trace (
  id          bigint generated always as identity primary key,
  mac         macaddr not null,
  source      text not null,              -- the rack
  body        jsonb not null,             -- entries, and how many more there were
  others_lost bigint not null default 0,  -- of machines that nobody declared: what the rack did not keep
  stored_at   timestamptz not null default now()
);
create index boot_trace_mac on boot_trace (mac, id);
create index boot_trace_stored on boot_trace (stored_at);
