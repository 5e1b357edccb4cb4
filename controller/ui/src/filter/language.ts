// The filter language: docs/concepts/filters.md has the grammar. The region evaluates the same (api/src/filter); both are tested by
// api/src/filter/vectors.json.

import type { Json } from '../api/object';
import { plainNumber, plainOrBytes } from '../parts/size';

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

/** Keys whose capitals count. */
const AS_WRITTEN = /^(?:label[-.]|metadata\.|spec\.|status\.)/;
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
  const key = /^[A-Za-z_][\w./*-]*/.exec(text.slice(start))?.[0] ?? '';
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
  return { key: AS_WRITTEN.test(key) ? key : key.toLowerCase(), op, values, start, end: at };
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
  /** Its numbers, where it is one: it can be compared. */
  numbers?: (row: Row) => readonly number[];
  /** Reads a number of a filter. */
  read?: (text: string) => number | undefined;
}

/** A field by its path, like `spec.bmc.driver`. Of a list each element is looked at; `*` is every member of a map. */
function byPath<Row>(path: string): Field<Row> {
  const words = path.split('.');
  const found = (row: Row) => walk(row as Json, words);
  return { key: path, says: '', values: (row) => found(row).map(String), numbers: (row) => found(row).filter((it) => typeof it === 'number'), read: plainOrBytes };
}

const PATH = /^(?:metadata|spec|status)\../;

function walk(value: Json | undefined, path: readonly string[]): (string | number | boolean)[] {
  const [first, ...rest] = path;
  if (first === undefined) return plainValues(value);
  if (Array.isArray(value)) return value.flatMap((item) => walk(item, path));
  if (typeof value !== 'object' || value === null) return [];
  if (first === '*') return Object.values(value).flatMap((member) => walk(member, rest));
  return Object.hasOwn(value, first) ? walk(value[first], rest) : [];
}

/** The value, or all values in it that have no parts. */
export function plainValues(value: Json | undefined): (string | number | boolean)[] {
  if (value === undefined || value === null || value === '') return [];
  return typeof value === 'object' ? Object.values(value).flatMap(plainValues) : [value];
}

export function fieldOf<Row>(fields: readonly Field<Row>[], key: string): Field<Row> | undefined {
  return fields.find((field) => field.key === key || field.aliases?.includes(key)) ?? (PATH.test(key) ? byPath(key) : undefined);
}

const compares = (op: Op): boolean => op !== ':' && op !== '=' && op !== '!=';

/** How the numbers of a term are read, if it is about numbers. A path is a number where it is compared. */
function reads<Row>(field: Field<Row>, op: Op): ((text: string) => number | undefined) | undefined {
  return field.numbers && (compares(op) || !PATH.test(field.key)) ? (field.read ?? plainNumber) : undefined;
}

/** What is wrong with a term, in words. */
export function fault<Row>(rows: Pick<Rows<Row>, 'fields' | 'lacks'>, term: Term): string | undefined {
  if (!term.key) return undefined;
  if (isLabel(term.key)) return compares(term.op) ? `${term.key} is no number` : undefined;
  const field = fieldOf(rows.fields, term.key);
  if (!field) return `there is no ${term.key} to filter by`;
  const lacking = rows.lacks?.(term.key);
  if (lacking) return lacking;
  if (compares(term.op) && !field.numbers) return `${term.key} is no number`;
  const read = reads(field, term.op);
  const wrong = read && term.values.find((value) => read(value.text) === undefined);
  return wrong ? `${term.key} is a number, and ${wrong.text} is none` : undefined;
}

const LABEL = /^label[-.]/;
const isLabel = (key: string): boolean => LABEL.test(key);

export interface Rows<Row> {
  /** Terms that an empty filter shows. */
  example?: string;
  fields: readonly Field<Row>[];
  /** All words of a row, in lower case. */
  text: (row: Row) => string;
  labels: (row: Row) => Record<string, string>;
  /** Why rows do not carry a field. */
  lacks?: (key: string) => string | undefined;
}

/** Whether a row has all of the terms. A term that is wrong, or has no value yet, asks for nothing. */
export function matcher<Row>(terms: readonly Term[], rows: Rows<Row>): (row: Row) => boolean {
  const tests = terms.filter((term) => term.values.length > 0 && !fault(rows, term)).map((term) => test(term, rows));
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
  const { numbers } = field;
  const read = reads(field, op);
  if (!numbers || !read) return (row) => oneOf(values, field.values(row));
  const has = (value: Value, is: number) => {
    const wanted = read(value.text);
    return wanted !== undefined && compare(is, value.exact ? '=' : op, wanted);
  };
  return (row) => {
    const found = numbers(row);
    return found.length > 0 && fits(values, (value) => found.some((is) => has(value, is)));
  };
}

function compare(is: number, op: Op, wanted: number): boolean {
  switch (op) {
    case '=':
      return is === wanted;
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
function fits(values: readonly Value[], has: (value: Value) => boolean): boolean {
  const wanted = values.filter((value) => !value.not);
  return !values.some((value) => value.not && has(value)) && (wanted.length === 0 || wanted.some(has));
}

function oneOf(values: readonly Value[], found: readonly string[]): boolean {
  return fits(values, ({ text, exact }) => {
    const word = text.toLowerCase();
    return found.some((it) => (exact ? it.toLowerCase() === word : it.toLowerCase().includes(word)));
  });
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
