-- The destination of an account's password: racks send the password nowhere else. An account without a destination is not used, and the
-- next commissioning makes another.
alter table bmc_account
  add column destination jsonb not null default '{}',
  -- SHA-256, in hexadecimal, of the certificate that the BMC showed when a rack used the account
  add column certificate text;
