-- The racks that reported an undeclared machine, the last one at the end.
alter table stranger add column sources text[] not null default '{}';
update stranger set sources = array[source];
alter table stranger alter column sources drop default, drop column source;
