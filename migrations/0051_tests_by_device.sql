-- A run of a test for a device that was named stands beside the run before (docs/decisions/109-scripts-complete.md).

alter table test_result add column narrow boolean not null default false;
