// An object as Terraform's provider declares it. The attributes of a resource have the names of the spec's fields.
import type { Json, Metadata } from '../../api/object';

export interface Declared {
  kind: string;
  metadata: Pick<Metadata, 'name' | 'labels'>;
  spec: { [field: string]: Json };
}

/** A block of the resource, one that imports it, and variables for secrets, which the region does not tell. */
export function hclOf({ kind, metadata: { name, labels }, spec }: Declared): string {
  const type = `basalt_${snake(kind)}`;
  const address = identifier(name);
  const secrets: string[] = [];
  const attributes = { name, ...(labels && Object.keys(labels).length > 0 ? { labels } : {}), ...spec };
  const resource = `resource "${type}" "${address}" ${objectOf(attributes, '', [address], secrets)}`;
  const imports = `import {\n  to = ${type}.${address}\n  id = ${text(name)}\n}`;
  const variables = secrets.map((secret) => `variable "${secret}" {\n  type      = string\n  ephemeral = true\n}`);
  return `${[imports, resource, ...variables].join('\n\n')}\n`;
}

function objectOf(object: { [name: string]: Json }, indent: string, at: string[], secrets: string[]): string {
  const inner = `${indent}  `;
  const short: [string, string][] = [];
  const long: [string, string][] = [];
  for (const [name, value] of Object.entries(object)) {
    if (value === null) continue;
    if (isSecret(value)) {
      const variable = [...at, name].map(identifier).join('_').replace(/-/g, '_');
      secrets.push(variable);
      // The value is kept in no state. Another number has it written again.
      short.push([`${name}_wo`, `var.${variable}`], [`${name}_wo_version`, String(value.revision ?? 1)]);
      continue;
    }
    const written = valueOf(value, inner, [...at, name], secrets);
    (written.includes('\n') ? long : short).push([keyOf(name), written]);
  }
  const width = Math.max(0, ...short.map(([name]) => name.length));
  const lines = [...short.map(([name, value]) => `${name.padEnd(width)} = ${value}`), ...long.map(([name, value]) => `${name} = ${value}`)];
  return lines.length === 0 ? '{}' : `{\n${lines.map((line) => `${inner}${line}\n`).join('')}${indent}}`;
}

function valueOf(value: Json, indent: string, at: string[], secrets: string[]): string {
  if (typeof value === 'string') return mayBeHeredoc(value) ? heredoc(value) : text(value);
  if (value === null || typeof value !== 'object') return String(value);
  if (!Array.isArray(value)) return objectOf(value, indent, at, secrets);
  const inner = `${indent}  `;
  const items = value.map((item, place) => (typeof item === 'string' ? text(item) : valueOf(item, inner, [...at, String(place)], secrets)));
  if (!items.some((item) => item.includes('\n'))) return `[${items.join(', ')}]`;
  return `[\n${items.map((item) => `${inner}${item},\n`).join('')}${indent}]`;
}

/** A secret as it is read: only that there is one, and which. */
function isSecret(value: Json): value is { set: true; revision?: number } {
  return value !== null && typeof value === 'object' && !Array.isArray(value) && value.set === true && Object.keys(value).every((key) => key === 'set' || key === 'revision');
}

/** `${` and `%{` begin templates. */
const still = (words: string): string => words.replace(/([$%])\{/g, '$1$1{');

function text(words: string): string {
  // HCL has no escapes for these two.
  const quoted = JSON.stringify(words).replace(/(?<!\\)((?:\\\\)*)\\b/g, '$1\\u0008').replace(/(?<!\\)((?:\\\\)*)\\f/g, '$1\\u000c');
  return still(quoted);
}

/** A heredoc has no escapes, and ends at the first line that is its marker, with white space around it or without. */
const mayBeHeredoc = (words: string): boolean => words.endsWith('\n') && !/[^\P{Cc}\t\n]/u.test(words) && !/^\s*EOT\s*$/m.test(words);

const heredoc = (words: string): string => `<<EOT\n${still(words)}EOT`;

/** In braces, `for` begins an expression. */
const keyOf = (name: string): string => (/^(?!for$)[A-Za-z_][\w-]*$/.test(name) ? name : text(name));

/** A name that Terraform takes for a resource. */
function identifier(name: string): string {
  const word = name.replace(/[^\w-]/g, '_');
  return /^[A-Za-z_]/.test(word) ? word : `_${word}`;
}

const snake = (kind: string): string => kind.replace(/(?<=[a-z])[A-Z]/g, '_$&').toLowerCase();
