// Completion at the caret: keys, and values that exist.
import { type Field, type Rows, fieldOf, quoted } from './language';

export interface Choice {
  label: string;
  says: string;
  /** The text and the caret after it is taken. */
  text: string;
  caret: number;
}

const MOST = 12;

export function complete<Row>(text: string, caret: number, rows: Rows<Row>, all: readonly Row[]): Choice[] {
  const before = text.slice(0, caret);
  const from = wordStart(before);
  const word = before.slice(from);
  const take = (start: number, insert: string, label: string, says: string): Choice => ({
    label,
    says,
    text: text.slice(0, start) + insert + text.slice(caret),
    caret: start + insert.length,
  });
  const match = /^([A-Za-z_][\w./*-]*)(?:>=|<=|!=|[:=<>])(.*)$/s.exec(word);
  if (!match) {
    const typed = word.toLowerCase();
    return rows.fields
      .filter((field) => field.key.startsWith(typed) || field.aliases?.some((alias) => alias.startsWith(typed)))
      .slice(0, MOST)
      .map((field) => take(from, field.numbers ? `${field.key}>=` : `${field.key}:`, field.key, field.says));
  }
  const field = fieldOf(rows.fields, (match[1] ?? '').toLowerCase());
  if (!field) return [];
  const value = /[^,(!=]*$/.exec(match[2] ?? '')?.[0] ?? '';
  const typed = value.replaceAll('"', '').toLowerCase();
  return counted(field, all)
    .filter(([it]) => it.toLowerCase().includes(typed))
    .slice(0, MOST)
    .map(([it, count]) => take(caret - value.length, `${quoted(it)} `, it, String(count)));
}

/** Values that rows have, the most frequent first. */
function counted<Row>(field: Field<Row>, all: readonly Row[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const row of all) for (const value of field.values(row)) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort(([a, x], [b, y]) => y - x || a.localeCompare(b));
}

function wordStart(before: string): number {
  let [quoted, depth, start] = [false, 0, 0];
  for (let at = 0; at < before.length; at += 1) {
    const sign = before[at] ?? '';
    if (sign === '"') quoted = !quoted;
    else if (!quoted && sign === '(') depth += 1;
    else if (!quoted && sign === ')') depth = Math.max(0, depth - 1);
    else if (!quoted && depth === 0 && /\s/.test(sign)) start = at + 1;
  }
  return start;
}
