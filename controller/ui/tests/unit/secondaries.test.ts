import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Rack } from '../../src/api/object';
import { copiesOf } from '../../src/pages/objects/secondaries';

const rack = (name: string, services: Record<string, { state: string; message?: string }>) => ({ metadata: { name }, status: { services } }) as unknown as Rack;

test('a secondary has the words of each rack about it, and not those about others', () => {
  const racks = [
    rack('r2', { 'secondary lab.example ns1': { state: 'running', message: 'it holds the zones as they are' }, dns: { state: 'running' } }),
    rack('r1', { 'secondary lab.example ns1': { state: 'degraded', message: 'it does not answer' }, 'secondary ns1': { state: 'running' } }),
    rack('r3', {}),
  ];
  const [ns1, ns2] = copiesOf({ ns1: { address: '10.0.0.53', port: 5353 }, ns2: { address: '10.0.0.54', port: null } }, racks, 'lab.example');
  assert.deepEqual([ns1?.address, ns1?.racks.map(({ rack, state }) => [rack, state])], ['10.0.0.53 port 5353', [['r1', 'degraded'], ['r2', 'running']]]);
  assert.deepEqual([ns2?.address, ns2?.racks], ['10.0.0.54', []]);
  const [everywhere] = copiesOf({ ns1: { address: '10.0.0.53', port: null } }, racks);
  assert.deepEqual(everywhere?.racks, [{ rack: 'r1', state: 'running', message: '' }], 'of all zones');
});
