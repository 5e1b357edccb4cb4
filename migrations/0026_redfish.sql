-- A BMC that is spoken to by Redfish is one machine's as well; where it has several systems, each of them is.

create or replace function machine_bmc_of(spec json) returns table (family text, host text, port int)
  language sql immutable parallel safe as $$
  select b.driver || coalesce('/' || b.system, ''), bmc_host(b.address),
    coalesce(substring(b.port from '^[0-9]{1,5}$')::int, case b.driver when 'redfish' then 443 else 623 end)
  from (select spec #>> '{bmc,driver}' as driver, spec #>> '{bmc,address}' as address, spec #>> '{bmc,port}' as port,
          case spec #>> '{bmc,driver}' when 'redfish' then spec #>> '{bmc,options,system}' end as system) b
  where b.driver in ('ipmi', 'redfish') and b.address is not null
$$;
