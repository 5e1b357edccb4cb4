import assert from 'node:assert/strict';
import { test } from 'node:test';
import { axisOf, hoursFor, secondsOf } from '../../src/pages/machine/axis';

const NOW = Date.parse('2026-01-31T12:00:00Z');
type Entries = Parameters<typeof axisOf>[0];
const entry = (at: string, kind: string, took?: string) => ({ at, kind, message: kind, took, reason: '', source: '' }) as unknown as Entries[number];

test('an axis has a lane for each sort of thing, from its first hour to the present', () => {
  const lanes = axisOf([entry('2026-01-31T11:30:00Z', 'step', '15m'), entry('2026-01-31T09:00:00Z', 'fact')], [], 1, NOW);
  assert.deepEqual(lanes.map(({ title, marks }) => [title, marks.map(({ from, to }) => [from, to])]), [['Steps', [[0.5, 0.75]]]]);
  assert.equal(axisOf([entry('2026-01-31T10:59:00Z', 'step', '10m')], [], 1, NOW)[0]?.marks[0]?.from, 0, 'what began before is cut');
});

test('what cannot be told apart is one mark that counts', () => {
  const lanes = axisOf(['11:30:00', '11:30:01', '11:45:00'].map((time) => entry(`2026-01-31T${time}Z`, 'change')), [], 1, NOW);
  assert.deepEqual(lanes[0]?.marks.map(({ count }) => count), [2, 1]);
});

test('an axis begins so that it shows something', () => {
  assert.deepEqual(['2026-01-31T11:30:00Z', '2026-01-31T03:00:00Z', '2025-01-01T00:00:00Z'].map((at) => hoursFor([at], NOW)), [1, 24, 720]);
  assert.deepEqual(['1h2m3s', '400ms', '', undefined].map(secondsOf), [3723, 0.4, undefined, undefined]);
});
