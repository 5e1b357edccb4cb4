import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Row, keyOf, runsOf, scriptOf, trendsOf } from '../../src/pages/machine/history';
import { figure, lineOf, titleOf } from '../../src/parts/chart';

const row = (attempt: number, device: string | undefined, figures: Record<string, number> = {}): Row =>
  ({ script: 'basalt-disks', device, attempt, at: `2026-01-0${attempt}T00:00:00Z`, verdict: 'passed', message: '', figures, seconds: 1 }) as Row;

test('the runs of one device are told apart from those of others, the latest first', () => {
  const rows = [row(1, 'sda'), row(2, 'sdb'), row(3, 'sda'), row(2, undefined)];
  assert.deepEqual(runsOf('basalt-disks:sda', rows).map(({ attempt }) => attempt), [3, 1]);
  assert.deepEqual(runsOf('basalt-disks', rows).map(({ attempt }) => attempt), [2]);
  assert.deepEqual([keyOf(row(1, 'pci:0000:01')), scriptOf('basalt-disks:pci:0000:01')], ['basalt-disks:pci:0000:01', 'basalt-disks']);
});

test('a figure that was measured more than once is a trend', () => {
  const trends = trendsOf([row(2, 'sda', { read: 2, once: 1 }), row(1, 'sda', { read: 1 })]);
  assert.deepEqual(trends.map(([name, points]) => [name, points.length]), [['read', 2]]);
});

test('a line goes from its first time to its last, and from the least value to the largest', () => {
  const at = (day: number, value: number) => ({ at: `2026-01-0${day}T00:00:00Z`, value });
  const line = lineOf([at(5, 10), at(1, 30), at(3, 20)]);
  assert.deepEqual(line?.points, [{ x: 0, y: 0 }, { x: 0.5, y: 0.5 }, { x: 1, y: 1 }]);
  assert.deepEqual([line?.least, line?.largest], [10, 30]);
  assert.deepEqual(lineOf([at(1, 7)])?.points, [{ x: 0.5, y: 0.5 }], 'one value is a point');
  assert.deepEqual(lineOf([at(1, 7), at(2, 7)])?.points.map(({ y }) => y), [0.5, 0.5]);
  assert.equal(lineOf([]), undefined);
});

test('a figure is named without its unit, and its value has no digits that nobody reads', () => {
  assert.deepEqual(['read_mb_per_s', 'celsius', 'errors', 'life_used_percent'].map(titleOf), [
    { title: 'read', unit: 'MB/s' },
    { title: 'celsius', unit: '°C' },
    { title: 'errors', unit: '' },
    { title: 'life used percent', unit: '%' },
  ]);
  assert.deepEqual([3109.6004, 0.123456, 12000, 0, -2.5].map(figure), ['3109.6', '0.1235', '12000', '0', '-2.5']);
});
