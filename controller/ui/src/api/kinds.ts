// The kinds and the meaning of their fields, as the region describes them (/openapi.json).
import { useQuery } from '@tanstack/react-query';
import { ask } from './client';

export interface FieldOf {
  name: string;
  says: string;
  /** The kind that it names an object of. */
  refersTo?: string;
  effect?: string;
  shape: Shape;
  required: boolean;
  /** A change replaces the object. */
  immutable: boolean;
  /** What it is where it is left out. */
  usual?: unknown;
  example?: string;
  /** Its members have names that people chose. */
  isMap: boolean;
}

/** What a form asks for in a field. */
export type Shape =
  | { is: 'text' | 'lines' | 'whole' | 'number' | 'yes-no' | 'secret' }
  | { is: 'choice'; of: string[] }
  /** Words, each of which may be one of a choice. */
  | { is: 'list'; of?: string[] }
  /** Texts that may have spaces. */
  | { is: 'items' }
  /** Texts by names. */
  | { is: 'texts' }
  | { is: 'group'; fields: FieldOf[] }
  /** Too deep for a form. */
  | { is: 'other' };

export interface Kind {
  name: string;
  plural: string;
  says: string;
  spec: FieldOf[];
  status: FieldOf[];
  declarable: boolean;
  /** A spec of one. */
  example?: unknown;
}

interface Schema {
  description?: string;
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema;
  type?: string | string[];
  enum?: (string | null)[];
  format?: string;
  anyOf?: Schema[];
  $ref?: string;
  required?: string[];
  default?: unknown;
  examples?: string[];
  maxLength?: number;
  pattern?: string;
  'x-basalt-immutable'?: boolean;
  'x-basalt-refers-to'?: string;
  'x-basalt-effect'?: string;
}

interface Document {
  paths: Record<string, Record<string, unknown>>;
  components: { schemas: Record<string, Schema> };
}

export function kindsOf({ paths, components: { schemas } }: Document): Kind[] {
  const lists = Object.entries(paths).flatMap(([path, methods]) => {
    const plural = /^\/api\/v1\/(\w+)$/.exec(path)?.[1];
    const name = /^list(\w+)$/.exec((methods.get as { operationId?: string } | undefined)?.operationId ?? '')?.[1];
    return plural && name && schemas[`${name}Spec`] ? [{ plural, name }] : [];
  });
  return lists.map(({ plural, name }) => ({
    name,
    plural,
    says: schemas[`${name}Spec`]?.description ?? '',
    spec: fieldsOf(schemas[`${name}Spec`], schemas),
    status: fieldsOf(schemas[`${name}Status`], schemas),
    declarable: 'put' in (paths[`/api/v1/${plural}/{name}`] ?? {}),
    example: exampleOf(paths[`/api/v1/${plural}/{name}`]?.put),
  }));
}

interface Put {
  requestBody?: { content?: Record<string, { example?: { spec?: unknown } }> };
}

function exampleOf(put: unknown): unknown {
  return (put as Put | undefined)?.requestBody?.content?.['application/json']?.example?.spec;
}

type Schemas = Record<string, Schema>;

/** Groups in groups are for YAML. */
const DEEPEST = 1;
/** The pattern of a text with line ends. */
const OF_LINES = '^[^\\u0000]*$';

function fieldsOf(schema: Schema | undefined, schemas: Schemas, depth = 0): FieldOf[] {
  return Object.entries(schema?.properties ?? {}).map(([name, field]) => ({
    name,
    says: field.description ?? '',
    refersTo: field['x-basalt-refers-to'] ?? field.items?.['x-basalt-refers-to'],
    effect: field['x-basalt-effect'],
    shape: shapeOf(field, schemas, depth),
    required: schema?.required?.includes(name) ?? false,
    immutable: field['x-basalt-immutable'] ?? false,
    usual: field.default,
    example: field.examples?.[0] ?? field.items?.examples?.[0],
    isMap: typeof field.additionalProperties === 'object',
  }));
}

function shapeOf(field: Schema, schemas: Schemas, depth: number): Shape {
  const named = field.$ref ?? field.anyOf?.find((it) => it.$ref)?.$ref;
  if (named) {
    const name = named.slice(named.lastIndexOf('/') + 1);
    if (name === 'Secret') return { is: 'secret' };
    const fields = depth < DEEPEST ? fieldsOf(schemas[name], schemas, depth + 1) : [];
    return fields.length > 0 ? { is: 'group', fields } : { is: 'other' };
  }
  const choice = field.enum?.filter((it) => it !== null);
  const type = [field.type].flat().find((it) => it !== 'null');
  if (choice) return { is: 'choice', of: choice };
  if (type === 'string') return { is: field.pattern === OF_LINES ? 'lines' : 'text' };
  if (type === 'integer') return { is: 'whole' };
  if (type === 'number') return { is: 'number' };
  if (type === 'boolean') return { is: 'yes-no' };
  const items = field.items && [field.items.type].flat()[0];
  if (type === 'array' && field.items && items === 'string') {
    return mayHaveSpaces(field.items) ? { is: 'items' } : { is: 'list', of: field.items.enum?.filter((it) => it !== null) };
  }
  const values = typeof field.additionalProperties === 'object' ? field.additionalProperties : undefined;
  return type === 'object' && values?.type === 'string' ? { is: 'texts' } : { is: 'other' };
}

/** Formats without a pattern are names, except that of SSH keys. */
function mayHaveSpaces({ enum: choice, pattern, format }: Schema): boolean {
  if (choice) return choice.some((it) => it?.includes(' '));
  if (pattern !== undefined) return new RegExp(pattern).test('a b');
  return format === undefined || format === 'ssh-key';
}

export function useKinds(): Kind[] | undefined {
  const { data } = useQuery({
    queryKey: ['kinds'],
    queryFn: async () => kindsOf(await ask<Document>('/openapi.json')),
    staleTime: Number.POSITIVE_INFINITY,
  });
  return data;
}
