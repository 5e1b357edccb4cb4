-- Addresses that cannot be given out twice; docs/decisions/040-ipam.md says why it is held like this.
--
-- `address` and `ip_range` are written by the region; triggers keep two tables beside them, in the same transaction:
--   address_span  what stands against an address, for the exclusion constraints
--   free_span     the gaps, for whoever wants the next free address
-- Whoever changes a subnet's addresses holds its row in subnet_cidr, so that changes of the gaps come one after another.

-- An address as a number, IPv4 and IPv6 on one line: GiST has a good penalty for numrange, and none for ranges of inet.
create function inet_number(a inet) returns numeric language sql immutable strict parallel safe as $$
  select case family(a) when 4 then (a - inet '0.0.0.0')::numeric else (
    select ('x' || substr(h, 1, 8))::bit(32)::bigint::numeric * 79228162514264337593543950336
         + ('x' || substr(h, 9, 8))::bit(32)::bigint::numeric * 18446744073709551616
         + ('x' || substr(h, 17, 8))::bit(32)::bigint::numeric * 4294967296
         + ('x' || substr(h, 25, 8))::bit(32)::bigint
    from encode(substr(inet_send(a), 5), 'hex') h) end
$$;

-- Whether the first and last address of a network are the network's own (RFC 3021; RFC 4291 §2.6.1; RFC 6164).
create function has_network_address(c cidr) returns boolean language sql immutable strict parallel safe as $$
  select masklen(c) < case family(c) when 4 then 31 else 127 end
$$;

create function first_host(c cidr) returns inet language sql immutable strict parallel safe as $$
  select host(network(c))::inet + has_network_address(c)::int
$$;

create function last_host(c cidr) returns inet language sql immutable strict parallel safe as $$
  select host(broadcast(c))::inet - (has_network_address(c) and family(c) = 4)::int
$$;

-- Whose an address is: a subnet's gateway, an IpAddress, or an interface of a deployment (`purpose` is its name).
alter table address add column class text not null default 'deployment'
  check (class in ('gateway', 'static', 'deployment'));
alter table address add constraint address_gateway_is_the_subnet_s check ((class = 'gateway') = (owner = subnet));
-- DHCP gives a client one address of a subnet.
create unique index address_mac_once on address (subnet, mac) where class = 'static';
create index address_class on address (subnet, class);

create table address_span (
  subnet uuid not null references subnet_cidr on delete cascade,
  class  text not null check (class in ('outside', 'edge', 'dynamic', 'reserved', 'address')),
  span   numrange not null check (not isempty(span)),
  primary key (subnet, class, span),
  -- Ranges lie in their subnet, and apart.
  constraint address_span_ranges exclude using gist (subnet with =, span with &&)
    where (class in ('outside', 'dynamic', 'reserved')),
  -- An owned address lies in its subnet, is neither network nor broadcast address, and in no dynamic range: whichever
  -- comes second is refused. Reserved ranges are not in this list: an address of one can be asked for by name.
  constraint address_span_owners exclude using gist (subnet with =, span with &&)
    where (class in ('outside', 'edge', 'dynamic', 'address'))
);

-- Addresses that nothing takes, as few spans as possible. The key is the last one: taking the first address of a span
-- leaves every index as it is.
create table free_span (
  subnet uuid not null references subnet_cidr on delete cascade,
  first  inet not null check (masklen(first) = case family(first) when 4 then 32 else 128 end),
  last   inet not null check (masklen(last) = case family(last) when 4 then 32 else 128 end),
  primary key (subnet, last),
  check (first <= last)
) with (fillfactor = 50);

-- The settings of these functions keep the planner from remembering a plan for small tables.

create function take_span(s uuid, f inet, l inet) returns void language plpgsql
  set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
  gap record;
begin
  for gap in select first, last from free_span where subnet = s and last >= f order by last loop
    exit when gap.first > l;
    if gap.first >= f and gap.last <= l then
      delete from free_span where subnet = s and last = gap.last;
    elsif gap.last <= l then
      update free_span set last = f - 1 where subnet = s and last = gap.last;
    else
      update free_span set first = l + 1 where subnet = s and last = gap.last;
      if gap.first < f then
        insert into free_span values (s, gap.first, f - 1);
      end if;
    end if;
  end loop;
end $$;

create function give_span(s uuid, f inet, l inet) returns void language plpgsql
  set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
  below record;
  above record;
begin
  select first, last into below from free_span where subnet = s and last < f order by last desc limit 1;
  select first, last into above from free_span where subnet = s and last > l order by last limit 1;
  if below.last is not null and below.last + 1 = f then
    f := below.first;
    delete from free_span where subnet = s and last = below.last;
  end if;
  if above.first is not null and above.first - 1 = l then
    update free_span set first = f where subnet = s and last = above.last;
  else
    insert into free_span values (s, f, l);
  end if;
end $$;

-- All gaps anew, after a change of ranges: as long as the list of what is taken.
create function refresh_free(s uuid) returns void language plpgsql as $$
begin
  delete from free_span where subnet = s;
  insert into free_span
  with net as (select first_host(cidr) as f, last_host(cidr) as l from subnet_cidr where subnet = s),
  taken as (
    select address as first, address as last from address where subnet = s
    union all select lower(span), upper(span) from ip_range where subnet = s),
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

