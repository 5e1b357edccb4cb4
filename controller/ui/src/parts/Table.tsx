import { useVirtualizer } from '@tanstack/react-virtual';
import { type KeyboardEvent, type ReactNode, useEffect, useMemo, useRef, useState, useSyncExternalStore } from 'react';
import { isCompact, onDensity } from '../app/theme';
import { type Key, type Line, grouped, useOrder } from './order';
import css from './Table.module.css';

interface Named {
  metadata: { uid: string; name: string };
}

export interface Column<Row> {
  key: string;
  title: string;
  /** In pixels; it is never less. */
  width: number;
  /** It takes what is left. */
  grows?: boolean;
  cell: (row: Row) => ReactNode;
  /** By what it is sorted; not at all without. */
  by?: (row: Row) => Key;
  end?: boolean;
}

interface Props<Row> {
  label: string;
  rows: readonly Row[];
  columns: readonly Column<Row>[];
  /** `name`, or `-name` for the other direction. */
  sort: string;
  changeSort: (sort: string) => void;
  /** What the rows are an answer to: with another answer they are sorted anew. */
  of: string;
  open: (row: Row) => void;
  /** The group of a row; groups have heads. */
  group?: (row: Row) => string;
  selected?: ReadonlySet<string>;
  select?: (selected: Set<string>) => void;
}

// As tokens.css and Table.module.css have them.
const [ROW, COMPACT_ROW] = [32, 28];
const CHECK = 24;
const GAP = 12;
const EDGE = 16;

/** A virtual grid: only rows on the screen are in the document. */
export function Table<Row extends Named>({ label, rows, columns, sort, changeSort, of, open, group, selected, select }: Props<Row>) {
  const box = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState(-1);
  const descending = sort.startsWith('-');
  const by = columns.find((column) => column.key === sort.replace('-', '')) ?? columns[0];
  const ungrouped = useOrder(rows, by?.by ?? ((row) => row.metadata.name), descending, `${sort} ${of}`);
  const lines = useMemo(() => (group ? grouped(ungrouped, group) : ungrouped.map((row, place): Line<Row> => ({ row, place }))), [ungrouped, group]);
  const sorted = useMemo(() => (group ? lines.flatMap((line) => ('row' in line ? [line.row] : [])) : ungrouped), [lines, ungrouped, group]);
  const height = useSyncExternalStore(onDensity, isCompact) ? COMPACT_ROW : ROW;
  const virtual = useVirtualizer({ count: lines.length, getScrollElement: () => box.current, estimateSize: () => height, overscan: 12, scrollPaddingStart: height });
  useEffect(() => virtual.measure(), [virtual, height]);
  const widths = [...(select ? [CHECK] : []), ...columns.map((column) => column.width)];
  const least = widths.reduce((all, width) => all + width + GAP, 2 * EDGE - GAP);
  const template = [...(select ? [`${CHECK}px`] : []), ...columns.map(({ width, grows }) => (grows ? `minmax(${width}px, 1fr)` : `${width}px`))].join(' ');
  const shape = { gridTemplateColumns: template, minWidth: least };
  const current = sorted[at];
  useEffect(() => {
    if (at >= sorted.length) setAt(sorted.length - 1);
  }, [at, sorted.length]);

  const toggle = (row: Row) => {
    const next = new Set(selected);
    if (!next.delete(row.metadata.uid)) next.add(row.metadata.uid);
    select?.(next);
  };
  const go = (place: number) => {
    const next = Math.max(0, Math.min(sorted.length - 1, place));
    setAt(next);
    virtual.scrollToIndex(lines.findIndex((line) => 'row' in line && line.place === next));
  };
  const press = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor((box.current?.clientHeight ?? 0) / ROW) - 2);
    const steps: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: sorted.length - 1, PageDown: at + page, PageUp: at - page };
    const step = steps[event.key];
    if (event.target !== event.currentTarget) return;
    if (step !== undefined) go(step);
    else if (event.key === 'Enter' && current) open(current);
    else if (event.key === ' ' && current && select) toggle(current);
    else if (event.key === 'a' && (event.ctrlKey || event.metaKey) && select) select(new Set(sorted.map((row) => row.metadata.uid)));
    else if (event.key === 'Escape' && select) select(new Set());
    else return;
    event.preventDefault();
  };
  const all = !!selected && sorted.length > 0 && sorted.every((row) => selected.has(row.metadata.uid));

  return (
    <div
      ref={box}
      className={css.box}
      role="grid"
      aria-label={label}
      aria-rowcount={sorted.length + 1}
      aria-multiselectable={select ? true : undefined}
      aria-activedescendant={current ? `row-${current.metadata.uid}` : undefined}
      tabIndex={0}
      onKeyDown={press}
    >
      <div className={css.head} role="row" aria-rowindex={1} style={shape}>
        {select && (
          <div role="columnheader" className={css.check}>
            <input
              type="checkbox"
              aria-label="Select all that match"
              checked={all}
              onChange={() => select(all ? new Set() : new Set(sorted.map((row) => row.metadata.uid)))}
            />
          </div>
        )}
        {columns.map(({ key, title, by, end }) => {
          const sorts = by && sort.replace('-', '') === key;
          return (
            <div key={key} role="columnheader" className={end ? css.end : undefined} aria-sort={sorts ? (descending ? 'descending' : 'ascending') : undefined}>
              {by ? (
                <button type="button" className={css.sort} onClick={() => changeSort(sorts && !descending ? `-${key}` : key)}>
                  {title}
                  <span aria-hidden="true">{sorts ? (descending ? ' ↓' : ' ↑') : ''}</span>
                </button>
              ) : (
                title
              )}
            </div>
          );
        })}
      </div>
      <div role="rowgroup" className={css.rows} style={{ height: virtual.getTotalSize(), minWidth: least }}>
        {virtual.getVirtualItems().map(({ index, start }) => {
          const line = lines[index];
          if (!line) return null;
          if (!('row' in line)) {
            return (
              <div key={`group ${line.head}`} role="row" className={css.group} style={{ minWidth: least, transform: `translateY(${start}px)` }}>
                <div role="gridcell" aria-colspan={columns.length}>
                  {line.head} <span className="muted">{line.count}</span>
                </div>
              </div>
            );
          }
          const { row, place } = line;
          const { uid, name } = row.metadata;
          const chosen = selected?.has(uid);
          return (
            <div
              key={uid}
              id={`row-${uid}`}
              role="row"
              aria-rowindex={place + 2}
              aria-selected={select ? !!chosen : undefined}
              className={`${css.row} ${place === at ? css.at : ''}`}
              style={{ ...shape, transform: `translateY(${start}px)` }}
              onClick={(event) => {
                if ((event.target as HTMLElement).closest('a, button, input')) return;
                setAt(place);
                open(row);
              }}
            >
              {select && (
                <div role="gridcell" className={css.check}>
                  <input type="checkbox" tabIndex={-1} aria-label={`Select ${name}`} checked={!!chosen} onChange={() => toggle(row)} />
                </div>
              )}
              {columns.map(({ key, cell, end }) => (
                <div key={key} role="gridcell" className={end ? css.end : css.cell}>
                  {cell(row)}
                </div>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}
