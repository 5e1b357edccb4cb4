import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { LogLine } from '../../src/api/log';
import { bootOf, endBefore, goesOn, inOneRow, programOf, questionOf, toneOf } from '../../src/pages/machine/log';

const NOW = Date.parse('2026-01-31T12:00:00Z');
const line = (at: string, more: Partial<LogLine> = {}): LogLine => ({ at, facility: 'daemon', severity: 'info', text: 'a', ...more });

test('a part of a log is a time, a boot or the latest lines', () => {
  assert.equal(questionOf({}, NOW).toString(), 'limit=1000');
  assert.equal(questionOf({ of: '1h', grep: 'no route' }, NOW).toString(), 'limit=1000&since=2026-01-31T11%3A00%3A00.000Z&grep=no+route');
  assert.equal(questionOf({ of: 'boot-1' }, NOW).toString(), 'limit=1000&boot=1');
  assert.equal(questionOf({ of: 'whatever' }, NOW).toString(), 'limit=1000', 'an address that somebody typed');
  assert.deepEqual([bootOf({ of: 'boot-12' }), bootOf({ of: '1h' }), bootOf({})], [12, undefined, undefined]);
  assert.deepEqual([{}, { of: '1h' }, { of: 'boot-0' }, { of: 'boot-1' }].map(goesOn), [true, true, true, false]);
});

test('the page before takes the millisecond of the first line in again, and nothing is lost or shown twice', () => {
  const at = ['12:00:00.001', '12:00:00.001', '12:00:00.002'].map((time) => `2026-01-31T${time}Z`);
  assert.deepEqual(endBefore(at.map((it) => line(it))), { until: '2026-01-31T12:00:00.002Z', again: 2 });
  assert.deepEqual(endBefore([line('2026-01-31T12:00:00Z')]), { until: '2026-01-31T12:00:00.001Z', again: 1 });
  assert.equal(endBefore([]), undefined);
});

test('a line names its program, and says in a word how bad it is', () => {
  assert.equal(programOf(line('', { app: 'sshd', procid: '312' })), 'sshd[312]');
  assert.equal(programOf(line('', { facility: 'kern' })), 'kern');
  assert.deepEqual(['crit', 'err', 'warning', 'info'].map((severity) => toneOf(line('', { severity }))), ['bad', 'bad', 'wait', 'off']);
  assert.equal(inOneRow('a\r\nb\tc'), 'a ⏎ b  c');
});
