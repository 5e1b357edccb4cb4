// Secondary servers of zones, with their state as each rack tells it.
import type { Schemas } from '../../api/client';
import type { Rack } from '../../api/object';

export interface Copy {
  name: string;
  address: string;
  /** The words of each rack that has something to say, in the order of their names. */
  racks: { rack: string; state: Schemas['RackService']['state']; message: string }[];
}

/** The secondaries of a domain's zone; without a domain, those of all zones. Racks call the service `secondary ZONE NAME`, or `secondary NAME`. */
export function copiesOf(declared: Record<string, Pick<Schemas['Secondary'], 'address' | 'port'>>, racks: readonly Rack[], domain?: string): Copy[] {
  return Object.entries(declared).map(([name, { address, port }]) => {
    const service = ['secondary', domain, name].filter(Boolean).join(' ');
    const told = racks.flatMap(({ metadata, status }) => {
      const it = status.services?.[service] as Schemas['RackService'] | undefined;
      return it ? [{ rack: metadata.name, state: it.state, message: it.message ?? '' }] : [];
    });
    return { name, address: port ? `${address} port ${port}` : address, racks: told.sort((a, b) => a.rack.localeCompare(b.rack)) };
  });
}
