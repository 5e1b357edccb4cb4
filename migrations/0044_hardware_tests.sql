-- Results of hardware tests, and operations that run tests (docs/decisions/099-test-results.md).

-- One row for each device that a run of a test looked at.
create table test_result (
  machine  uuid not null references object on delete cascade,
  attempt  bigint not null,          -- the run
  script   text not null,            -- the Script's name, as it was
  device   text not null,            -- '': the whole machine
  verdict  text not null check (verdict in ('passed', 'degraded', 'failed')),
  figures  jsonb not null default '{}',
  message  text not null default '',
  output   text not null default '', -- the end of the script's output
  seconds  double precision not null default 0,
  at       timestamptz not null,
  primary key (machine, attempt, script, device)
);

create index test_result_latest on test_result (machine, script, attempt desc);

alter table machine_mark
  add column tests_accepted_at timestamptz,  -- failed tests of before are overridden
  add column tests_accepted_by text,
  add column tests_accepted_reason text;

alter table machine_operation
  add column tests jsonb not null default '[]',  -- the tests that run, as they were when it was asked for
  add column because text;                       -- the reason of the person who asked

-- contract: the checks that take their place allow more, unused since 0022
alter table machine_operation
  drop constraint machine_operation_verb_check,
  drop constraint machine_operation_class_check,
  add constraint machine_operation_verb_check
    check (verb in ('power_on', 'power_off', 'power_cycle', 'recommission', 'abort', 'run_script', 'rescue', 'test',
                    'override_tests')),
  add constraint machine_operation_class_check
    check (class in ('power', 'recommission', 'abort', 'script', 'override')),
  add constraint machine_operation_tests_check check ((verb = 'test') = (jsonb_array_length(tests) > 0));
