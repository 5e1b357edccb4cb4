-- IpAddresses that are of a host by its DUID: DHCPv6 knows those by it that hide their MAC (docs/decisions/052-dhcpv6.md).

alter table address add column duid bytea;
alter table address
  add constraint address_duid_length check (length(duid) between 3 and 130),
  add constraint address_duid_ipv6 check (duid is null or family(address) = 6),
  add constraint address_mac_or_duid check (duid is null or mac is null);
-- DHCP gives a client one address of a subnet.
create unique index address_duid_once on address (subnet, duid) where class = 'static';
