-- Leases of IPv6 addresses as racks granted them, for the rack itself, should it lose them (docs/decisions/055-shared-leases.md). Other racks are
-- not told.

create table lease6 (
  rack       uuid not null,
  subnet     uuid not null,              -- no reference, as in `lease`
  address    inet not null check (family(address) = 6 and masklen(address) = 128),
  mac        macaddr,                    -- null: the client hides it
  ends_at    timestamptz not null,       -- by this clock, from how long the rack said that it still runs
  given_back boolean not null,           -- by its client
  primary key (subnet, address, rack)
);
create index lease6_rack on lease6 (rack);
create index lease6_ends on lease6 (ends_at);
