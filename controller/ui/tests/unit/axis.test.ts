import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type History, axisOf, happeningsOf, hoursFor, lastHours, moved, partOf, secondsOf, stepOf, zoomed } from '../../src/pages/machine/axis';

const NOW = Date.parse('2026-01-31T12:00:00Z');
const HOUR = 3_600_000;
const LAST_HOUR = { from: NOW - HOUR, to: NOW };
const at = (time: string) => `2026-01-31T${time}Z`;
const nothing: History = { entries: [], boots: [], results: [], events: [], waits: [] };
const entry = (time: string, kind: string, reason: string, message: string, more = {}) => ({ at: at(time), kind, reason, message, source: 'region', ...more }) as unknown as History['entries'][number];
const lanesOf = (history: Partial<History>, range = LAST_HOUR) => axisOf(happeningsOf('web1', { ...nothing, ...history }, NOW), range);
const spansOf = (history: Partial<History>) => lanesOf(history).map(({ title, marks }) => [title, marks.map(({ from, to }) => [from, to])]);

test('each thing that happened stands in its lane, from its beginning to its end', () => {
  const entries = [
    entry('11:30:00', 'step', 'uid/0/1/arm-install/1', 'prepare the install', { took: '15m' }),
    entry('11:00:00', 'step', 'uid/0/1/hold-on/1', 'power on', { took: '6m' }),
    entry('09:00:00', 'step', 'uid/0/1/arm-inventory/1', 'too early'),
  ];
  assert.deepEqual(spansOf({ entries }), [['Power', [[0, 0.1]]], ['Deployments', [[0.5, 0.75]]]]);
  assert.equal(stepOf('uid/0/1/arm-install/1'), 'arm-install');
});

test('what began before the axis is cut at its beginning', () => {
  const entries = [entry('10:59:00', 'step', 'uid/0/1/arm-script/1', 'prepare the script', { took: '10m' })];
  const [lane] = lanesOf({ entries });
  assert.deepEqual([lane?.title, lane?.marks[0]?.from], ['Agent', 0]);
});

test('the power is on from one reading to the next, and the last one counts until now', () => {
  const reading = (time: string, state: string) => entry(time, 'fact', 'reading', `BMC: power is ${state}`);
  const entries = [reading('11:06:00', 'on'), reading('11:12:00', 'on'), reading('11:30:00', 'off'), reading('11:54:00', 'on')];
  const [lane] = lanesOf({ entries });
  const rounded = lane?.marks.map(({ from, to, tone }) => [Math.round(from * 10) / 10, Math.round(to * 10) / 10, tone]);
  assert.deepEqual(rounded, [[0.1, 0.5, 'ok'], [0.5, 0.5, 'off'], [0.9, 1, 'ok']]);
});

test('a task of the agent lasts from its claim to its result, and the latest one goes on', () => {
  const claim = (time: string, attempt: number) => entry(time, 'fact', 'claim', 'the agent took its task', { data: { attempt } });
  const entries = [claim('11:00:00', 1), entry('11:15:00', 'fact', 'result', 'the task failed: no disk', { data: { attempt: 1 } }), claim('11:30:00', 2)];
  const [lane] = lanesOf({ entries });
  assert.deepEqual(lane?.marks.map(({ from, to, tone }) => [from, to, tone]), [[0, 0.25, 'bad'], [0.5, 1, 'busy']]);
});

test('a wait is hatched until its deadline, for which the axis goes on after now', () => {
  const waits = [{ cause: 'pxe', message: 'waiting for web1 to ask for DHCP', since: at('11:30:00'), deadline: at('12:06:00') }] as History['waits'];
  const range = lastHours(1, [Date.parse(at('12:06:00'))], NOW);
  assert.ok(range.to > Date.parse(at('12:06:00')) && range.to < NOW + HOUR / 3 + 1, new Date(range.to).toISOString());
  const mark = lanesOf({ waits }, range).find(({ title }) => title === 'Deadlines')?.marks[0];
  assert.ok(mark && mark.until > mark.to && mark.until < 1, JSON.stringify(mark));
  assert.equal(lastHours(1, [NOW + 1000 * HOUR], NOW).to, NOW + HOUR / 3, 'a far deadline does not press the past together');
  assert.equal(lastHours(1, [], NOW).to, NOW);
});

test('each mark leads to its evidence', () => {
  const history: Partial<History> = {
    entries: [
      entry('11:30:00', 'step', 'uid/0/1/hold-off/2', 'power off'),
      entry('11:40:00', 'step', 'power_cycle', 'power_cycle was asked for', { data: { operation: 'id-1' }, source: 'user ann' }),
      entry('11:20:00', 'fact', 'claim', 'the agent took its task', { data: { attempt: 1 } }),
    ],
    boots: [{ began: at('11:10:00'), mac: '', lost: 0, entries: [{ at: at('11:11:00') }] }] as unknown as History['boots'],
    results: [{ script: 'basalt-disks', device: 'sda', verdict: 'failed', message: 'slow', seconds: 60, attempt: 1, at: at('11:50:00') }] as History['results'],
    events: [{ id: '1', at: at('11:05:00'), sort: 'written', kind: 'Machine', name: 'web1', words: 'was changed', actor: 'user ann' }] as History['events'],
  };
  const places = lanesOf(history).map(({ title, marks }) => [title, ...marks.map(({ place }) => [place?.to, ...Object.values(place?.search ?? {})].join(' '))]);
  assert.deepEqual(places, [
    ['Power', 'decisions uid/0/1/hold-off/2'],
    ['Boots', 'boots'],
    ['Agent', `logs at-${Date.parse(at('11:20:00'))}`],
    ['Tests', 'tests basalt-disks:sda'],
    ['People', '/audit Machine/web1', 'operations id-1'],
  ]);
});

test('what cannot be told apart is one mark that counts, in the worst tone of all', () => {
  const step = (time: string, error?: string) => entry(time, 'step', 'uid/0/1/hold-on/1', 'power on', { data: error ? { error } : { outcome: 'Done' } });
  const [lane] = lanesOf({ entries: [step('11:30:00'), step('11:30:01', 'no answer'), step('11:45:00')] });
  assert.deepEqual(lane?.marks.map(({ count, tone }) => [count, tone]), [[2, 'bad'], [1, 'ok']]);
});

test('an axis begins so that it shows something, and is moved and zoomed', () => {
  assert.deepEqual([at('11:30:00'), at('03:00:00'), '2025-01-01T00:00:00Z'].map((time) => hoursFor([Date.parse(time)], NOW)), [1, 24, 720]);
  assert.deepEqual(['1h2m3s', '400ms', '', undefined].map(secondsOf), [3723, 0.4, undefined, undefined]);
  assert.deepEqual(zoomed({ from: 0, to: 100_000 }, 0.5), { from: 25_000, to: 75_000 });
  assert.deepEqual(zoomed({ from: 0, to: 10_000 }, 0.5), { from: 0, to: 10_000 }, 'nothing is told apart below ten seconds');
  assert.deepEqual(moved({ from: 0, to: 100_000 }, -0.5), { from: -50_000, to: 50_000 });
  assert.deepEqual(partOf({ from: 0, to: 100_000 }, 0.75, 0.25), { from: 25_000, to: 75_000 }, 'dragged from either end');
});
