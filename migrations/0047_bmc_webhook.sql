-- A machine that a web service switches has its BMC to itself as well. Machines of one service differ by the path of the request `on`.

create or replace function machine_bmc_of(spec json) returns table (family text, host text, port int)
  language sql immutable parallel safe as $$
  select b.driver || coalesce('/' || b.part, ''), bmc_host(b.address),
    coalesce(substring(b.port from '^[0-9]{1,5}$')::int,
      case b.driver when 'ipmi' then 623 else case spec #>> '{bmc,webhook,plain}' when 'true' then 80 else 443 end end)
  from (select spec #>> '{bmc,driver}' as driver, spec #>> '{bmc,address}' as address, spec #>> '{bmc,port}' as port,
          case spec #>> '{bmc,driver}'
            when 'redfish' then spec #>> '{bmc,options,system}'
            when 'webhook' then spec #>> '{bmc,webhook,on}' end as part) b
  where b.driver in ('ipmi', 'redfish', 'webhook') and b.address is not null
$$;
