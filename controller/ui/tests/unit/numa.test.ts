import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attached } from '../../src/pages/machine/numa';

test('a NUMA node has the interfaces, disks and GPUs that are attached to it', () => {
  const inventory = {
    interfaces: { eth0: { numa_node: 0 }, eth1: { numa_node: 1 }, eth2: {} },
    other_interfaces: { ib0: { numa_node: 1 } },
    disks: { sda: { numa_node: null }, nvme0n1: { numa_node: 1 } },
    pci: { '0000:3b:00.0': { numa_node: 1 }, '0000:5e:00.0': { numa_node: 1 } },
    gpus: { '0000:3b:00.0': {} },
  } as unknown as Parameters<typeof attached>[0];
  assert.deepEqual(attached(inventory, 1), { interfaces: ['eth1', 'ib0'], disks: ['nvme0n1'], gpus: ['0000:3b:00.0'] });
  assert.deepEqual(attached(inventory, 0), { interfaces: ['eth0'], disks: [], gpus: [] });
});
