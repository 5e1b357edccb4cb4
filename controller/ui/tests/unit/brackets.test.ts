// Bonds and bridges as brackets over the interfaces of a machine.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { arrange } from '../../src/pages/machine/brackets';

const MACS = { eth0: '52:54:00:00:00:01', eth1: '52:54:00:00:00:02', eth2: '52:54:00:00:00:03', eth3: '52:54:00:00:00:04' };
const of = (network: object) => {
  const { rows, brackets, columns } = arrange(MACS, network as never);
  return { rows, columns, brackets: brackets.map(({ name, from, rows, column }) => `${name} ${from}+${rows} ${column}`) };
};

test('members of a bond stand side by side, where the first of them stood', () => {
  assert.deepEqual(of({ bonds: { bond0: { members: ['eth1', 'eth3'] } } }), { rows: ['eth0', 'eth1', 'eth3', 'eth2'], columns: 1, brackets: ['bond0 1+2 0'] });
});

test('a bridge over a bond and a VLAN stands left of the bond', () => {
  const network = {
    bonds: { bond0: { members: ['eth0', 'eth2'] } },
    vlans: { 'bond0.10': { parent: 'bond0', vid: 10 } },
    bridges: { br0: { members: ['bond0.10', 'eth3'] }, br1: { members: [] } },
  };
  assert.deepEqual(of(network), { rows: ['eth0', 'eth2', 'eth3', 'eth1'], columns: 2, brackets: ['bond0 0+2 0', 'br0 0+3 1'] });
});

test('a declared interface is found by its MAC, and one that is not reported has a row', () => {
  const network = { interfaces: { up: { mac: '52:54:00:00:00:02' }, gone: {} }, bonds: { bond0: { members: ['up', 'gone'] } } };
  assert.deepEqual(of(network), { rows: ['eth0', 'eth1', 'gone', 'eth2', 'eth3'], columns: 1, brackets: ['bond0 1+2 0'] });
});

test('a bracket whose rows are not side by side is drawn in pieces', () => {
  const network = {
    vlans: { a: { parent: 'eth0', vid: 10 }, b: { parent: 'eth0', vid: 20 } },
    bridges: { br10: { members: ['a', 'eth1'] }, br20: { members: ['b', 'eth2'] } },
  };
  assert.deepEqual(of(network), { rows: ['eth0', 'eth1', 'eth2', 'eth3'], columns: 2, brackets: ['br10 0+2 0', 'br20 0+1 1', 'br20 2+1 1'] });
});

test('without bonds and bridges there are no brackets', () => {
  assert.deepEqual(of({}), { rows: ['eth0', 'eth1', 'eth2', 'eth3'], columns: 0, brackets: [] });
});
