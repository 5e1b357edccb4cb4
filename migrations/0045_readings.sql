-- Power readings of each rack stay: a rack that has a BMC no more may deliver its reading after the present one's.
-- Makes the partitions of the coming days, and drops those older than `keep_days`. Facts of plans stay as long as their object: the
-- latest of each kind, attempt and step. Exceptions: the first claim, the latest readiness of each level, the latest power reading of
-- each rack. Any region may call it at any time.
create or replace function maintain_fact_history(keep_days int) returns void language plpgsql as $$
declare
  day     date;
  part    text;
  dropped boolean := false;
begin
  perform pg_advisory_xact_lock(5240, 2);
  for day in select generate_series(current_date + 1, current_date + 3, interval '1 day')::date loop
    part := 'fact_history_' || to_char(day, 'YYYYMMDD');
    if to_regclass(part) is null then
      execute format('create table %I partition of fact_history for values from (%L) to (%L)', part, day, day + 1);
    end if;
  end loop;
  for part in
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'fact_history'::regclass and c.relname ~ '^fact_history_[0-9]{8}$'
      and to_date(right(c.relname, 8), 'YYYYMMDD') < current_date - keep_days
  loop
    execute format(
      'create temporary table fact_kept on commit drop as
       select distinct on (object, kind, attempt, step_key, case when kind = ''readiness'' then body->>''level'' end,
         case when kind in (''reading'', ''reading:failed'') then source end) f.*
       from %I f where kind <> ''log'' and exists (select from object o where o.uid = f.object)
       order by object, kind, attempt, step_key, case when kind = ''readiness'' then body->>''level'' end,
         case when kind in (''reading'', ''reading:failed'') then source end, case when kind = ''claim'' then id else -id end', part);
    execute format('drop table %I', part);
    insert into fact_history_rest (id, object, mac, kind, source, step_key, attempt, body, observed_at, stored_at)
    select id, object, mac, kind, source, step_key, attempt, body, observed_at, stored_at from fact_kept;
    drop table fact_kept;
    dropped := true;
  end loop;
  delete from fact_history_rest r where stored_at < now() - make_interval(days => keep_days)
    and (kind = 'log' or object is null or not exists (select from object o where o.uid = r.object));
  -- Facts that are outdated by now: once a day.
  if dropped then
    delete from fact_history_rest r where stored_at < now() - make_interval(days => keep_days)
      and exists (
        select from fact_history n
        where n.object = r.object and n.kind = r.kind
          and n.attempt is not distinct from r.attempt and n.step_key is not distinct from r.step_key
          and (r.kind not in ('reading', 'reading:failed') or n.source = r.source)
          and (r.kind <> 'readiness' or n.body->>'level' is not distinct from r.body->>'level')
          and case when r.kind = 'claim' then n.id < r.id else n.id > r.id end);
  end if;
end $$;

