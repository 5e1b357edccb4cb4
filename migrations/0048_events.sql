-- Events of the region, for people. A transaction notes its own events.
create table event (
  id     bigint generated always as identity primary key,
  at     timestamptz not null default clock_timestamp(),
  what   text not null check (what in ('written', 'began', 'ended', 'phase', 'stalled', 'left')),
  kind   text not null,
  object uuid,                    -- null: what is no object, like a blob
  name   text not null,           -- then
  words  text not null,           -- of steps: the step's name
  detail text,                    -- why: of a failure, or of what waits for a person
  actor  text not null default 'region'
);
create index event_object on event (object, id) where object is not null;
create index event_kind on event (kind, id);
create index event_at on event (at);

create function note_writes() returns trigger language plpgsql as $$
begin
  insert into event (at, what, kind, object, name, words, actor)
  select at, 'written', kind, object, name, case
      when request like '%/operations' and after ->> 'operation' is not null then (after ->> 'operation') || ' was asked for'
      when object is null then 'was made'
      when after is null then 'was asked to leave'
      when before is null then 'was declared'
      else 'was changed' end, actor
  -- Logins and the tokens of racks are for admins: the audit log has them.
  from come where after ->> 'session' is null and kind <> 'JoinToken' order by id;
  return null;
end $$;
create trigger audit_events after insert on audit
  referencing new table as come for each statement execute function note_writes();

create function note_steps() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    insert into event (what, kind, object, name, words)
    select 'began', o.kind, o.uid, o.name, coalesce(n.detail #>> '{record,step}', n.step_key)
    from come n join object o on o.uid = n.object order by n.id;
  else
    insert into event (what, kind, object, name, words, detail)
    select 'ended', o.kind, o.uid, o.name, coalesce(n.detail #>> '{record,step}', n.step_key), n.outcome ->> 'message'
    from come n join gone b on b.id = n.id join object o on o.uid = n.object
    where n.finished_at is not null and b.finished_at is null order by n.id;
  end if;
  return null;
end $$;
create trigger step_events_come after insert on step_record
  referencing new table as come for each statement execute function note_steps();
create trigger step_events_end after update on step_record
  referencing old table as gone new table as come for each statement execute function note_steps();

create function note_departures() returns trigger language plpgsql as $$
begin
  insert into event (what, kind, object, name, words) select 'left', kind, uid, name, 'has left' from gone order by uid;
  return null;
end $$;
create trigger object_departures after delete on object
  referencing old table as gone for each statement execute function note_departures();
