import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Refused } from '../../src/api/client';
import type { Machine } from '../../src/api/object';
import { targetsOf } from '../../src/pages/objects/targets';

const machine = (name: string, zone: string) => ({ kind: 'Machine', metadata: { name, uid: name, labels: {} }, spec: { zone }, status: {} }) as unknown as Machine;
const objects = [machine('web1', 'row-1'), machine('web2', 'row-2'), machine('db1', 'row-1')];
const fleet = { objects, phase: 'ready', error: undefined };
const of = (filter: string, more: { phase?: string; error?: unknown } = {}) => {
  const { machines, refusal } = targetsOf(filter, { ...fleet, ...more });
  return { names: machines.map(({ metadata }) => metadata.name), refusal };
};

test('a filter names the machines that an action is for', () => {
  assert.deepEqual(of('zone:row-1 name:web'), { names: ['web1'], refusal: undefined });
  assert.deepEqual(of('zone:!row-1'), { names: ['web2'], refusal: undefined });
});

test('a filter with a term that is wrong or has no value names no machine, and the term is told', () => {
  for (const [filter, term, reason] of [
    ['zoen:row-1', 'zoen:row-1', 'there is no zoen to filter by'],
    ['name:web zone:', 'zone:', 'a value is missing'],
    ['zone:! name:web', 'zone:!', 'a value is missing'],
    ['zone:(', 'zone:(', 'a value is missing'],
    ['label-rack:', 'label-rack:', 'a value is missing'],
    ['""', '""', 'a value is missing'],
    ['cores>=many', 'cores>=many', 'many is none'],
    ['zone>3', 'zone>3', 'zone is no number'],
  ] as const) {
    const { names, refusal } = of(filter);
    assert.deepEqual(names, [], filter);
    assert.ok(refusal?.includes(`in ${term}, `) && refusal.includes(reason), `${filter}: ${refusal}`);
  }
});

test('an empty filter names no machine, and neither does one that nothing matches', () => {
  for (const filter of ['', '  ']) assert.deepEqual([of(filter).names, of(filter).refusal?.slice(0, 29)], [[], 'The filter names the machines']);
  assert.deepEqual(of('name:web7'), { names: [], refusal: 'No machine of 3 matches.' });
});

test('no action is for a part of the fleet: the list is whole, or its state is told', () => {
  for (const phase of ['loading', 'partial']) assert.deepEqual(of('name:web1', { phase }), { names: [], refusal: 'Machines are still being read: 3 so far.' });
  const error = new Refused({ detail: 'the region is stopping' });
  for (const phase of ['failed', 'ready']) assert.deepEqual(of('name:web1', { phase, error }), { names: [], refusal: 'The machines could not be read: the region is stopping' });
});
