-- Static addresses that Machines declare for their own interfaces. The primary key refuses an address to a second Machine.
--
-- These rows are not in `address`, because its key allows one owner. A Deployment on the Machine may have the same address, and an
-- IpAddress with a MAC of the Machine.
--
-- No other object may have the address, and it is not free.

create table machine_address (
  subnet  uuid not null references subnet_cidr on delete cascade,
  address inet not null check (masklen(address) = case family(address) when 4 then 32 else 128 end),
  machine uuid not null references object on delete cascade,
  primary key (subnet, address)
);
create index machine_address_machine on machine_address (machine);

-- Addresses of Machines are no gaps.
create or replace function refresh_free(s uuid) returns void language plpgsql as $$
begin
  delete from free_span where subnet = s;
  insert into free_span
  with net as (select first_host(cidr) as f, last_host(cidr) as l from subnet_cidr where subnet = s),
  taken as (
    select address as first, address as last from address where subnet = s
    union all select address, address from machine_address where subnet = s
    union all select lower(span), upper(span) from ip_range where subnet = s
    union all select lower(span), upper(span) from dhcp_block where subnet = s),
  ordered as (
    select t.first, net.f, net.l,
      max(t.last) over (order by t.first, t.last rows between unbounded preceding and 1 preceding) as before
    from taken t, net where t.last >= net.f and t.first <= net.l
    union all
    select null, net.f, net.l, (select max(least(t.last, net.l)) from taken t where t.first <= net.l and t.last >= net.f)
    from net),
  gap as (
    select case when before is null then f when before < l then before + 1 end as first,
      case when ordered.first is null then l when ordered.first > f then ordered.first - 1 end as last
    from ordered)
  select s, gap.first, gap.last from gap where gap.first <= gap.last;
end $$;

create or replace function addresses_gone() returns trigger language plpgsql
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  island record;
begin
  perform from subnet_cidr where subnet in (select subnet from gone) order by subnet for update;
  delete from address_span a using gone g
  where a.subnet = g.subnet and a.class = 'address'
    and a.span = numrange(inet_number(g.address), inet_number(g.address), '[]');
  for island in
    with freed as (
      select g.subnet, g.address from gone g
      where not exists (select from ip_range r where r.subnet = g.subnet and r.span @> g.address)
        and not exists (select from dhcp_block b where b.subnet = g.subnet and b.span @> g.address)
        and not exists (select from machine_address m where m.subnet = g.subnet and m.address = g.address)),
    marked as (
      select subnet, address, lag(address) over (partition by subnet order by address) + 1
        is distinct from address as begins from freed),
    numbered as (
      select subnet, address, count(*) filter (where begins) over (partition by subnet order by address) as n from marked)
    select subnet, min(address) as first, max(address) as last from numbered group by subnet, n order by subnet, n
  loop
    perform give_span(island.subnet, island.first, island.last);
  end loop;
  return null;
end $$;

create function machine_addresses_come() returns trigger language plpgsql
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  one record;
begin
  perform from subnet_cidr where subnet in (select subnet from come) order by subnet for update;
  for one in select subnet, address from come order by subnet, address loop
    perform take_span(one.subnet, one.address, one.address);
  end loop;
  return null;
end $$;

-- A subnet that is being deleted has no row in subnet_cidr any more, and needs no gaps.
create function machine_addresses_gone() returns trigger language plpgsql
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  one record;
begin
  perform from subnet_cidr where subnet in (select subnet from gone) order by subnet for update;
  for one in
    select g.subnet, g.address from gone g join subnet_cidr c on c.subnet = g.subnet
    where g.address between first_host(c.cidr) and last_host(c.cidr)
      and not exists (select from address a where a.subnet = g.subnet and a.address = g.address)
      and not exists (select from ip_range r where r.subnet = g.subnet and r.span @> g.address)
      and not exists (select from dhcp_block b where b.subnet = g.subnet and b.span @> g.address)
    order by g.subnet, g.address
  loop
    perform give_span(one.subnet, one.address, one.address);
  end loop;
  return null;
end $$;

create trigger machine_address_come after insert on machine_address
  referencing new table as come for each statement execute function machine_addresses_come();
create trigger machine_address_gone after delete on machine_address
  referencing old table as gone for each statement execute function machine_addresses_gone();

-- A Device does not own the address of a Machine.
create or replace view device_place as
  select distinct d.device, c.subnet, d.address
  from device_address d join subnet_cidr c on d.address between first_host(c.cidr) and last_host(c.cidr)
  where not exists (
      select from ip_range r where r.subnet = c.subnet and r.purpose = 'dynamic' and r.span @> d.address)
    and not exists (
      select from machine_address m where m.subnet = c.subnet and m.address = d.address);

-- The declared addresses with a named subnet, from the references to the subnets. The oldest Machine gets an address of several Machines.
insert into machine_address
select distinct on (c.subnet, i.address) c.subnet, i.address, o.uid
from object_ref r
join object o on o.uid = r.from_uid and o.kind = 'Machine'
join subnet_cidr c on c.subnet = r.to_uid
cross join lateral (select string_to_array(substr(regexp_replace(r.pointer, '/subnet$', ''), 2), '/') as path) p
cross join lateral (select (o.spec #>> (p.path || 'address'::text))::inet as address) i
where r.pointer like '/network/%/subnet' and o.spec #>> (p.path || 'addressing'::text) = 'static'
  and i.address between first_host(c.cidr) and last_host(c.cidr)
order by c.subnet, i.address, o.created_at, o.uid;
