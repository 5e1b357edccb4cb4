// Order that does not jump: a row stays where it is until the reader sorts again, whatever changes in it.
import { useMemo, useRef } from 'react';

const collator = new Intl.Collator('en', { numeric: true });

export type Key = string | number | undefined;

/** What has no value comes last. */
function byKey(a: Key, b: Key): number {
  if (a === undefined || b === undefined) return a === b ? 0 : a === undefined ? 1 : -1;
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return collator.compare(String(a), String(b));
}

interface Named {
  metadata: { uid: string; name: string };
}

interface Kept {
  asked: string;
  order: string[];
}

/** Rows by a key; `asked` is another one whenever the reader asks for another order or other rows. */
export function useOrder<Row extends Named>(rows: readonly Row[], key: (row: Row) => Key, descending: boolean, asked: string): readonly Row[] {
  const kept = useRef<Kept>({ asked: '', order: [] });
  return useMemo(() => {
    const next = ordered(rows, key, descending, kept.current.asked === asked ? kept.current.order : undefined);
    kept.current = { asked, order: next.map((row) => row.metadata.uid) };
    return next;
    // `asked` stands for key and direction.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [rows, asked]);
}

export function ordered<Row extends Named>(
  rows: readonly Row[],
  key: (row: Row) => Key,
  descending: boolean,
  before: readonly string[] | undefined,
): Row[] {
  const sign = descending ? -1 : 1;
  const compare = (a: Row, b: Row) => {
    const [x, y] = [key(a), key(b)];
    const by = x === undefined || y === undefined ? byKey(x, y) : sign * byKey(x, y);
    return by || collator.compare(a.metadata.name, b.metadata.name);
  };
  if (!before) return [...rows].sort(compare);
  const present = new Map(rows.map((row) => [row.metadata.uid, row]));
  const shown: Row[] = [];
  for (const uid of before) {
    const row = present.get(uid);
    if (row) shown.push(row);
    present.delete(uid);
  }
  if (present.size > 200) return [...rows].sort(compare);
  for (const fresh of [...present.values()].sort(compare)) {
    const place = shown.findIndex((row) => compare(fresh, row) < 0);
    shown.splice(place < 0 ? shown.length : place, 0, fresh);
  }
  return shown;
}

/** A line of a list: the head of a group, or a row with its place among the rows. */
export type Line<Row> = { head: string; count: number } | { row: Row; place: number };

/** Rows by their groups, which come in the order of their names. In a group the rows keep their order. */
export function grouped<Row>(rows: readonly Row[], group: (row: Row) => string): Line<Row>[] {
  const groups = new Map<string, Row[]>();
  for (const row of rows) {
    const head = group(row);
    const known = groups.get(head);
    if (known) known.push(row);
    else groups.set(head, [row]);
  }
  let place = 0;
  return [...groups]
    .sort(([a], [b]) => collator.compare(a, b))
    .flatMap(([head, all]): Line<Row>[] => [{ head, count: all.length }, ...all.map((row) => ({ row, place: place++ }))]);
}
