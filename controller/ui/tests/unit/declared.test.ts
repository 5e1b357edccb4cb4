// The declared network and disks of a machine, as rows.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { interfacesOf, usesOf } from '../../src/pages/machine/declared';

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

test('disks come first, file systems with their mount points last', () => {
  const rows = usesOf({
    filesystems: { root: { device: 'md0', mount: '/' } },
    raids: { md0: { level: 'raid1', members: ['a', 'b'], spares: ['c'] } },
    disks: { a: { id: 'sda' } },
  } as never);
  assert.deepEqual(
    rows.map(({ name, is, on, mount }) => [name, is, on, mount]),
    [
      ['a', 'disk', ['sda'], undefined],
      ['md0', 'raid1', ['a', 'b', 'c (spare)'], undefined],
      ['root', 'ext4', ['md0'], '/'],
    ],
  );
});
