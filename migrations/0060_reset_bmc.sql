-- contract: the checks that take their place allow more, unused since 0044
alter table machine_operation
  drop constraint machine_operation_verb_check,
  drop constraint machine_operation_class_check,
  add constraint machine_operation_verb_check
    check (verb in ('power_on', 'power_off', 'power_cycle', 'recommission', 'abort', 'run_script', 'rescue', 'test',
                    'override_tests', 'reset_bmc')),
  add constraint machine_operation_class_check
    check (class in ('power', 'recommission', 'abort', 'script', 'override', 'bmc'));
