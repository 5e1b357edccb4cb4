// Interfaces of a machine in an order in which each bond and each bridge is a bracket over rows that follow each other.
import type { Schemas } from '../../api/client';

type Network = Partial<Schemas['NetworkConfig']>;

export interface Bracket {
  name: string;
  is: string;
  /** The first row, and how many there are. */
  from: number;
  rows: number;
  /** From 0, beside the interfaces, to the left. */
  column: number;
}

export interface Arranged {
  /** Interfaces: those that the machine reports, and declared ones that it does not. */
  rows: string[];
  brackets: Bracket[];
  columns: number;
}

const named = <T>(of: unknown): [string, T][] => Object.entries((of ?? {}) as Record<string, T>).sort(([a], [b]) => a.localeCompare(b));

/** Bonds and bridges over the interfaces. `macs` are the reported interfaces with their MACs: a declaration may name one by its MAC. */
export function arrange(macs: Record<string, string | undefined>, network: Network): Arranged {
  const reported = Object.keys(macs);
  const byMac = new Map(Object.entries(macs).flatMap(([name, mac]) => (mac ? [[mac.toLowerCase(), name]] : [])));
  const own = new Map(named<Schemas['InterfaceConfig']>(network.interfaces).map(([name, { mac }]) => [name, (mac && byMac.get(mac.toLowerCase())) || name]));
  const over = new Map([
    ...named<Schemas['BridgeConfig']>(network.bridges).map(([name, { members }]) => [name, { is: 'bridge', members: members ?? [] }] as const),
    ...named<Schemas['BondConfig']>(network.bonds).map(([name, { members, mode }]) => [name, { is: ['bond', mode].filter(Boolean).join(' '), members: members ?? [] }] as const),
  ]);
  const parents = new Map(named<Schemas['VlanConfig']>(network.vlans).map(([name, { parent }]) => [name, parent]));

  /** The interfaces that a link stands on. */
  const below = (link: string): string[] => {
    const parent = parents.get(link);
    if (parent !== undefined) return below(parent);
    const members = over.get(link)?.members;
    return members ? [...new Set(members.flatMap(below))] : [own.get(link) ?? link];
  };
  /** Brackets between a link and its interfaces, itself among them. */
  const height = (link: string): number => {
    const parent = parents.get(link);
    if (parent !== undefined) return height(parent);
    const members = over.get(link)?.members;
    return members ? 1 + Math.max(0, ...members.map(height)) : 0;
  };

  const groups = [...over].map(([name, { is }]) => ({ name, is, of: below(name), height: height(name) })).filter(({ of }) => of.length > 0);
  // The widest first: the rows of the others are then a part of its rows.
  const wide = groups.toSorted((a, b) => b.height - a.height || b.of.length - a.of.length);
  const rows: string[] = [];
  const put = (name: string) => {
    if (rows.includes(name)) return;
    const group = wide.find(({ of }) => of.includes(name));
    rows.push(...(group ? group.of.filter((it) => !rows.includes(it)) : [name]));
  };
  for (const name of [...reported, ...own.values(), ...groups.flatMap(({ of }) => of)]) put(name);

  const brackets: Bracket[] = [];
  for (const { name, is, of } of groups.toSorted((a, b) => a.height - b.height || a.of.length - b.of.length)) {
    const runs = runsOf(of.map((it) => rows.indexOf(it)));
    // Every piece of a bracket stands left of those that it is over.
    const overlaps = (it: Bracket) => runs.some(([from, count]) => it.from < from + count && from < it.from + it.rows);
    const column = Math.max(-1, ...brackets.filter(overlaps).map((it) => it.column)) + 1;
    brackets.push(...runs.map(([from, count]) => ({ name, is, from, rows: count, column })));
  }
  return { rows, brackets, columns: Math.max(-1, ...brackets.map(({ column }) => column)) + 1 };
}

/** Rows that follow each other: the first one and their count. */
function runsOf(places: number[]): [number, number][] {
  const runs: [number, number][] = [];
  for (const place of places.toSorted((a, b) => a - b)) {
    const last = runs.at(-1);
    if (last && last[0] + last[1] === place) last[1] += 1;
    else runs.push([place, 1]);
  }
  return runs;
}
