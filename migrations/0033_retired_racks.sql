-- Keys of deleted racks. A rack that dials with such a key is told to forget.
create table retired_rack (
  spki_sha256 bytea primary key check (length(spki_sha256) = 32),
  not_after   timestamptz not null   -- the end of its certificate: afterwards it cannot dial
);

create function note_retired_rack() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' then
    delete from retired_rack where not_after < now();
    insert into retired_rack (spki_sha256, not_after) values (old.spki_sha256, old.not_after)
    on conflict (spki_sha256) do update set not_after = excluded.not_after;
  else
    delete from retired_rack where spki_sha256 = new.spki_sha256;
  end if;
  return null;
end $$;
create trigger rack_enrolment_retired after insert or update or delete on rack_enrolment
  for each row execute function note_retired_rack();
