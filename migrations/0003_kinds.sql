-- What only one object can have, of the kinds beside machines and networks.

-- There is one Settings object.
alter table object add constraint settings_once check (kind <> 'Settings' or name = 'default');

-- A MAC address is one machine's or one device's.
create table mac_holder (
  mac    macaddr primary key,
  holder uuid not null references object on delete cascade
);
create index mac_holder_holder on mac_holder (holder);
insert into mac_holder select mac, machine from machine_mac;

-- Regions that know machine_mac alone hold addresses by it, and meet those of devices.
create function hold_machine_mac() returns trigger language plpgsql as $$
begin
  insert into mac_holder values (new.mac, new.machine) on conflict (mac) do nothing;
  if not exists (select from mac_holder where mac = new.mac and holder = new.machine) then
    raise unique_violation using message = format('the MAC address %s belongs to another object', new.mac);
  end if;
  return null;
end $$;
create trigger machine_mac_held after insert on machine_mac for each row execute function hold_machine_mac();

create function release_machine_mac() returns trigger language plpgsql as $$
begin
  delete from mac_holder where mac = old.mac and holder = old.machine;
  return null;
end $$;
create trigger machine_mac_released after delete on machine_mac for each row execute function release_machine_mac();

-- A record is there once, and a name with a CNAME has nothing else.
create table dns_record (
  record      uuid primary key references object on delete cascade,
  domain      uuid not null references object on delete restrict,
  owner_name  text not null check (owner_name = lower(owner_name)),
  type        text not null,
  data        text not null,             -- in the one form that equal data has
  data_sha256 bytea not null check (length(data_sha256) = 32),
  alone       int not null generated always as (case when type = 'CNAME' then 1 else 0 end) stored,
  constraint dns_record_once unique (domain, owner_name, type, data_sha256),
  constraint dns_record_cname_alone exclude using gist (domain with =, owner_name with =, alone with <>)
);
create unique index dns_record_one_cname on dns_record (domain, owner_name) where type = 'CNAME';

-- A subnet has each route once.
create table static_route (
  route       uuid primary key references object on delete cascade,
  source      uuid not null references object on delete restrict,
  destination cidr not null,
  gateway     inet not null,
  constraint static_route_once unique (source, destination, gateway)
);
