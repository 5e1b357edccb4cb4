-- All racks that reported an undeclared machine; `source` is the last one.
alter table stranger add column sources text[] not null default '{}';
