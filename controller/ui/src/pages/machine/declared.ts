// The declared network of a machine, as rows.
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
