-- Tags that machines have because a tag's expression holds for them, or for which it cannot be computed (`error`).
create table machine_tag (
  machine uuid not null references object on delete cascade,
  tag     uuid not null references object on delete cascade,
  name    text not null,
  error   text,
  primary key (machine, tag)
);
create index machine_tag_tag on machine_tag (tag);
