// Parts of a log, and lines of it as text.
import type { LogLine } from '../../api/log';
import type { LogView } from '../../app/routes';
import type { Tone } from '../../parts/state';
import { absolute } from '../../parts/time';

/** Lines that the region tells of at once, at first and for each step back. */
export const PAGE = 1000;

const HOUR = 3_600_000;
/** Lines before a time, and after it. */
const AROUND = HOUR / 6;

/** Times that can be chosen, by their words in the address. */
export const SPANS: { of: string; title: string; lasts: number }[] = [
  { of: '15m', title: 'The last 15 minutes', lasts: HOUR / 4 },
  { of: '1h', title: 'The last hour', lasts: HOUR },
  { of: '1d', title: 'The last day', lasts: 24 * HOUR },
  { of: '7d', title: 'The last week', lasts: 7 * 24 * HOUR },
];

/** The number of a boot: 0 is the last one. */
export function bootOf({ of = '' }: LogView): number | undefined {
  const number = /^boot-(\d{1,3})$/.exec(of)?.[1];
  return number === undefined ? undefined : Number(number);
}

/** The time in the middle of the lines, in milliseconds. */
export function timeOf({ of = '' }: LogView): number | undefined {
  const time = /^at-(\d{1,15})$/.exec(of)?.[1];
  return time === undefined ? undefined : Number(time);
}

/** Only the last boot goes on. */
export const goesOn = (view: LogView): boolean => (bootOf(view) ?? 0) === 0 && timeOf(view) === undefined;

/** The question for a part of a log. */
export function questionOf(view: LogView, now: number): URLSearchParams {
  const question = new URLSearchParams({ limit: String(PAGE) });
  const span = SPANS.find(({ of }) => of === view.of);
  const boot = bootOf(view);
  if (span) question.set('since', new Date(now - span.lasts).toISOString());
  const time = timeOf(view);
  if (time !== undefined) {
    question.set('since', new Date(time - AROUND).toISOString());
    question.set('until', new Date(time + AROUND).toISOString());
  }
  if (boot !== undefined) question.set('boot', String(boot));
  if (view.grep) question.set('grep', view.grep);
  return question;
}

/** The end of the page before these lines. It takes the last millisecond in again: a page may end between two of its lines. */
export function endBefore(lines: readonly LogLine[]): { until: string; again: number } | undefined {
  const [first] = lines;
  if (!first) return undefined;
  const until = Date.parse(first.at) + 1;
  const beyond = lines.findIndex(({ at }) => Date.parse(at) >= until);
  return { until: new Date(until).toISOString(), again: beyond < 0 ? lines.length : beyond };
}

/** `2026-01-31 12:00:00 err sshd[312]: no route`. */
export function textOf(line: LogLine): string {
  return [absolute(line.at), line.severity, `${programOf(line)}:`, line.text].join(' ');
}

export function programOf({ app, procid, facility }: LogLine): string {
  return `${app ?? facility}${procid ? `[${procid}]` : ''}`;
}

const FAILED = ['emerg', 'alert', 'crit', 'err'];

export function toneOf({ severity }: LogLine): Tone {
  if (FAILED.includes(severity)) return 'bad';
  return severity === 'warning' ? 'wait' : 'off';
}

/** One row holds it: the ends of lines are shown as signs. */
export const inOneRow = (text: string): string => text.replace(/\r?\n/g, ' ⏎ ').replace(/\t/g, '  ');
