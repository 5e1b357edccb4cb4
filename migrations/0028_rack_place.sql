-- A rack's own addresses belong to nobody else: an IpAddress, a dynamic range and a deployment's static address over one of them are refused.
-- This replaces the rule of migration 0011, that whoever names such an address may have it. A subnet's gateway may be a rack's address: the
-- rack is the router then.

create index rack_address_address on rack_address (address);

-- The subnets that racks' addresses are in. If several fabrics have an address, the VLAN's `dhcp.racks` decides.
create view rack_place as
  select r.rack, c.subnet, r.address
  from rack_address r join subnet_cidr c on r.address <<= c.cidr
  where not exists (select from subnet_cidr other where r.address <<= other.cidr and other.subnet <> c.subnet)
     or exists (
       select from object_ref v join object_ref d on d.from_uid = v.to_uid
       where v.from_uid = c.subnet and v.pointer = '/vlan' and d.to_uid = r.rack and d.pointer like '/dhcp/racks/%');
