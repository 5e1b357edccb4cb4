// Bulk actions: the documents for the selected machines, and the machines that took them.
import type { Json, Machine } from '../api/object';
import type { Document, Outcome } from '../parts/plan/proposal';

/** The machines that took it. The others stay selected: refused, failed and not asked. */
export function takenBy(machines: readonly Machine[], became: readonly Outcome[]): Machine[] {
  const took = new Set(became.filter(({ refused }) => !refused).map(({ name }) => name));
  return machines.filter(({ metadata }) => took.has(metadata.name));
}

/** Names for new deployments, by machine: the machine's own, or with the first number that is free. */
export function namesOf(machines: readonly string[], taken: Iterable<string>): Map<string, string> {
  const used = new Set(taken);
  const names = new Map<string, string>();
  for (const machine of machines) {
    let name = machine;
    for (let number = 2; used.has(name); number += 1) name = `${machine}-${number}`;
    used.add(name);
    names.set(machine, name);
  }
  return names;
}

export interface Deploy {
  image: string;
  sshKeys: string[];
  userData: string;
  /** Data of others on its disks may be destroyed. */
  always: boolean;
}

/** A new deployment of a machine, or the reason against it. */
export function deploymentOf({ metadata, spec, status }: Machine, name: string | undefined, { image, sshKeys, userData, always }: Deploy): Document | string {
  if (status.deployment) return `it has the deployment ${status.deployment}: release it first`;
  if (spec.mode && spec.mode !== 'managed') return `its mode is ${spec.mode}: set it to managed first`;
  return {
    kind: 'Deployment',
    metadata: { name: name ?? metadata.name },
    spec: {
      machine: metadata.name,
      image,
      ...(sshKeys.length > 0 && { ssh_keys: sshKeys }),
      ...(userData && { user_data: userData }),
      ...(always && { wipe: 'always' }),
    },
  };
}

const changed = ({ metadata, spec }: Machine, by: Record<string, Json | undefined>): Document => {
  const next = { ...(spec as Record<string, Json>) };
  for (const [field, value] of Object.entries(by)) {
    if (value === undefined) delete next[field];
    else next[field] = value;
  }
  return { kind: 'Machine', metadata: { name: metadata.name }, spec: next };
};

/** The machine with other tags in its spec. A tag that its spec does not name is not taken away by it. */
export function taggedOf(machine: Machine, add: readonly string[], remove: readonly string[]): Document | string {
  const own = (machine.spec.tags ?? []) as string[];
  const foreign = remove.filter((tag) => !own.includes(tag) && (machine.status.tags ?? []).includes(tag));
  const [first] = foreign;
  if (first !== undefined) {
    const isAutomatic = (machine.status.automatic_tags ?? []).includes(first);
    return isAutomatic ? `it has ${first} by the expression of that tag` : `another tool gave it ${first}`;
  }
  const tags = [...new Set([...own.filter((tag) => !remove.includes(tag)), ...add])].sort();
  const same = tags.length === own.length && tags.every((tag) => own.includes(tag));
  return same ? changed(machine, {}) : changed(machine, { tags: tags.length > 0 ? tags : undefined });
}

/** The machine in another zone or pool. Nothing given: it stays where it is. */
export const placedOf = (machine: Machine, { zone, pool }: { zone?: string; pool?: string }): Document =>
  changed(machine, { ...(zone && { zone }), ...(pool && { pool }) });

/** Words between commas or spaces, each once. */
export const wordsOf = (text: string): string[] => [...new Set(text.split(/[\s,]+/).filter(Boolean))];

/** The tags that specs of these machines name, each with the number of machines. */
export function tagsOf(machines: readonly Machine[]): [tag: string, count: number][] {
  const counts = new Map<string, number>();
  for (const { spec } of machines) for (const tag of (spec.tags ?? []) as string[]) counts.set(tag, (counts.get(tag) ?? 0) + 1);
  return [...counts].sort(([a], [b]) => a.localeCompare(b));
}
