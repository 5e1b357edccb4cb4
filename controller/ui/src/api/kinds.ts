// The kinds and the meaning of their fields, as the region describes them (/openapi.json).
import { useQuery } from '@tanstack/react-query';
import { ask } from './client';

export interface FieldOf {
  name: string;
  says: string;
  /** The kind that it names an object of. */
  refersTo?: string;
  effect?: string;
}

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
  items?: Schema;
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
    spec: fieldsOf(schemas[`${name}Spec`]),
    status: fieldsOf(schemas[`${name}Status`]),
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

function fieldsOf(schema: Schema | undefined): FieldOf[] {
  return Object.entries(schema?.properties ?? {}).map(([name, field]) => ({
    name,
    says: field.description ?? '',
    refersTo: field['x-basalt-refers-to'] ?? field.items?.['x-basalt-refers-to'],
    effect: field['x-basalt-effect'],
  }));
}

export function useKinds(): Kind[] | undefined {
  const { data } = useQuery({
    queryKey: ['kinds'],
    queryFn: async () => kindsOf(await ask<Document>('/openapi.json')),
    staleTime: Number.POSITIVE_INFINITY,
  });
  return data;
}
