// A subnet as a map of its addresses, with their owners and ranges.
import type { Schemas } from '../../api/client';

export type Entry = Schemas['AddressEntry'];

export interface Range {
  name: string;
  start: string;
  end: string;
  purpose: string;
}

export type Use = 'none' | 'gateway' | 'rack' | 'static' | 'leased' | 'conflict' | 'free' | 'dynamic' | 'reserved';

export interface Cell {
  address: string;
  use: Use;
  /** Its owners: several of them are a conflict. */
  entries: Entry[];
  range?: Range;
}

/** Cells in a row of the map: a /26. */
export const ROW = 64;
/** A map of more addresses answers no question: a /22. */
const MOST = 1024;
/** Entries in a page of the region's answer, and rows in the table. */
export const PAGE = 1000;
/** Entries that are read for each cell: an address has one by its declaration, and one by its lease. */
const EACH = 4;

/** Entries as far as they were read. */
export interface Entries {
  items: Entry[];
  /** There are others. */
  more: boolean;
}

/** The entries of a network: all of them where it has a map, unless they are too many for its size; a page elsewhere. */
export async function entriesOf(cidr: string, read: (after: string | undefined) => Promise<{ items: Entry[]; continue?: string }>): Promise<Entries> {
  const most = (boundsOf(cidr)?.size ?? 0) * EACH;
  const items: Entry[] = [];
  let after: string | undefined;
  do {
    const page = await read(after);
    items.push(...page.items);
    after = page.continue;
  } while (after !== undefined && items.length < most);
  return { items, more: after !== undefined };
}

/** The first address and the size of an IPv4 network that has a map; undefined for networks that are too large for one, and for IPv6. */
export function boundsOf(cidr: string): { first: number; size: number } | undefined {
  const [network = '', length = ''] = cidr.split('/');
  const base = numberOf(network);
  const size = 2 ** (32 - Number(length));
  return base === undefined || !(size >= 1 && size <= MOST) ? undefined : { first: base - (base % size), size };
}

/** The rows of a network's map. */
export function mapOf(cidr: string, entries: readonly Entry[], ranges: readonly Range[]): Cell[][] | undefined {
  const bounds = boundsOf(cidr);
  if (!bounds) return undefined;
  const { first, size } = bounds;
  const having = new Map<number, Entry[]>();
  for (const entry of entries) {
    const at = numberOf(entry.address);
    if (at !== undefined) having.set(at, [...(having.get(at) ?? []), entry]);
  }
  const ends = ranges.map((range) => ({ range, start: numberOf(range.start) ?? 0, end: numberOf(range.end) ?? -1 }));
  const cells = Array.from({ length: size }, (_, place): Cell => {
    const at = first + place;
    const range = ends.find(({ start, end }) => at >= start && at <= end)?.range;
    const owners = having.get(at) ?? [];
    const isEdge = size > 2 && (place === 0 || place === size - 1);
    return { address: textOf(at), use: isEdge && owners.length === 0 ? 'none' : useOf(owners, range), entries: owners, range };
  });
  return Array.from({ length: Math.ceil(size / ROW) }, (_, row) => cells.slice(row * ROW, (row + 1) * ROW));
}

const USES: Record<Entry['source'], Use> = { gateway: 'gateway', rack: 'rack', lease: 'leased', ip_address: 'static', device: 'static', deployment: 'static', machine: 'static' };

function useOf(owners: Entry[], range: Range | undefined): Use {
  const [owner] = owners;
  if (!owner) return range ? (range.purpose === 'reserved' ? 'reserved' : 'dynamic') : 'free';
  return owners.some((other) => areOthers(owner, other)) ? 'conflict' : USES[owner.source];
}

/** A machine that has an address by its deployment leases it as well: that is one owner. */
function areOthers(a: Entry, b: Entry): boolean {
  if (a.source === b.source && a.owner === b.owner && a.mac === b.mac) return false;
  if (a.mac && b.mac) return a.mac !== b.mac;
  if (a.machine && b.machine) return a.machine !== b.machine;
  return false;
}

/** How many addresses have each use. */
export function countsOf(rows: readonly Cell[][]): Map<Use, number> {
  const counts = new Map<Use, number>();
  for (const { use } of rows.flat()) counts.set(use, (counts.get(use) ?? 0) + 1);
  return counts;
}

export function numberOf(address: string): number | undefined {
  const parts = address.split('.').map(Number);
  if (parts.length !== 4 || parts.some((part) => !(Number.isInteger(part) && part >= 0 && part <= 255))) return undefined;
  return parts.reduce((all, part) => all * 256 + part, 0);
}

const textOf = (number: number): string => [24, 16, 8, 0].map((shift) => Math.floor(number / 2 ** shift) % 256).join('.');
