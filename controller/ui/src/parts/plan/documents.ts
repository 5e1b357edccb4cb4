// Documents as people write them: YAML, one or many.
import { parseAllDocuments, stringify } from 'yaml';
import type { Json } from '../../api/object';
import type { Document } from './proposal';

export function yamlOf({ kind, metadata, spec }: { kind: string; metadata: { name: string; labels?: Record<string, string> }; spec: unknown }): string {
  const labels = metadata.labels && Object.keys(metadata.labels).length > 0 ? { labels: metadata.labels } : {};
  return stringify({ kind, metadata: { name: metadata.name, ...labels }, spec }, { lineWidth: 0 });
}

/** The documents of a text, or what is wrong with it. */
export function documentsOf(text: string): Document[] | string {
  const documents: Document[] = [];
  for (const document of parseAllDocuments(text)) {
    const [error] = document.errors;
    if (error) return error.message;
    const value = document.toJS() as { kind?: unknown; metadata?: { name?: unknown; labels?: Record<string, string> }; spec?: Json } | null;
    if (value === null) continue;
    const name = value.metadata?.name;
    if (typeof value.kind !== 'string' || typeof name !== 'string') return 'each document needs kind and metadata.name, as text';
    documents.push({ kind: value.kind, metadata: { name, labels: value.metadata?.labels }, spec: value.spec ?? {} });
  }
  return documents.length > 0 ? documents : 'there is no document';
}
