// One axis of time for a machine: lanes with points and spans, each with the place of its evidence.
import type { Schemas } from '../../api/client';
import type { Tone } from '../../parts/state';
import { keyOf } from './history';

type Entry = Schemas['TimelineEntry'];
type Boot = Schemas['Boot'];

/** What the axis is made of. A part that was not read yet is empty. */
export interface History {
  entries: readonly Entry[];
  boots: readonly Boot[];
  results: readonly Schemas['TestResult'][];
  /** What people wrote, and what else the region tells of the machine. */
  events: readonly Schemas['EventEntry'][];
  waits: readonly Schemas['Wait'][];
}

/** A part of the machine's page that shows the evidence, or another page. */
export interface Place {
  /** A tab of the machine's page, or a whole path with `/` before it. */
  to: string;
  search?: Record<string, string>;
}

/** Something that happened, in milliseconds. A point ends where it begins. */
export interface Happening {
  from: number;
  to: number;
  /** It is expected to end by then. */
  deadline?: number;
  tone: Tone;
  says: string;
  place?: Place;
}

export interface Mark extends Omit<Happening, 'from' | 'to' | 'deadline'> {
  /** From 0, the beginning of the axis, to 1, its end. */
  from: number;
  to: number;
  /** Hatched from `to` up to here. */
  until: number;
  at: number;
  /** More than one thing that cannot be told apart at this scale. */
  count: number;
}

export interface Lane {
  title: string;
  marks: Mark[];
}

/** The times that are shown, in milliseconds. */
export interface Range {
  from: number;
  to: number;
}

const HOUR = 3_600_000;
/** Times that an axis can show, in hours. */
export const HOURS = [1, 24, 7 * 24, 30 * 24];
/** Nothing is told apart below this. */
const SHORTEST = 10_000;
const LONGEST = 366 * 24 * HOUR;
/** The part of the axis that can be after the present. */
const AHEAD = 0.25;

/** Marks nearer to each other than this part of the axis become one. */
const APART = 0.006;

const LANES = ['Power', 'Boots', 'Agent', 'Tests', 'Deployments', 'People', 'Deadlines'] as const;
type Title = (typeof LANES)[number];

/** The step in a key: `UID/SCOPE/GENERATION/NAME/TRY`. */
export const stepOf = (key: string): string => key.split('/')[3] ?? key;

/** The lane of a step. */
function laneOfStep(key: string): Title {
  const step = stepOf(key);
  if (/^arm-(install|erase)$/.test(step) || step === 'let-go' || step === 'forget') return 'Deployments';
  return step.startsWith('arm-') ? 'Agent' : 'Power';
}

const TONE_OF_VERDICT: Record<Schemas['TestResult']['verdict'], Tone> = { skipped: 'off', passed: 'ok', degraded: 'wait', failed: 'bad' };

/** Log lines around a time. */
const linesAt = (at: number): Place => ({ to: 'logs', search: { of: `at-${at}` } });

const endOf = (at: number, took: string | null | undefined): number => at + (secondsOf(took) ?? 0) * 1000;