create function subnet_cidr_changed() returns trigger language plpgsql as $$
begin
  delete from address_span where subnet = new.subnet and class in ('outside', 'edge');
  insert into address_span values
    (new.subnet, 'outside', numrange(null, inet_number(host(network(new.cidr))::inet), '()')),
    (new.subnet, 'outside', numrange(inet_number(host(broadcast(new.cidr))::inet), null, '()'));
  insert into address_span
  select new.subnet, 'edge', numrange(inet_number(edge), inet_number(edge), '[]')
  from (values (host(network(new.cidr))::inet), (host(broadcast(new.cidr))::inet)) e(edge)
  where edge < first_host(new.cidr) or edge > last_host(new.cidr);
  perform refresh_free(new.subnet);
  return null;
end $$;

create function ip_range_changed() returns trigger language plpgsql as $$
begin
  perform from subnet_cidr where subnet in (old.subnet, new.subnet) order by subnet for update;
  if old.subnet is not null then
    delete from address_span where subnet = old.subnet and class = old.purpose
      and span = numrange(inet_number(lower(old.span)), inet_number(upper(old.span)), '[]');
  end if;
  if new.subnet is not null then
    insert into address_span values
      (new.subnet, new.purpose, numrange(inet_number(lower(new.span)), inet_number(upper(new.span)), '[]'));
    perform refresh_free(new.subnet);
  end if;
  if old.subnet is distinct from new.subnet and old.subnet is not null then
    perform refresh_free(old.subnet);
  end if;
  return null;
end $$;

-- Neighbours among addresses are taken and given together: ten thousand in one statement are mostly one span.

create function addresses_gone() returns trigger language plpgsql
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
      where not exists (select from ip_range r where r.subnet = g.subnet and r.span @> g.address)),
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

create function addresses_come() returns trigger language plpgsql
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  island record;
begin
  perform from subnet_cidr where subnet in (select subnet from come) order by subnet for update;
  insert into address_span
  select subnet, 'address', numrange(inet_number(address), inet_number(address), '[]') from come;
  for island in
    with marked as (
      select subnet, address, lag(address) over (partition by subnet order by address) + 1
        is distinct from address as begins from come),
    numbered as (
      select subnet, address, count(*) filter (where begins) over (partition by subnet order by address) as n from marked)
    select subnet, min(address) as first, max(address) as last from numbered group by subnet, n order by subnet, n
  loop
    perform take_span(island.subnet, island.first, island.last);
  end loop;
  return null;
end $$;

create trigger subnet_cidr_changed after insert or update of cidr on subnet_cidr
  for each row execute function subnet_cidr_changed();
create trigger ip_range_changed after insert or delete or update on ip_range
  for each row execute function ip_range_changed();
create trigger address_a_gone after delete on address
  referencing old table as gone for each statement execute function addresses_gone();
create trigger address_b_moved_from after update on address
  referencing old table as gone for each statement execute function addresses_gone();
create trigger address_c_moved_to after update on address
  referencing new table as come for each statement execute function addresses_come();
create trigger address_d_come after insert on address
  referencing new table as come for each statement execute function addresses_come();

-- A subnet's gateway is its own, and does not keep it.
create function subnet_leaves() returns trigger language plpgsql as $$
begin
  delete from address where subnet = old.uid and owner = old.uid;
  return old;
end $$;
create trigger object_subnet_leaves before delete on object
  for each row when (old.kind = 'Subnet') execute function subnet_leaves();

-- The lowest `wanted` free addresses, or as many as there are. The caller holds the subnet's row in subnet_cidr.
create function next_free(s uuid, wanted int) returns setof inet language plpgsql
  set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
  gap record;
  a   inet;
begin
  for gap in select first, last from free_span where subnet = s order by last loop
    a := gap.first;
    loop
      exit when wanted <= 0;
      return next a;
      wanted := wanted - 1;
      exit when a = gap.last;
      a := a + 1;
    end loop;
    exit when wanted <= 0;
  end loop;
end $$;

-- For the number of leased addresses.
create index fact_latest_lease on fact_latest ((body->>'subnet_uid')) where kind = 'lease';

-- What is there already.
do $$
declare
  net   record;
  found record;
begin
  for net in select c.subnet, c.cidr, o.name, o.spec->>'gateway' as gateway
    from subnet_cidr c join object o on o.uid = c.subnet
  loop
    update subnet_cidr set cidr = cidr where subnet = net.subnet;
    for found in select * from ip_range where subnet = net.subnet loop
      begin
        update ip_range set span = span where range = found.range;
      exception when unique_violation or exclusion_violation then
        raise 'range %-% of subnet % does not fit: ranges lie in their subnet, apart from each other',
          host(lower(found.span)), host(upper(found.span)), net.name using hint = 'change it with the version that runs now';
      end;
    end loop;
    for found in select * from address where subnet = net.subnet loop
      begin
        update address set address = address where subnet = found.subnet and address = found.address;
      exception when unique_violation or exclusion_violation then
        raise 'address % of subnet % is not one that can be owned: it is outside, the network''s own, or in a dynamic range',
          host(found.address), net.name using hint = 'change the range, or give the address back, with the version that runs now';
      end;
    end loop;
    if net.gateway::inet between first_host(net.cidr) and last_host(net.cidr) then
      begin
        insert into address (subnet, address, owner, purpose, class)
        values (net.subnet, net.gateway::inet, net.subnet, 'gateway', 'gateway');
      exception when unique_violation or exclusion_violation then
        raise 'gateway % of subnet % is in a dynamic range, or another object''s', net.gateway, net.name
          using hint = 'change the gateway or the range with the version that runs now';
      end;
    end if;
  end loop;
end $$;
