// The filter language: what MAAS's users type, and comparisons.
//
//   words               somewhere in the row
//   zone:row-1          has it in it       zone:row-1,row-2 or zone:(row-1,row-2): one of them
//   zone:(=row-1)       is just that       zone:(!row-1) or zone:!row-1: has it not
//   cores:32            at least           cores>=32 cores<8 cores=16 ram>256GiB
//   "two words"         quotes keep spaces and signs

export type Op = ':' | '=' | '!=' | '>' | '>=' | '<' | '<=';

export interface Value {
  text: string;
  exact: boolean;
  not: boolean;
}

export interface Term {
  /** Nothing for words. */
  key?: string;
  op: Op;
  values: Value[];
  /** Where it is in the text. */
  start: number;
  end: number;
}

const OPS: Op[] = ['>=', '<=', '!=', ':', '=', '>', '<'];

/** The terms of a text. What is typed half is a term already, of what is there. */
export function parse(text: string): Term[] {
  const terms: Term[] = [];
  let at = 0;
  while (at < text.length) {
    if (/\s/.test(text[at] ?? '')) {
      at += 1;
      continue;
    }
    const term = termAt(text, at);
    terms.push(term);
    at = term.end;
  }
  return terms;
}

function termAt(text: string, start: number): Term {
  const key = /^[A-Za-z_][\w./-]*/.exec(text.slice(start))?.[0] ?? '';
  const behind = start + key.length;
  const op = key ? OPS.find((op) => text.startsWith(op, behind)) : undefined;
  if (!op) {
    const word = quotedAt(text, start, /\s/);
    return { op: ':', values: word.text ? [{ text: word.text, exact: false, not: false }] : [], start, end: word.end };
  }
  let at = behind + op.length;
  let not = false;
  if (text[at] === '!') {
    not = true;
    at += 1;
  }
  const group = text[at] === '(';
  if (group) at += 1;
  const values: Value[] = [];
  const stop = group ? /[,)]/ : /[\s,]/;
  for (;;) {
    while (group && /\s/.test(text[at] ?? '')) at += 1;
    const value: Value = { text: '', exact: op === '=' || op === '!=', not: not || op === '!=' };
    for (; text[at] === '=' || text[at] === '!'; at += 1) {
      if (text[at] === '=') value.exact = true;
      else value.not = true;
    }
    const word = quotedAt(text, at, stop);
    value.text = word.text.trim();
    at = word.end;
    if (value.text) values.push(value);
    if (text[at] !== ',') break;
    at += 1;
  }
  if (group && text[at] === ')') at += 1;
  return { key: key.toLowerCase(), op, values, start, end: at };
}

/** Text up to a sign outside of quotes. */
function quotedAt(text: string, start: number, stop: RegExp): { text: string; end: number } {
  let said = '';
  let quoted = false;
  let at = start;
  for (; at < text.length; at += 1) {
    const sign = text[at] ?? '';
    if (sign === '"') quoted = !quoted;
    else if (!quoted && stop.test(sign)) break;
    else said += sign;
  }
  return { text: said, end: at };
}

/** What rows can be asked for. */
export interface Field<Row> {
  key: string;
  aliases?: string[];
  says: string;
  values: (row: Row) => readonly string[];
  /** Its number, where it is one: it can be compared. */
  number?: (row: Row) => number | undefined;
  /** Reads a number of a filter. */
  read?: (text: string) => number | undefined;
}

export function fieldOf<Row>(fields: readonly Field<Row>[], key: string): Field<Row> | undefined {
  return fields.find((field) => field.key === key || field.aliases?.includes(key));
}

/** What is wrong with a term, in words. */
export function fault<Row>(fields: readonly Field<Row>[], term: Term): string | undefined {
  if (!term.key || isLabel(term.key)) return undefined;
  const field = fieldOf(fields, term.key);
  if (!field) return `there is no ${term.key} to filter by`;
  const compares = ['>', '>=', '<', '<='].includes(term.op);
  if (compares && !field.number) return `${field.key} is no number: ${field.key}:…`;
  if (!field.number) return undefined;
  const read = field.read ?? Number;
  const wrong = term.values.find((value) => !Number.isFinite(read(value.text) ?? Number.NaN));
  return wrong ? `${field.key} is a number, and ${wrong.text} is none` : undefined;
}

const LABEL = /^label[-.]/;
const isLabel = (key: string): boolean => LABEL.test(key);

export interface Rows<Row> {
  fields: readonly Field<Row>[];
  /** All words of a row, in lower case. */
  text: (row: Row) => string;
  labels: (row: Row) => Record<string, string>;
}

/** Whether a row has all of the terms. A term that is wrong, or has no value yet, asks for nothing. */
export function matcher<Row>(terms: readonly Term[], rows: Rows<Row>): (row: Row) => boolean {
  const tests = terms.filter((term) => term.values.length > 0 && !fault(rows.fields, term)).map((term) => test(term, rows));
  return (row) => tests.every((holds) => holds(row));
}

function test<Row>(term: Term, rows: Rows<Row>): (row: Row) => boolean {
  const { key, op, values } = term;
  if (!key) {
    const words = values.map((value) => value.text.toLowerCase());
    return (row) => words.every((word) => rows.text(row).includes(word));
  }
  if (isLabel(key)) {
    const label = key.replace(LABEL, '');
    return (row) => oneOf(values, [rows.labels(row)[label] ?? ''].filter(Boolean));
  }
  const field = fieldOf(rows.fields, key);
  if (!field) return () => true;
  const { number, read = Number } = field;
  if (!number) return (row) => oneOf(values, field.values(row));
  return (row) => {
    const is = number(row);
    if (is === undefined) return false;
    return values.some((value) => compare(is, value.exact && op === ':' ? '=' : op, read(value.text) ?? 0) !== (value.not && op !== '!='));
  };
}

function compare(is: number, op: Op, wanted: number): boolean {
  switch (op) {
    case '=':
      return is === wanted;
    case '!=':
      return is !== wanted;
    case '>':
      return is > wanted;
    case '<':
      return is < wanted;
    case '<=':
      return is <= wanted;
    default:
      return is >= wanted;
  }
}

/** One of those that are asked for, if any is; and none of those that are not. */
function oneOf(values: readonly Value[], found: readonly string[]): boolean {
  const has = ({ text, exact }: Value) => {
    const word = text.toLowerCase();
    return found.some((it) => (exact ? it.toLowerCase() === word : it.toLowerCase().includes(word)));
  };
  const wanted = values.filter((value) => !value.not);
  return !values.some((value) => value.not && has(value)) && (wanted.length === 0 || wanted.some(has));
}

/** The text without a term. */
export function without(text: string, term: Term): string {
  return `${text.slice(0, term.start)}${text.slice(term.end)}`.replace(/\s+/g, ' ').trim();
}

/** The term without which most rows match. */
export function strictest<Row>(terms: readonly Term[], rows: Rows<Row>, all: readonly Row[]): { term: Term; matches: number } | undefined {
  let found: { term: Term; matches: number } | undefined;
  for (const term of terms) {
    const holds = matcher(terms.filter((it) => it !== term), rows);
    const matches = all.filter(holds).length;
    if (!found || matches > found.matches) found = { term, matches };
  }
  return found;
}

/** A value as it has to be written. */
export function quoted(text: string): string {
  return /[\s,()"!=<>:]/.test(text) ? `"${text.replaceAll('"', '')}"` : text;
}
