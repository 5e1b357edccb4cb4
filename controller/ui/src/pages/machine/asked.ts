// Operations as rows: their tone, their words, how long they took.
import type { Schemas } from '../../api/client';
import type { Tone } from '../../parts/state';

export type Operation = Schemas['Operation'];

const TONES: Record<Operation['state'], Tone> = { requested: 'wait', running: 'busy', done: 'ok', failed: 'bad', superseded: 'off', expired: 'bad' };
export const toneOf = ({ state }: Operation): Tone => TONES[state];

/** Its state still changes. */
export const isOpen = ({ state }: Operation): boolean => state === 'requested' || state === 'running';

/** The verb, with the script or the tests that it runs. */
export function wordsOf({ verb, script, tests }: Operation): string {
  const of = script ?? (tests as string[] | undefined)?.join(', ');
  return of ? `${verb.replace(/_/g, ' ')}: ${of}` : verb.replace(/_/g, ' ');
}

/** The time from its beginning to its end, or until now: `4 s`, `2 min 5 s`, `1 h 3 min`. Nothing before it has begun. */
export function tookOf({ begun_at, finished_at }: Operation, now: number): string | undefined {
  if (!begun_at) return undefined;
  const seconds = Math.max(0, Math.round(((finished_at ? Date.parse(finished_at) : now) - Date.parse(begun_at)) / 1000));
  const [hours, minutes, rest] = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60), seconds % 60];
  if (hours > 0) return minutes > 0 ? `${hours} h ${minutes} min` : `${hours} h`;
  if (minutes > 0) return rest > 0 ? `${minutes} min ${rest} s` : `${minutes} min`;
  return `${rest} s`;
}
