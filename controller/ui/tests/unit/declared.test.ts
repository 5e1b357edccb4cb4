// The declared network of a machine, as rows.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { interfacesOf } from '../../src/pages/machine/declared';

test('interfaces come first, then bonds with their members, then VLANs with their parent', () => {
  const rows = interfacesOf({
    vlans: { 'bond0.10': { parent: 'bond0', vid: 10, addressing: 'static', address: '10.0.10.5', subnet: 'lab-10' } },
    bonds: { bond0: { mode: '802.3ad', members: ['a', 'b'], addressing: 'link_up' } },
    interfaces: { a: { addressing: 'link_up' } },
  } as never);
  assert.deepEqual(
    rows.map(({ name, is, of, addressing, address }) => [name, is, of, addressing, address]),
    [
      ['a', 'interface', [], 'link_up', undefined],
      ['bond0', 'bond 802.3ad', ['a', 'b'], 'link_up', undefined],
      ['bond0.10', 'VLAN 10', ['bond0'], 'static', '10.0.10.5'],
    ],
  );
});
