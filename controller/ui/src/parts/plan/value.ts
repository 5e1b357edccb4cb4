// The value of a field in a plan, as people read it.

/** One field a line, with the indents of YAML. It is not YAML: no text is quoted. */
export function written(value: unknown, indent = ''): string {
  if (value === undefined || value === null) return '—';
  if (typeof value !== 'object') return String(value);
  const below = (it: unknown, prefix: string, more: string): string => {
    if (it === null || typeof it !== 'object') return `${prefix} ${written(it)}`;
    return Object.keys(it).length === 0 ? `${prefix} none` : more;
  };
  if (Array.isArray(value)) {
    if (value.length === 0) return 'none';
    return value.map((it) => below(it, `${indent}-`, `${indent}- ${written(it, `${indent}  `).trimStart()}`)).join('\n');
  }
  const fields = Object.entries(value);
  if (fields.length === 0) return 'none';
  return fields.map(([name, it]) => below(it, `${indent}${name}:`, `${indent}${name}:\n${written(it, `${indent}  `)}`)).join('\n');
}
