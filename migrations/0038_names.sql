-- Names that hosts have by themselves. The reconciliation of a machine writes those of the machine and of its deployment.
create table host_name (
  object  uuid not null references object on delete cascade,
  domain  uuid not null references object on delete cascade,
  host    text not null,                    -- below the domain
  address inet not null check (masklen(address) = case family(address) when 4 then 32 else 128 end),
  is_main boolean not null,                 -- the address has this name, where several names have the address
  primary key (object, domain, host, address)
);
create index host_name_domain on host_name (domain);
create index host_name_address on host_name using gist (address inet_ops);

-- Zones of the DNS, as racks are told of them. The serial rises whenever the content changes, and never goes back: the row of a zone that is
-- not served any more stays, because secondaries remember the serial.
create table zone (
  origin text primary key,
  serial bigint not null default 1 check (serial between 1 and 4294967295),
  body   bytea not null                     -- without the serial
);

-- Domains say which zones there are.
create or replace function is_topology_kind(kind text) returns boolean language sql immutable as $$
  select kind in ('Domain', 'Fabric', 'Image', 'Rack', 'Settings', 'StaticRoute', 'Subnet', 'Tag', 'Vlan')
$$;

-- Machines are told the racks that answer DNS. So the topology moves when a rack says how its DNS is.
create or replace function is_topology_fact(kind text) returns boolean language sql immutable as $$
  select kind = 'hello' or kind like 'health:addresses %' or kind like 'health:link %' or kind = 'health:start' or kind like 'health:dns %'
$$;
