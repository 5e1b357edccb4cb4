-- Racks are told who has claimed an attempt that is not begun twice (docs/decisions/059-scripts.md).

alter table machine_boot add column claim jsonb;
