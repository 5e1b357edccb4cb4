-- Tags that managers give a machine beside the ones of its spec; labels have their layers in object.labels.
create table tag_layer (
  object  uuid not null references object on delete cascade,
  manager text not null,
  tag     text not null,
  primary key (object, manager, tag)
);
