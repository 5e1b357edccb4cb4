-- An object is settled when its status says Ready, and that nothing is in progress and nothing is stalled. A settled object changes only
-- when something else changes, which wakes it.
alter table object_state add column settled boolean not null default false;

create function says_settled(status jsonb) returns boolean immutable language sql as $$
  select coalesce(bool_or(c->>'type' = 'Ready' and c->>'status' = 'true'), false)
    and not coalesce(bool_or(c->>'type' in ('Progressing', 'Stalled') and c->>'status' = 'true'), false)
  from jsonb_path_query(status, '$.conditions[*]') c
$$;
update object_state s set settled = says_settled(o.status::jsonb) from object o where o.uid = s.object;

-- An object without a status, in deletion, or with a spec that its status does not know, is not settled.
create view object_settled as
select o.uid, o.kind,
  coalesce(s.settled, false) and o.observed_generation = o.generation and o.deletion_requested_at is null as settled
from object o left join object_state s on s.object = o.uid;

-- When to handle each of these objects, if all are woken together. All unsettled objects and the first hundred settled ones are due at
-- once. The other settled ones follow at intervals of 30 ms, or of less if five minutes would not be enough for all.
create function paced(those uuid[]) returns table (kind text, object uuid, not_before timestamptz) stable language sql as $$
  select kind, uid, now() + case when settled and place > 100
    then (place - 100) * least(interval '30 ms', interval '5 min' / greatest(many - 100, 1)) else interval '0' end
  from (select o.kind, o.uid, o.settled,
      row_number() over (partition by o.settled order by o.uid) as place, count(*) over (partition by o.settled) as many
    from object_settled o where o.uid = any(those)) each_of
$$;

-- Wakes objects at that pace. The rows are locked in the order of uids, as everywhere.
create function wake(those uuid[], said text) returns void language sql as $$
  insert into reconcile_queue as q (kind, object, not_before, trace, traced_at)
  select kind, object, not_before, said, case when said is not null then now() end from paced(those) order by object
  on conflict (kind, object) do update
  set wake = q.wake + 1, not_before = least(q.not_before, excluded.not_before),
    trace = coalesce(excluded.trace, q.trace), traced_at = coalesce(excluded.traced_at, q.traced_at)
$$;
