-- The VLAN of an undeclared machine, by its address. Each VLAN has a share of the rows: any host on it can invent machines.
alter table stranger
  add column vlan uuid references object on delete set null,
  -- False: the inspection failed. The row gives way to one with an inventory.
  add column has_inventory boolean not null default true;
create index stranger_vlan on stranger (vlan, last_seen);

-- The part of a VLAN's budgets that its undeclared machines have used.
create table enlistment_use (
  vlan        uuid primary key references object on delete cascade,
  made        double precision not null default 0,  -- Machines that enlistment made, less those that count no longer
  made_at     timestamptz not null default clock_timestamp(),
  left_out    bigint not null default 0,            -- results of undeclared machines for which there was no room
  left_out_at timestamptz
);
