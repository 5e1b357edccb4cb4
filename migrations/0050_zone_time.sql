-- A zone says since when its content is as it is, so that racks whose documents are older are known (docs/decisions/108-explain-names.md).
alter table zone add column updated_at timestamptz not null default clock_timestamp();
