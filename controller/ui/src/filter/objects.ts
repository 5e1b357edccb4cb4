// The keys by which objects of any kind are filtered: their state, their manager, and each plain field of their spec.
import type { BasaltObject, Json } from '../api/object';
import { stateOf, wordsOf } from '../parts/state';
import { type Field, type Rows, plainValues } from './language';

const texts = new WeakMap<BasaltObject, string>();

function text(object: BasaltObject): string {
  const known = texts.get(object);
  if (known !== undefined) return known;
  const labels = Object.entries(object.metadata.labels ?? {}).map((pair) => pair.join('='));
  const said = [object.metadata as unknown as Json, object.spec].flatMap(plainValues);
  const made = [...wordsOf(object), ...said, stateOf(object).reason, ...labels].join(' ').toLowerCase();
  texts.set(object, made);
  return made;
}

/** A plain value as text; nothing of what has parts. */
export function scalars(value: Json | undefined): string[] {
  if (value === undefined || value === null) return [];
  if (Array.isArray(value)) return value.flatMap(scalars);
  return typeof value === 'object' ? [] : [String(value)];
}

export function rowsOf(spec: readonly { name: string; says: string }[]): Rows<BasaltObject> {
  const fields: Field<BasaltObject>[] = [
    { key: 'name', says: 'its name', values: ({ metadata }) => [metadata.name] },
    { key: 'status', says: 'how it is', values: wordsOf },
    { key: 'manager', says: 'the tool that declared it', values: ({ metadata }) => (metadata.manager ? [metadata.manager] : []) },
    ...spec
      .filter(({ name }) => !['name', 'status', 'manager'].includes(name))
      .map(({ name, says }) => ({ key: name, says, values: (object: BasaltObject) => plainValues(object.spec[name]).map(String) })),
  ];
  return { fields, text, labels: ({ metadata }) => metadata.labels ?? {} };
}
