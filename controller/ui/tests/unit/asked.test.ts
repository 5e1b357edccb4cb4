import assert from 'node:assert/strict';
import { test } from 'node:test';
import { accountOf } from '../../src/pages/machine/account';
import { type Operation, isOpen, tookOf, toneOf, wordsOf } from '../../src/pages/machine/asked';

const NOW = Date.parse('2026-01-31T12:00:00Z');
const operation = (more: Partial<Operation>): Operation => ({ verb: 'power_on', state: 'done', ...more }) as Operation;

test('an operation is named by its verb, and by the script or the tests that it runs', () => {
  assert.equal(wordsOf(operation({})), 'power on');
  assert.equal(wordsOf(operation({ verb: 'run_script', script: 'firmware' })), 'run script: firmware');
  assert.equal(wordsOf(operation({ verb: 'test', tests: ['basalt-disks', 'basalt-memory'] as never })), 'test: basalt-disks, basalt-memory');
});

test('it took the time from its beginning to its end, or until now', () => {
  const took = (begun_at?: string, finished_at?: string) => tookOf(operation({ begun_at, finished_at }), NOW);
  assert.deepEqual(
    [took(), took('2026-01-31T11:59:56Z'), took('2026-01-31T11:00:00Z', '2026-01-31T11:02:05Z'), took('2026-01-31T09:00:00Z', '2026-01-31T10:03:00Z'), took('2026-01-31T12:00:05Z')],
    [undefined, '4 s', '2 min 5 s', '1 h 3 min', '0 s'],
  );
});

test('a state that still changes is open, and each state has a tone', () => {
  assert.deepEqual((['requested', 'running', 'done', 'failed', 'superseded', 'expired'] as const).map((state) => [isOpen(operation({ state })), toneOf(operation({ state }))]), [
    [true, 'wait'],
    [true, 'busy'],
    [false, 'ok'],
    [false, 'bad'],
    [false, 'off'],
    [false, 'bad'],
  ]);
});

test('an account on a BMC says what became of it', () => {
  assert.deepEqual([{ refused: true, checked: true }, { refused: false, checked: true }, { refused: false, checked: false }].map((it) => accountOf(it).tone), ['bad', 'ok', 'busy']);
});
