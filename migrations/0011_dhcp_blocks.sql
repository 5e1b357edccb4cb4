-- Which rack leases which part of a dynamic range; docs/decisions/045-dhcp-blocks.md says how a part changes hands.

-- What a rack was told last, and what it does. Numbers are drawn from one sequence: a later one is always higher.
create sequence dhcp_delegation as bigint;
create table rack_delegation (
  rack     uuid primary key references object on delete cascade,
  number   bigint not null,              -- its blocks as they are in dhcp_block
  in_force bigint not null default 0,    -- those that the rack said it leases from
  told_at  timestamptz not null default now(),
  leftover jsonb not null default '[]'   -- leases that still run outside of these, as they were then
);

-- For the reference by span below.
alter table ip_range add constraint ip_range_span_once unique (range, span);

create table dhcp_block (
  subnet        uuid not null references subnet_cidr on delete cascade,
  span          inetrange not null check (not isempty(span) and lower_inc(span) and upper_inc(span)),
  rack          uuid not null,           -- who may lease from it; a rack's leases outlive its object
  range         uuid,                    -- null: it is being taken back
  range_span    inetrange,
  leaves_at     bigint,                  -- taken back: the rack's number without it
  free_at       timestamptz,             -- taken back, and nothing is granted from it any more: its last lease ends then
  lease_seconds int not null check (lease_seconds >= 0), -- the longest lease that the rack may have granted
  -- No address is two racks' to lease, whatever becomes of ranges.
  constraint dhcp_block_disjoint exclude using gist (subnet with =, span with &&),
  constraint dhcp_block_in_its_range check (span <@ range_span),
  constraint dhcp_block_of_a_range check ((range is null) = (range_span is null)),
  constraint dhcp_block_taken_back check (range is null or (leaves_at is null and free_at is null)),
  foreign key (range, range_span) references ip_range (range, span) on update cascade on delete set null
);
create index dhcp_block_range on dhcp_block (range, range_span) where range is not null;

-- What a range loses is taken back from the racks that have it, before it is lost.
create function ip_range_takes_back() returns trigger language plpgsql as $$
declare
  b    dhcp_block;
  kept inetrange;
begin
  for b in select * from dhcp_block where range = old.range
    and (new.purpose <> 'dynamic' or new.subnet <> old.subnet or not span <@ new.span)
  loop
    kept := b.span * new.span;
    if new.purpose <> 'dynamic' or new.subnet <> old.subnet or isempty(kept) then
      update dhcp_block set range = null, range_span = null where subnet = b.subnet and span = b.span;
      continue;
    end if;
    update dhcp_block set span = kept where subnet = b.subnet and span = b.span;
    insert into dhcp_block (subnet, span, rack, lease_seconds)
    select b.subnet, piece, b.rack, b.lease_seconds from (values
      (case when lower(b.span) < lower(kept) then inetrange(lower(b.span), lower(kept) - 1, '[]') end),
      (case when upper(b.span) > upper(kept) then inetrange(upper(kept) + 1, upper(b.span), '[]') end)) p(piece)
    where piece is not null;
  end loop;
  return new;
end $$;
create trigger ip_range_a_takes_back before update on ip_range
  for each row execute function ip_range_takes_back();

-- What a rack may still lease is not free, also where its range is gone.
create or replace function refresh_free(s uuid) returns void language plpgsql as $$
begin
  delete from free_span where subnet = s;
  insert into free_span
  with net as (select first_host(cidr) as f, last_host(cidr) as l from subnet_cidr where subnet = s),
  taken as (
    select address as first, address as last from address where subnet = s
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
        and not exists (select from dhcp_block b where b.subnet = g.subnet and b.span @> g.address)),
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

-- Where no range is any more, a block that is taken back keeps its addresses until it is gone.
create function dhcp_block_changed() returns trigger language plpgsql as $$
declare
  b dhcp_block := coalesce(new, old);
begin
  if b.range is null and not exists (
    select from ip_range r where r.subnet = b.subnet and r.span @> b.span)
  then
    perform refresh_free(b.subnet);
  end if;
  return null;
end $$;
create trigger dhcp_block_changed after insert or delete on dhcp_block
  for each row execute function dhcp_block_changed();

-- An interface of a deployment that has the address which an IpAddress keeps for its MAC: in `address` it stays the IpAddress's.
create table address_use (
  owner   uuid not null references object on delete cascade,
  subnet  uuid not null references subnet_cidr on delete cascade,
  purpose text not null,
  address inet not null,
  primary key (owner, subnet, purpose)
);

-- Racks' own addresses, as they introduced themselves. They are given to nobody; who names one may have it.
create table rack_address (
  rack    uuid not null references object on delete cascade,
  address inet not null check (masklen(address) = case family(address) when 4 then 32 else 128 end),
  primary key (rack, address)
);
