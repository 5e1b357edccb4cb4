-- Devices own their addresses (docs/decisions/040-ipam.md), in each subnet that holds them: rows of `address`, of the class of
-- what is declared, each for the purpose of the address itself.

-- What Devices declare, by its place in the list.
create view device_address as
  select o.uid as device, (e.n - 1)::int as place, e.text::inet as address
  from object o, json_array_elements_text(
    case json_typeof(o.spec -> 'addresses') when 'array' then o.spec -> 'addresses' end) with ordinality e(text, n)
  where o.kind = 'Device';

-- Where anybody could own that.
create view device_place as
  select distinct d.device, c.subnet, d.address
  from device_address d join subnet_cidr c on d.address between first_host(c.cidr) and last_host(c.cidr)
  where not exists (
    select from ip_range r where r.subnet = c.subnet and r.purpose = 'dynamic' and r.span @> d.address);

-- A subnet that leaves takes what is not the machinery's with it: its gateway, and what Devices have in it.
create or replace function subnet_leaves() returns trigger language plpgsql as $$
begin
  delete from address where subnet = old.uid and (owner = old.uid or class = 'static');
  return old;
end $$;

-- What is somebody else's already stays that one's; the Device is told when its addresses are changed.
insert into address (subnet, address, owner, purpose, class)
select subnet, address, device, host(address), 'static' from device_place
order by subnet, address, device
on conflict do nothing;
