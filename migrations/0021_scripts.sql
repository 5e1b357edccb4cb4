-- A script that is run on a machine, once (docs/decisions/059-scripts.md).

alter table machine_operation
  add column script jsonb,     -- what is run, as it was when it was asked for
  add column output text;      -- what it said, the end of it

-- contract: the checks that take their place allow more, unused since 0016
alter table machine_operation
  drop constraint machine_operation_verb_check,
  drop constraint machine_operation_class_check,
  add constraint machine_operation_verb_check
    check (verb in ('power_on', 'power_off', 'power_cycle', 'recommission', 'abort', 'run_script')),
  add constraint machine_operation_class_check check (class in ('power', 'recommission', 'abort', 'script')),
  add constraint machine_operation_script_check check ((verb = 'run_script') = (script is not null));