/** Everything that happened, by lane. */
export function happeningsOf(name: string, { entries, boots, results, events, waits }: History, now: number): Map<Title, Happening[]> {
  const lanes = new Map<Title, Happening[]>(LANES.map((title) => [title, []]));
  const put = (title: Title, ...these: Happening[]) => lanes.get(title)?.push(...these);
  for (const { began, entries: asked } of boots) {
    const from = Date.parse(began);
    const to = Date.parse(asked.at(-1)?.at ?? began);
    put('Boots', { from, to, tone: 'busy', says: `booted: ${asked.length} ${asked.length === 1 ? 'packet' : 'packets'}`, place: { to: 'boots' } });
  }
  put('Power', ...powerOf(entries, now));
  put('Agent', ...tasksOf(entries, now));
  for (const entry of entries) {
    const at = Date.parse(entry.at);
    if (entry.kind === 'step') {
      const operation = (entry.data as { operation?: string } | undefined)?.operation;
      const error = (entry.data as { error?: string } | undefined)?.error;
      const outcome = (entry.data as { outcome?: string } | undefined)?.outcome;
      if (operation !== undefined) {
        // The entry of an end tells the whole span: it ends there.
        const took = endOf(0, entry.took);
        put('People', { from: at - took, to: at, tone: 'wait', says: `${entry.message}${entry.source ? `, by ${entry.source}` : ''}`, place: { to: 'operations', search: { of: operation } } });
      } else {
        const tone: Tone = error ? 'bad' : outcome ? 'ok' : 'busy';
        put(laneOfStep(entry.reason), { from: at, to: endOf(at, entry.took), tone, says: error ? `${entry.message}: ${error}` : entry.message, place: { to: 'decisions', search: { of: entry.reason } } });
      }
    } else if (/^(alarm|readiness|lease)/.test(entry.reason)) {
      const title = entry.reason.startsWith('readiness') ? 'Deployments' : entry.reason.startsWith('lease') ? 'Boots' : 'Agent';
      put(title, { from: at, to: at, tone: entry.reason.startsWith('alarm') ? 'bad' : 'ok', says: entry.message, place: title === 'Boots' ? { to: 'boots' } : linesAt(at) });
    }
  }
  for (const result of results) {
    const to = Date.parse(result.at);
    const of = keyOf(result);
    put('Tests', { from: to - result.seconds * 1000, to, tone: TONE_OF_VERDICT[result.verdict], says: `${of} ${result.verdict}: ${result.message}`, place: { to: 'tests', search: { of } } });
  }
  for (const { at, sort, words, detail, actor } of events) {
    const time = Date.parse(at);
    const says = [words, detail].filter(Boolean).join(': ');
    if (sort === 'written') put('People', { from: time, to: time, tone: 'busy', says: `${says}, by ${actor}`, place: { to: '/audit', search: { object: `Machine/${name}` } } });
    else if (sort === 'stalled') put('Deadlines', { from: time, to: time, tone: 'bad', says, place: { to: '' } });
    else if (sort === 'phase') put('Deployments', { from: time, to: time, tone: 'ok', says, place: { to: 'decisions' } });
  }
  for (const { message, since, deadline } of waits) {
    const until = deadline ? Date.parse(deadline) : undefined;
    put('Deadlines', { from: Date.parse(since), to: now, deadline: until, tone: until !== undefined && until < now ? 'bad' : 'wait', says: message, place: { to: '' } });
  }
  return lanes;
}

/** Times during which the power was on or could not be read. The last reading counts until now. */
function powerOf(entries: readonly Entry[], now: number): Happening[] {
  const all: Happening[] = [];
  let before: string | undefined;
  const read = entries.filter(({ reason }) => /^(power|reading)(:|$)/.test(reason)).sort((a, b) => a.at.localeCompare(b.at));
  for (const { at, message } of read) {
    const time = Date.parse(at);
    const state = /power is (on|off|unknown)/.exec(message)?.[1] ?? 'unknown';
    const last = all.at(-1);
    if (last && before !== 'off') last.to = time;
    if (state === before) continue;
    const tone: Tone = state === 'on' ? 'ok' : state === 'off' ? 'off' : 'wait';
    all.push({ from: time, to: time, tone, says: message, place: linesAt(time) });
    before = state;
  }
  const last = all.at(-1);
  if (last && before !== 'off') last.to = now;
  return all;
}

/** Tasks of the agent, from the claim to the result. One without a result goes on. */
function tasksOf(entries: readonly Entry[], now: number): Happening[] {
  const attemptOf = ({ data }: Entry) => (data as { attempt?: number } | undefined)?.attempt;
  const results = new Map(entries.filter(({ reason }) => reason === 'result').map((entry) => [attemptOf(entry), entry]));
  const latest = Math.max(...entries.map((entry) => attemptOf(entry) ?? 0));
  return entries
    .filter(({ reason }) => reason === 'claim')
    .map((claim) => {
      const from = Date.parse(claim.at);
      const result = results.get(attemptOf(claim));
      const to = result ? Math.max(from, Date.parse(result.at)) : attemptOf(claim) === latest ? now : from;
      const tone: Tone = !result ? 'busy' : /failed/.test(result.message) ? 'bad' : 'ok';
      return { from, to, tone, says: result ? `the agent: ${result.message}` : claim.message, place: linesAt(to === now ? from : to) };
    });
}

