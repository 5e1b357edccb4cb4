-- Since when no Image names a blob; null while one does.
alter table blob add column unused_since timestamptz;
