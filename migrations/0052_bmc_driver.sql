-- The protocol by which racks use an account that a machine has made.
alter table bmc_account
  add column driver text not null default 'ipmi' check (driver in ('ipmi', 'redfish'));
