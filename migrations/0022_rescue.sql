-- A rescue is asked for like a script, and is one (docs/decisions/060-rescue.md).

-- contract: the checks that take their place allow more, unused since 0021
alter table machine_operation
  drop constraint machine_operation_verb_check,
  drop constraint machine_operation_script_check,
  add constraint machine_operation_verb_check
    check (verb in ('power_on', 'power_off', 'power_cycle', 'recommission', 'abort', 'run_script', 'rescue')),
  add constraint machine_operation_script_check
    check ((verb in ('run_script', 'rescue')) = (script is not null));
