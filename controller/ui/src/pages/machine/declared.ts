// The declared network and disks of a machine, as rows.
import type { Schemas } from '../../api/client';

export interface Link {
  name: string;
  is: string;
  /** Members, the parent, the VLAN id. */
  of: string[];
  addressing: string;
  address?: string | null;
  subnet?: string | null;
}

type Network = Partial<Schemas['NetworkConfig']>;
type Addressed = { addressing?: string | null; address?: string | null; subnet?: string | null };

const named = <T>(of: unknown): [string, T][] => Object.entries((of ?? {}) as Record<string, T>);

/** Interfaces first, then the ones that are built on them. */
export function interfacesOf({ interfaces, bonds, bridges, vlans }: Network): Link[] {
  const row = (name: string, is: string, of: string[], { addressing, address, subnet }: Addressed): Link => ({ name, is, of, addressing: addressing ?? 'auto', address, subnet });
  return [
    ...named<Schemas['InterfaceConfig']>(interfaces).map(([name, it]) => row(name, 'interface', [], it)),
    ...named<Schemas['BondConfig']>(bonds).map(([name, it]) => row(name, `bond ${it.mode ?? ''}`.trim(), it.members ?? [], it)),
    ...named<Schemas['BridgeConfig']>(bridges).map(([name, it]) => row(name, 'bridge', it.members ?? [], it)),
    ...named<Schemas['VlanConfig']>(vlans).map(([name, it]) => row(name, `VLAN ${it.vid}`, [it.parent], it)),
  ];
}

export interface Use {
  name: string;
  is: string;
  on: string[];
  size?: string | null;
  mount?: string | null;
}

/** Disks first, then what is built on them, file systems at the end. */
export function usesOf(storage: Partial<Schemas['StorageConfig']>): Use[] {
  const { disk, root_size, disks, partitions, raids, volume_groups, volumes, filesystems } = storage;
  return [
    ...(disk ? [{ name: 'system', is: 'disk', on: [disk], size: root_size, mount: '/' }] : []),
    ...named<Schemas['StorageDisk']>(disks).map(([name, it]) => ({ name, is: 'disk', on: it.id ? [it.id] : [], size: it.min_size && `at least ${it.min_size}` })),
    ...named<Schemas['StoragePartition']>(partitions).map(([name, it]) => ({ name, is: 'partition', on: [it.disk], size: it.size ?? 'the rest' })),
    ...named<Schemas['StorageRaid']>(raids).map(([name, it]) => ({ name, is: it.level, on: [...(it.members ?? []), ...(it.spares ?? []).map((spare) => `${spare} (spare)`)] })),
    ...named<Schemas['StorageVolumeGroup']>(volume_groups).map(([name, it]) => ({ name, is: 'volume group', on: it.members ?? [] })),
    ...named<Schemas['StorageVolume']>(volumes).map(([name, it]) => ({ name, is: 'volume', on: [it.volume_group], size: it.size ?? 'the rest' })),
    ...named<Schemas['StorageFilesystem']>(filesystems).map(([name, it]) => ({ name, is: it.type ?? 'ext4', on: [it.device], mount: it.mount })),
  ];
}