/** The lanes that have something in the range. */
export function axisOf(lanes: ReadonlyMap<string, Happening[]>, { from, to }: Range): Lane[] {
  const place = (at: number) => (at - from) / (to - from);
  const mark = (it: Happening): Mark => ({
    ...it,
    from: place(it.from),
    to: Math.min(1, place(it.to)),
    until: Math.min(1, place(it.deadline ?? it.to)),
    at: it.from,
    count: 1,
  });
  return [...lanes]
    .map(([title, all]) => ({ title, marks: together(all.map(mark).filter((it) => Math.max(it.to, it.until) >= 0 && it.from <= 1)) }))
    .filter(({ marks }) => marks.length > 0);
}

/** The worse tone is seen. */
const WEIGHT: Record<Tone, number> = { off: 0, ok: 1, busy: 2, wait: 3, bad: 4 };

function together(marks: Mark[]): Mark[] {
  const all: Mark[] = [];
  for (const mark of [...marks].sort((a, b) => a.from - b.from)) {
    const last = all.at(-1);
    if (last && mark.from - last.to < APART && isAlike(last, mark)) {
      last.to = Math.max(last.to, mark.to);
      last.until = Math.max(last.until, mark.until);
      last.count += 1;
      last.says = `${last.says}\n${mark.says}`;
      if (WEIGHT[mark.tone] > WEIGHT[last.tone]) last.tone = mark.tone;
    } else all.push({ ...mark, from: Math.max(0, mark.from), to: Math.max(0, mark.to) });
  }
  return all;
}

/** A long span is not hidden by what happens in it: only short marks become one, or those that overlap wholly. */
const isAlike = (last: Mark, mark: Mark): boolean => (mark.to - mark.from < APART && last.to - last.from < APART) || mark.from < last.to;

/** The seconds of `1h2m3s`, as the region writes durations. */
export function secondsOf(duration: string | null | undefined): number | undefined {
  const parts = [...(duration ?? '').matchAll(/(\d+)(d|h|ms|m|s)/g)];
  const units: Record<string, number> = { d: 86_400, h: 3600, m: 60, s: 1, ms: 0.001 };
  return parts.length === 0 ? undefined : parts.reduce((all, [, count = '', unit = '']) => all + Number(count) * (units[unit] ?? 0), 0);
}

/** The shortest axis that shows something, or the longest. */
export function hoursFor(times: readonly number[], now: number): number {
  const last = Math.max(...times);
  return HOURS.find((hours) => now - last < hours * HOUR) ?? (HOURS.at(-1) as number);
}

/** The last hours, with some time after now if a deadline is there. */
export function lastHours(hours: number, deadlines: readonly number[], now: number): Range {
  const from = now - hours * HOUR;
  const next = deadlines.filter((at) => at > now);
  const ahead = next.length > 0 ? Math.max(...next) - now : 0;
  return { from, to: now + Math.min(ahead * 1.05, (hours * HOUR * AHEAD) / (1 - AHEAD)) };
}

/** Nearer (below 1) or farther (above 1) around a part of the range. */
export function zoomed({ from, to }: Range, by: number, around = 0.5): Range {
  const length = Math.min(LONGEST, Math.max(SHORTEST, (to - from) * by));
  const fixed = from + (to - from) * around;
  return { from: fixed - length * around, to: fixed + length * (1 - around) };
}

/** Earlier (below 0) or later, by a part of the range. */
export const moved = ({ from, to }: Range, by: number): Range => ({ from: from + (to - from) * by, to: to + (to - from) * by });

/** The part of a range between two parts of its axis, in any order. */
export function partOf({ from, to }: Range, a: number, b: number): Range {
  const [left, right] = [Math.min(a, b), Math.max(a, b)].map((it) => Math.min(1, Math.max(0, it))) as [number, number];
  const length = to - from;
  const middle = from + (length * (left + right)) / 2;
  const half = Math.max(SHORTEST, length * (right - left)) / 2;
  return { from: middle - half, to: middle + half };
}
