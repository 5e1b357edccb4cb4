// Values of forms: what somebody types, and the spec that it stands for.
import type { FieldOf } from '../../api/kinds';
import type { Json } from '../../api/object';
import type { Schemas } from '../../api/client';

export type Spec = { [field: string]: Json };

/** The fields of a group. */
export function groupOf(value: Json | undefined): Spec {
  return value !== null && typeof value === 'object' && !Array.isArray(value) ? value : {};
}

/** The spec with another value of a field. Without a value the field is left out, and so is a group without fields. */
export function changed(spec: Spec, [first, ...rest]: string[], value: Json | undefined): Spec {
  if (first === undefined) return spec;
  const { [first]: before, ...others } = spec;
  const next = rest.length > 0 ? changed(groupOf(before), rest, value) : value;
  const isLeftOut = next === undefined || (rest.length > 0 && Object.keys(next as object).length === 0);
  if (isLeftOut) return others;
  // A field keeps its place.
  return first in spec ? Object.fromEntries(Object.entries(spec).map(([name, it]) => [name, name === first ? next : it])) : { ...spec, [first]: next };
}

/** As it stands in an input. */
export function shownOf({ shape }: FieldOf, value: Json | undefined): string {
  if (value === undefined || value === null) return '';
  if (Array.isArray(value)) return value.map(String).join(shape.is === 'items' ? '\n' : ', ');
  if (typeof value !== 'object') return String(value);
  return Object.entries(value)
    .map(([name, text]) => `${name}=${String(text)}`)
    .join('\n');
}

/** The value of what was typed. What is no number is sent as it is: the region says what is wrong with it. */
export function typedOf({ shape }: FieldOf, text: string): Json | undefined {
  if (text.trim() === '') return undefined;
  switch (shape.is) {
    case 'whole':
    case 'number':
      return Number.isNaN(Number(text)) ? text : Number(text);
    case 'yes-no':
      return text === 'true';
    case 'list':
      return text.split(/[,\s]+/).filter(Boolean);
    case 'items':
      return text.split('\n').map((line) => line.trim()).filter(Boolean);
    case 'texts':
      return Object.fromEntries(
        text.split('\n').filter((line) => line.trim() !== '').map((line) => {
          const [name = '', ...value] = line.split('=');
          return [name.trim(), value.join('=').trim()];
        }),
      );
    case 'lines':
    case 'secret':
      return text;
    default:
      return text.trim();
  }
}

/** The secret that an empty input stands for: the one that was read. Nothing stands for one that YAML left out. */
export function keptOf(value: Json | undefined, first: Json | undefined): Json | undefined {
  return value === undefined || value === null ? undefined : [value, first].find((it) => groupOf(it).set === true);
}

/** An error at a field of the spec, by the path of the field. */
export type Faults = ReadonlyMap<string, string>;

/** Refusals of the only document, each at its field. An error within a field that has no inputs of its own is told at that field. */
export function faultsOf(errors: Schemas['FieldError'][], fields: readonly FieldOf[]): { faults: Faults; others: Schemas['FieldError'][] } {
  const faults = new Map<string, string>();
  const others: Schemas['FieldError'][] = [];
  for (const error of errors) {
    const path = error.pointer.replace(/^\/documents\/0/, '').replace(/^\/spec/, '').split('/').slice(1);
    const at = error.pointer.endsWith('/metadata/name') ? 'name' : placeOf(path, fields);
    const words = [error.message, error.hint].filter(Boolean).join('; ');
    if (at === undefined) others.push(error);
    else faults.set(at, [faults.get(at), words].filter(Boolean).join('. '));
  }
  return { faults, others };
}

function placeOf([first, ...rest]: string[], fields: readonly FieldOf[]): string | undefined {
  const field = fields.find(({ name }) => name === first);
  if (!field) return undefined;
  const inner = field.shape.is === 'group' ? placeOf(rest, field.shape.fields) : undefined;
  return inner === undefined ? `/${field.name}` : `/${field.name}${inner}`;
}
