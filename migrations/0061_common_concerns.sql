-- Concerns that every rack receives with the same bytes. They are stored once, and not once for each rack.
create table common_concern (
  concern    text primary key,
  generation bigint not null,
  sha256     bytea not null check (length(sha256) = 32),
  body       bytea not null,
  updated_at timestamptz not null default now(),
  trace      text default nullif(current_setting('basalt.trace', true), '')
);
-- Rows of `rack_concern` with these names are from a region of the version before. They count no more.

-- The changes of `known` entries. A region reads the entries that have changed since its last reading.
--
-- A position is given when the writing transaction commits, and the row of `known_log` stays locked until the transaction has ended.
-- Therefore positions commit in their order: a snapshot that shows a position shows every change up to it.
create table known_log (
  only_row boolean primary key default true check (only_row),
  position bigint not null default 0
) with (fillfactor = 10);   -- updates of the one row stay in its page
insert into known_log default values;
alter table entry add column position bigint not null default 0;
create index entry_known on entry (position) where concern = 'known';
create index entry_client on entry (object) where concern = 'known' and says ? 'dhcp';

-- The latest deleted `known` entries. A reader whose position is before them reads all entries.
create table known_gone (position bigint primary key, object uuid not null);

create function move_known() returns trigger language plpgsql as $$
declare
  now_at bigint;
begin
  update known_log set position = position + 1 returning position into now_at;
  if tg_op = 'DELETE' then
    insert into known_gone (position, object) values (now_at, old.object);
    delete from known_gone where position <= now_at - 10000;
  else
    update entry set position = now_at where concern = new.concern and object = new.object;
  end if;
  return null;
end $$;

create constraint trigger entry_known_new after insert on entry deferrable initially deferred
  for each row when (new.concern = 'known') execute function move_known();
create constraint trigger entry_known_gone after delete on entry deferrable initially deferred
  for each row when (old.concern = 'known') execute function move_known();
-- An entry that is sealed anew keeps its version, and is no change.
create constraint trigger entry_known_changed after update on entry deferrable initially deferred
  for each row when (new.concern = 'known' and old.version is distinct from new.version) execute function move_known();

-- Racks whose document of a concern is older than their entries. A rack's reconciliation reads the entries only if there is a mark, and
-- deletes the mark with the document that it writes. A later change sets another mark, which stays.
create sequence entry_mark;
create table rack_due (
  rack    uuid not null,   -- no reference: a writer of entries would wait for the deletion of the rack, and that for the entries
  concern text not null,
  mark    bigint not null default nextval('entry_mark'),
  primary key (rack, concern)
);
insert into rack_due (rack, concern) select distinct rack, concern from rack_entry;

-- The entry of a deleted machine leaves the documents too. A deleted rack, which has no row in `object` any more, needs no mark.
create function mark_deleted_entries() returns trigger language plpgsql as $$
begin
  insert into rack_due (rack, concern)
  select distinct g.rack, g.concern from gone g join object o on o.uid = g.rack where g.wanted or g.told is not null order by 1, 2
  on conflict (rack, concern) do update set mark = excluded.mark;
  return null;
end $$;
create trigger rack_entry_deleted after delete on rack_entry referencing old table as gone
  for each statement execute function mark_deleted_entries();
