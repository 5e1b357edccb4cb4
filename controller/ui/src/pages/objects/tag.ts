// A tag with another expression, as a document.
import type { BasaltObject } from '../../api/object';
import type { Document } from '../../parts/plan/proposal';

/** The other fields stay. An empty expression is left out: only specs give the tag then. */
export function withExpression({ kind, metadata, spec }: BasaltObject, expression: string): Document {
  const { expression: _, ...others } = spec;
  return { kind, metadata: { name: metadata.name }, spec: { ...others, ...(expression && { expression }) } };
}
