import type { Schemas } from '../../api/client';

type Attached = { numa_node?: number | null };

/** Names of the devices that are attached to a NUMA node, by their sort. */
export function attached(inventory: Schemas['Inventory'], node: number): { interfaces: string[]; disks: string[]; gpus: string[] } {
  const on = (devices: object | null | undefined) =>
    Object.entries((devices ?? {}) as Record<string, Attached>)
      .filter(([, device]) => device.numa_node === node)
      .map(([name]) => name);
  const gpus = new Set(Object.keys(inventory.gpus ?? {}));
  return {
    interfaces: [...on(inventory.interfaces), ...on(inventory.other_interfaces)],
    disks: on(inventory.disks),
    // A GPU is one of the PCI devices, which have the node.
    gpus: on(inventory.pci).filter((address) => gpus.has(address)),
  };
}
