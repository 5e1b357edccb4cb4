// The runs of one test on one device, and the figures that they measured.
import type { Schemas } from '../../api/client';
import type { Point } from '../../parts/chart';

export type Row = Schemas['TestResult'];

/** A finding's name in the address: the test, and the device if it is about one. */
export const keyOf = ({ script, device }: Row): string => (device ? `${script}:${device}` : script);

/** The test of a name. Names of scripts have no colon; names of devices may. */
export const scriptOf = (key: string): string => key.split(':', 1)[0] ?? key;

/** The runs that a name is about, the latest first. */
export const runsOf = (key: string, rows: readonly Row[]): Row[] =>
  rows.filter((row) => keyOf(row) === key).sort((a, b) => b.at.localeCompare(a.at) || b.attempt - a.attempt);

/** The figures of some runs by their names; each with its values. One value shows no trend. */
export function trendsOf(runs: readonly Row[]): [name: string, points: Point[]][] {
  const trends = new Map<string, Point[]>();
  for (const { at, figures } of runs) {
    for (const [name, value] of Object.entries((figures ?? {}) as Record<string, number>)) {
      trends.set(name, [...(trends.get(name) ?? []), { at, value }]);
    }
  }
  return [...trends].filter(([, points]) => points.length > 1).sort(([a], [b]) => a.localeCompare(b));
}
