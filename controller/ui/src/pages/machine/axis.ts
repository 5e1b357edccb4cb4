// One axis of time for a machine: boots, steps, conditions, changes and facts, each in a lane.
import type { Schemas } from '../../api/client';

type Entry = Schemas['TimelineEntry'];
type Boot = Schemas['Boot'];

export interface Mark {
  /** From 0, the first time of the axis, to 1, the present. */
  from: number;
  to: number;
  says: string;
  at: string;
  /** More than one thing that cannot be told apart at this scale. */
  count: number;
}

export interface Lane {
  title: string;
  marks: Mark[];
}

/** Times that an axis can show, in hours. */
export const HOURS = [1, 24, 7 * 24, 30 * 24];

const LANES: { title: string; kind: Entry['kind'] }[] = [
  { title: 'Steps', kind: 'step' },
  { title: 'Conditions', kind: 'condition' },
  { title: 'Facts', kind: 'fact' },
  { title: 'Changes', kind: 'change' },
];

/** Marks nearer to each other than this part of the axis become one. */
const APART = 0.006;

/** The lanes that have something within these hours. */
export function axisOf(entries: readonly Entry[], boots: readonly Boot[], hours: number, now: number): Lane[] {
  const begins = now - hours * 3_600_000;
  const place = (at: number) => (at - begins) / (now - begins);
  const mark = (at: string, until: number, says: string): Mark => ({ from: place(Date.parse(at)), to: Math.min(1, place(until)), says, at, count: 1 });
  const booted = boots.map(({ began, entries }) => mark(began, Date.parse(entries.at(-1)?.at ?? began), `booted: ${entries.length} questions`));
  const happened = (kind: Entry['kind']) =>
    entries.filter((entry) => entry.kind === kind).map(({ at, took, message }) => mark(at, Date.parse(at) + (secondsOf(took) ?? 0) * 1000, message));
  const lanes = [{ title: 'Boots', marks: booted }, ...LANES.map(({ title, kind }) => ({ title, marks: happened(kind) }))];
  return lanes.map(({ title, marks }) => ({ title, marks: together(marks.filter(({ from, to }) => to >= 0 && from <= 1)) })).filter(({ marks }) => marks.length > 0);
}

function together(marks: Mark[]): Mark[] {
  const all: Mark[] = [];
  for (const mark of [...marks].sort((a, b) => a.from - b.from)) {
    const last = all.at(-1);
    if (last && mark.from - last.to < APART) {
      last.to = Math.max(last.to, mark.to);
      last.count += 1;
      last.says = `${last.says}\n${mark.says}`;
    } else all.push({ ...mark, from: Math.max(0, mark.from) });
  }
  return all;
}

/** The seconds of `1h2m3s`, as the region writes durations. */
export function secondsOf(duration: string | null | undefined): number | undefined {
  const parts = [...(duration ?? '').matchAll(/(\d+)(d|h|ms|m|s)/g)];
  const units: Record<string, number> = { d: 86_400, h: 3600, m: 60, s: 1, ms: 0.001 };
  return parts.length === 0 ? undefined : parts.reduce((all, [, count = '', unit = '']) => all + Number(count) * (units[unit] ?? 0), 0);
}

/** The shortest axis that shows something, or the longest. */
export function hoursFor(times: readonly string[], now: number): number {
  const last = Math.max(...times.map((at) => Date.parse(at)));
  return HOURS.find((hours) => now - last < hours * 3_600_000) ?? (HOURS.at(-1) as number);
}
