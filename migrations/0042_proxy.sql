-- Systems are told the racks that have a proxy. So the topology moves when a rack says how its proxy is.
create or replace function is_topology_fact(kind text) returns boolean language sql immutable as $$
  select kind = 'hello' or kind like 'health:addresses %' or kind like 'health:link %' or kind = 'health:start' or kind like 'health:dns %'
    or kind = 'health:proxy'
$$;
