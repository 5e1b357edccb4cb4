-- What the public watch needs of the change log.

-- The last change of one object: which version of it a reading contains.
create index change_log_object on change_log (object, seq);

-- The log is kept from here on; an older position cannot be resumed from.
alter table region_meta add column compacted_through bigint not null default 0;
