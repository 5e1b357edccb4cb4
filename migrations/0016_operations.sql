-- What people ask of machines once, and what became of it. One of each class can be open for a machine.
create table machine_operation (
  id           uuid primary key,
  machine      uuid not null references object on delete cascade,
  verb         text not null check (verb in ('power_on', 'power_off', 'power_cycle', 'recommission', 'abort')),
  class        text not null check (class in ('power', 'recommission', 'abort')),
  request_key  text,                                    -- the client's, under which a repeat is the same
  requested_by text,
  requested_at timestamptz not null,
  deadline     timestamptz not null,
  state        text not null default 'requested'
               check (state in ('requested', 'running', 'done', 'failed', 'superseded', 'expired')),
  reason       text not null default 'Accepted',
  message      text not null default '',
  begun_at     timestamptz,
  finished_at  timestamptz,
  check ((finished_at is null) = (state in ('requested', 'running')))
);
create unique index machine_operation_open on machine_operation (machine, class) where finished_at is null;
create unique index machine_operation_key on machine_operation (machine, request_key) where request_key is not null;
create index machine_operation_newest on machine_operation (machine, requested_at desc, id desc);
