-- Accounts that machines have made on their BMCs. The latest of each machine.
create table bmc_account (
  machine  uuid primary key references object on delete cascade,
  attempt  bigint not null,                 -- that made it
  revision int not null,                    -- counts from 1
  username text not null,
  sealed   bytea not null,                  -- the password
  rotate   bigint not null,                 -- `bmc.rotate` of the machine when the account was made
  -- made: the BMC took it from inside; checked: a rack has used it; refused: racks cannot use it
  state    text not null default 'made' check (state in ('made', 'checked', 'refused')),
  made_at  timestamptz not null default clock_timestamp()
);
