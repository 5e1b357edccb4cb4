-- The position of the topology: of fabrics, VLANs, subnets, routes, racks with what they serve, images with their blobs, tags and
-- settings. A region keeps the topology in memory, and reads it anew when the position has moved.
--
-- Triggers move the position, so that no writer can forget it. A transaction moves it once, when it commits, and holds the row until
-- it has ended. Therefore positions commit in their order: a snapshot that shows a position shows every change up to it.
--
-- A transaction that holds the row waits for no other one, so there is no deadlock. The one deferred constraint, of BMCs, is looked at when
-- a transaction commits as well; it waits for nobody, because its writers lock the BMC's place before.

create table topology (
  only_row boolean primary key default true check (only_row),
  position bigint not null default 0
) with (fillfactor = 10);   -- updates of the one row stay in its page
insert into topology default values;

create function is_topology_kind(kind text) returns boolean language sql immutable as $$
  select kind in ('Fabric', 'Image', 'Rack', 'Settings', 'StaticRoute', 'Subnet', 'Tag', 'Vlan')
$$;

-- Facts about a rack that the topology is made of: where it serves (`hello`), subnets whose addresses are short, the rack's start, and its
-- links to regions.
create function is_topology_fact(kind text) returns boolean language sql immutable as $$
  select kind = 'hello' or kind like 'health:addresses %' or kind like 'health:link %' or kind = 'health:start'
$$;

create function move_topology() returns trigger language plpgsql as $$
begin
  if current_setting('basalt.topology_moved', true) = 'yes' then
    return null;
  end if;
  perform set_config('basalt.topology_moved', 'yes', true);
  update topology set position = position + 1;
  return null;
end $$;

create constraint trigger object_topology_new after insert on object deferrable initially deferred
  for each row when (is_topology_kind(new.kind)) execute function move_topology();
create constraint trigger object_topology_gone after delete on object deferrable initially deferred
  for each row when (is_topology_kind(old.kind)) execute function move_topology();
-- A status is no part of the topology.
create constraint trigger object_topology_changed after update on object deferrable initially deferred
  for each row when (is_topology_kind(new.kind)
    and (old.name, old.spec::text, old.deletion_requested_at) is distinct from (new.name, new.spec::text, new.deletion_requested_at))
  execute function move_topology();

create constraint trigger blob_topology_new after insert on blob deferrable initially deferred
  for each row execute function move_topology();
create constraint trigger blob_topology_gone after delete on blob deferrable initially deferred
  for each row execute function move_topology();
create constraint trigger blob_topology_changed after update on blob deferrable initially deferred
  for each row when (old.size is distinct from new.size) execute function move_topology();

create constraint trigger fact_topology_new after insert on fact_latest deferrable initially deferred
  for each row when (is_topology_fact(new.kind)) execute function move_topology();
create constraint trigger fact_topology_gone after delete on fact_latest deferrable initially deferred
  for each row when (is_topology_fact(old.kind)) execute function move_topology();
-- A rack that dials again says the same Hello. For the other facts, their time counts too.
create constraint trigger fact_topology_changed after update on fact_latest deferrable initially deferred
  for each row when (is_topology_fact(new.kind) and (new.kind <> 'hello' or old.body is distinct from new.body))
  execute function move_topology();

-- The machines whose disks are written, apart from those that wait for the fleet's budget.
create index fleet_slot_writes on fleet_slot (zone) where attempt is not null;
