-- Leases of IPv4 addresses as racks granted them, for the other racks of the network (docs/decisions/055-shared-leases.md). A rack's leases
-- outlive its object.

create table lease (
  rack       uuid not null,
  subnet     uuid not null,              -- no reference: facts wait for nobody who works on a subnet's addresses
  address    inet not null check (family(address) = 4 and masklen(address) = 32),
  mac        macaddr not null,
  hostname   text not null,
  ends_at    timestamptz not null,       -- by this clock, from how long the rack said that it still runs
  given_back boolean not null,           -- by its client
  kept_until timestamptz,                -- until then the rack gives the address to nobody else; null: it does not say so
  changed    xid8 not null default pg_current_xact_id(),
  primary key (subnet, address, rack)
);
create index lease_changed on lease (subnet, changed);
create index lease_ends on lease (ends_at);
