-- The attempt by which racks inspect undeclared machines. All of these share it.
create table stranger_attempt (
  only_row boolean primary key default true check (only_row),
  attempt  bigint not null,
  sealed   bytea not null                   -- the key of its boot tokens
);

-- Undeclared machines, as their agents found them. A row ends with its Discovery, or when a Machine is declared with one of its MACs.
create table stranger (
  id         bigint generated always as identity primary key,
  name       text not null unique,          -- of its Discovery
  discovery  uuid unique references object on delete cascade,
  boot_mac   macaddr not null,
  board      text,                          -- what tells the machine from others where all its MACs are new; null: nothing does
  body       jsonb not null,                -- the agent's result
  source     text not null,                 -- the rack that brought it
  address    inet,                          -- where the machine was then
  first_seen timestamptz not null default clock_timestamp(),
  last_seen  timestamptz not null default clock_timestamp()
);
create index stranger_new on stranger (id) where discovery is null;
create index stranger_board on stranger (board);

create table stranger_mac (
  mac      macaddr primary key,
  stranger bigint not null references stranger on delete cascade
);
create index stranger_mac_stranger on stranger_mac (stranger);
