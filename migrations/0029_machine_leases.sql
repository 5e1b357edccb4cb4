-- The leases of a machine, by its MAC addresses: each time a machine is looked at. A lease that was told before its system was installed is
-- one of the installer's.

alter table lease add column told_at timestamptz not null default now();   -- when a rack last told of it
alter table lease6 add column told_at timestamptz not null default now();
create index lease_mac on lease (mac);
create index lease6_mac on lease6 (mac);
