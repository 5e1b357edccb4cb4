-- A BMC is one machine's: two machines of one BMC would switch each other off.
--
-- Triggers keep the table, so that it is true of what regions of the version before write as well. Which BMC is meant is said by
-- the protocol's family, the host and the port. A name and an address of one host are two hosts here: who answers to a name is known
-- to racks alone.

create table machine_bmc (
  machine   uuid primary key references object on delete cascade,
  family    text not null,
  host      text not null,
  port      int not null,
  -- Machines had one BMC before this table did: they keep it until one of them is changed, and nobody joins them.
  inherited boolean not null default false,
  -- Looked at when the transaction ends: machines of one batch may change places.
  constraint machine_bmc_once exclude using btree (family with =, host with =, port with =) where (not inherited)
    deferrable initially deferred
);
create index machine_bmc_place on machine_bmc (host, port, family);

-- Whoever wants a BMC locks its place first, until the transaction ends. Without that, each of some who want the same one would have
-- written it down before the first of them ends, and would wait for all the others to end: deadlocks, one a second. Nobody takes a
-- place away when its machine leaves.
create table bmc_place (
  family text not null,
  host   text not null,
  port   int not null,
  primary key (family, host, port)
);

-- An address as it is usually printed; a host name in small letters.
create function bmc_host(address text) returns text language sql immutable strict parallel safe as $$
  select case when address like '%:%' or address ~ '^[0-9.]+$'
    then regexp_replace(host(address::inet), '^::ffff:([0-9.]+)$', '\1') else lower(address) end
$$;

-- The BMC that a machine's spec describes, if it is one on a network.
create function machine_bmc_of(spec json) returns table (family text, host text, port int)
  language sql immutable parallel safe as $$
  select b.driver, bmc_host(b.address), coalesce(substring(b.port from '^[0-9]{1,5}$')::int, 623)
  from (select spec #>> '{bmc,driver}' as driver, spec #>> '{bmc,address}' as address, spec #>> '{bmc,port}' as port) b
  where b.driver = 'ipmi' and b.address is not null
$$;

create function hold_new_bmcs() returns trigger language plpgsql as $$
begin
  -- In their order: two batches that want the same ones do not wait for each other.
  insert into bmc_place (family, host, port)
  select distinct b.family, b.host, b.port from fresh f, machine_bmc_of(f.spec) b where f.kind = 'Machine' order by 1, 2, 3
  on conflict (family, host, port) do update set port = excluded.port;
  insert into machine_bmc (machine, family, host, port)
  select f.uid, b.family, b.host, b.port from fresh f, machine_bmc_of(f.spec) b where f.kind = 'Machine';
  return null;
end $$;
create trigger object_bmcs_come after insert on object referencing new table as fresh
  for each statement execute function hold_new_bmcs();

create function hold_changed_bmc() returns trigger language plpgsql as $$
begin
  delete from machine_bmc m where m.machine = new.uid and not exists (
    select from machine_bmc_of(new.spec) b where (b.family, b.host, b.port) = (m.family, m.host, m.port));
  insert into bmc_place (family, host, port)
  select b.family, b.host, b.port from machine_bmc_of(new.spec) b
  on conflict (family, host, port) do update set port = excluded.port;
  insert into machine_bmc (machine, family, host, port)
  select new.uid, b.family, b.host, b.port from machine_bmc_of(new.spec) b
  on conflict (machine) do nothing;
  return null;
end $$;
create trigger object_bmc_changes after update of spec on object
  for each row when (new.kind = 'Machine' and old.spec ->> 'bmc' is distinct from new.spec ->> 'bmc')
  execute function hold_changed_bmc();

insert into machine_bmc (machine, family, host, port, inherited)
select o.uid, b.family, b.host, b.port, count(*) over (partition by b.family, b.host, b.port) > 1
from object o, machine_bmc_of(o.spec) b where o.kind = 'Machine';
