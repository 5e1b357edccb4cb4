-- Leases of IPv6 are counted as those of IPv4 are (0004): by the subnet that the rack names.
create index fact_latest_lease_ipv6 on fact_latest ((body->>'subnet_uid')) where kind = 'lease:ipv6';
