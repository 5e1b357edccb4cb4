-- An entry is what racks are told of one machine in one concern. The machine's reconciliation writes it, under the epoch of its lease.
-- `says` is compared and shown to nobody; `body` is what racks get, sealed. Null: there is nothing to tell any more.
create sequence entry_version;
create table entry (
  concern text not null,
  object  uuid not null references object on delete cascade,
  version bigint not null default nextval('entry_version'),
  epoch   bigint not null,
  says    jsonb not null,
  body    bytea,
  primary key (concern, object)
);

-- Racks that an entry is for, and that it was for. `told` is the version in the document of generation `told_in`, null where that document
-- is without the entry. A row that is not wanted goes when its rack has applied a document without the entry.
create table rack_entry (
  rack    uuid not null references object on delete cascade,
  concern text not null,
  object  uuid not null references object on delete cascade,
  wanted  boolean not null,
  told    bigint,
  told_in bigint,
  primary key (rack, concern, object)
);
create index rack_entry_object on rack_entry (concern, object);

-- Entries take the place of machine_boot, which regions of the version before still write.

-- Addresses show where the machine with their MAC stands.
create index address_mac on address (mac) where class = 'static';
