-- Creations that their client may not know of: it may have been cut off before it kept the answer. One that is not
-- confirmed may be taken up by a later run of the same account, once the run that made it is not renewed any more.

-- A run of a client, from its first creation on. It is written only by the client itself.
create table run (
  id         uuid primary key,
  account    text not null,                        -- the user or token that it acts for
  renewed_at timestamptz not null default now()    -- -infinity: it has ended
);

-- No row: the object's creation is confirmed, or no run made it.
create table unconfirmed (
  object uuid primary key references object on delete cascade,
  run    uuid not null references run
);
create index unconfirmed_run on unconfirmed (run);
