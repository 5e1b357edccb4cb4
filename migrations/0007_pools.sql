-- Who may see an object by its pool alone is told when it leaves that pool: so the change log says which pool an object left.

-- The pool of each object at its last change in the log. Null: of none.
create table pool_told (
  object uuid primary key,
  pool   text
);
insert into pool_told
  select uid, object_pool(kind, uid, spec) from object where kind in ('Machine', 'Deployment');

-- The pool that the object left by this change, by going to another one or altogether.
alter table change_log add column left_pool text;

-- A deployment is of its machine's pool, and changes it with the machine: that is a change of its own, which fires this again.
create function tell_pools() returns trigger language plpgsql as $$
declare
  machines uuid[];
begin
  if not exists (select from fresh where kind in ('Machine', 'Deployment')) then
    return null;
  end if;
  with last as (
    select distinct on (object) object, kind, seq from fresh
    where kind in ('Machine', 'Deployment') order by object, seq desc
  ), seen as (
    select l.object, l.kind, l.seq, o.uid is null as gone, t.object is null as unknown,
      t.pool as before, object_pool(o.kind, o.uid, o.spec) as after
    from last l left join object o on o.uid = l.object left join pool_told t on t.object = l.object
  ), moved as (
    select * from seen where unknown or before is distinct from after
  ), marked as (
    update change_log c set left_pool = m.before from moved m where c.seq = m.seq and m.before is not null
  ), told as (
    insert into pool_told select object, after from moved where not gone
    on conflict (object) do update set pool = excluded.pool
  ), forgotten as (
    delete from pool_told t using seen s where s.gone and t.object = s.object
  )
  select array_agg(object) into machines from moved where kind = 'Machine' and not gone and not unknown;
  if machines is not null then
    insert into change_log (object, kind, name, op, generation)
      select d.uid, d.kind, d.name, 'status', d.generation from object d
      where d.kind = 'Deployment' and d.uid in (
        select deployment from machine_claim where machine = any(machines)
        union select from_uid from object_ref where to_uid = any(machines) and pointer = '/machine')
      order by d.uid;
  end if;
  return null;
end $$;
create trigger change_log_pools after insert on change_log referencing new table as fresh
  for each statement execute function tell_pools();
