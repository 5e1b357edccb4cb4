// A line of measured values, as points of a drawing.

export interface Point {
  at: string;
  value: number;
}

export interface Line {
  /** From 0 to 1: left to right, top to bottom. */
  points: { x: number; y: number }[];
  least: number;
  largest: number;
  first: string;
  last: string;
}

/** The line through some points in the order of their times. Values that are all the same are a line in the middle. */
export function lineOf(points: readonly Point[]): Line | undefined {
  const sorted = [...points].sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
  const [first, last] = [sorted[0], sorted.at(-1)];
  if (!first || !last) return undefined;
  const values = sorted.map(({ value }) => value);
  const [least, largest] = [Math.min(...values), Math.max(...values)];
  const [begins, lasts] = [Date.parse(first.at), Date.parse(last.at) - Date.parse(first.at)];
  const place = ({ at, value }: Point) => ({
    x: lasts > 0 ? (Date.parse(at) - begins) / lasts : 0.5,
    y: largest > least ? (largest - value) / (largest - least) : 0.5,
  });
  return { points: sorted.map(place), least, largest, first: first.at, last: last.at };
}

/** A measured value without digits that nobody reads: `3109.6`, `0.25`, `12000`. */
export const figure = (value: number): string => String(Math.abs(value) >= 1000 ? Number(value.toFixed(1)) : Number(value.toPrecision(4)));

/** Units at the end of a figure's name, as they are written. The longest stands first. */
const UNITS: [end: string, unit: string][] = [
  ['_mb_per_s', 'MB/s'],
  ['_gb_per_s', 'GB/s'],
  ['_per_s', '/s'],
  ['celsius', '°C'],
  ['percent', '%'],
  ['watts', 'W'],
  ['_hours', 'h'],
  ['_seconds', 's'],
  ['_ms', 'ms'],
];

/** The words and the unit of a figure's name: `read_mb_per_s` is `read` in `MB/s`. A name without a known end is its words. */
export function titleOf(name: string): { title: string; unit: string } {
  const [end, unit] = UNITS.find(([end]) => name.endsWith(end)) ?? ['', ''];
  const rest = end.startsWith('_') ? name.slice(0, name.length - end.length) : name;
  return { title: rest.replaceAll('_', ' '), unit };
}
