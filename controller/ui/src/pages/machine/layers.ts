// The declared storage of a machine as layers: each disk a tree, from its partitions up to the mount points.
import type { Schemas } from '../../api/client';
import { bytesOf } from '../../parts/size';

type Storage = Partial<Schemas['StorageConfig']>;
type Disk = Pick<Schemas['Disk'], 'size_bytes'> & Partial<Schemas['Disk']>;

/** A part of the storage, and what is built on it. */
export interface Layer {
  name: string;
  is: string;
  bytes?: number;
  /** It takes what the others leave. */
  isRest: boolean;
  /** Its part of what it is on, from 0 to 1. */
  share: number;
  /** Other parts that it consists of. */
  others: string[];
  mount?: string;
  above: Layer[];
}

/** A declared disk. */
export interface Stack {
  name: string;
  /** The reported disk that the declaration names. Absent: the region chooses one, or the machine reports none of this name. */
  disk?: string;
  id?: string | null;
  least?: string | null;
  layers: Layer[];
}

const named = <T>(of: unknown): [string, T][] => Object.entries((of ?? {}) as Record<string, T>).sort(([a], [b]) => a.localeCompare(b));

/** A layout written out as its parts, as the region does it. */
function expanded(storage: Storage): Storage {
  const { layout = 'flat', disk, root_size: size } = storage;
  if (layout === 'custom') return storage;
  const declared = Object.keys(storage.disks ?? {});
  const members = layout !== 'raid1' ? ['disk'] : declared.length > 0 ? declared : ['disk1', 'disk2'];
  const disks = Object.fromEntries(members.map((name) => [name, storage.disks?.[name] ?? { id: disk }]));
  const root = { filesystems: { root: { device: 'root', type: null, mount: '/' } }, disks };
  if (layout === 'raid1') return { ...root, raids: { root: { level: 'raid1', members, spares: [] } } };
  if (layout === 'lvm') return { ...root, volume_groups: { system: { members } }, volumes: { root: { volume_group: 'system', size } } };
  return { ...root, partitions: { root: { disk: 'disk', size } } };
}

const DIRECTORIES = /^\/dev\/(disk\/by-(id|path)\/)?/;
const WWN = /^(wwn-0x|nvme-eui\.|scsi-3|scsi-2|wwn-|naa\.|eui\.|0x)/;

/** The digits of a worldwide name, however it is written. */
function digitsOf(text: string): string | undefined {
  const digits = text.toLowerCase().replace(WWN, '').replace(/[:-]/g, '');
  return /^([0-9a-f]{16}|[0-9a-f]{32})$/.test(digits) ? digits : undefined;
}

/** The reported disk of an id: its kernel name, its serial number, a link, or a worldwide name. */
export function diskOf(id: string, disks: Record<string, Disk>): string | undefined {
  const text = id.replace(DIRECTORIES, '');
  const digits = digitsOf(text);
  return Object.entries(disks).find(([name, { serial, ids, paths }]) => {
    const links = [...(ids ?? []), ...(paths ?? [])];
    return name === text || serial === text || links.includes(text) || (digits !== undefined && links.some((link) => digitsOf(link) === digits));
  })?.[0];
}

/** The space that members of a RAID give together. */
function spaceOf(level: Schemas['StorageRaid']['level'], sizes: number[]): number {
  const least = Math.min(...sizes);
  if (level === 'raid0') return sizes.reduce((sum, size) => sum + size, 0);
  if (level === 'raid1') return least;
  if (level === 'raid10') return (least * sizes.length) / 2;
  return least * (sizes.length - (level === 'raid5' ? 1 : 2));
}

/** Each declared disk with what is built on it, in the order of their names. */
export function stacksOf(declared: Storage, disks: Record<string, Disk>): Stack[] {
  const storage = expanded(declared);
  const partitions = named<Schemas['StoragePartition']>(storage.partitions);
  const raids = named<Schemas['StorageRaid']>(storage.raids);
  const groups = named<Schemas['StorageVolumeGroup']>(storage.volume_groups);
  const volumes = named<Schemas['StorageVolume']>(storage.volumes);
  const files = named<Schemas['StorageFilesystem']>(storage.filesystems);
  const reported = new Map(named<Schemas['StorageDisk']>(storage.disks).map(([name, { id }]) => [name, id ? diskOf(id, disks) : undefined]));

  /** The size of a part. Absent: it depends on a disk that is not known yet. */
  const bytes = (name: string): number | undefined => {
    const disk = reported.get(name);
    if (disk) return disks[disk]?.size_bytes;
    const raid = raids.find(([it]) => it === name)?.[1];
    const members = raid?.members ?? groups.find(([it]) => it === name)?.[1].members;
    if (members) {
      const sizes = members.map(bytes);
      return sizes.every((it) => it !== undefined) && sizes.length > 0 ? spaceOf(raid?.level ?? 'raid0', sizes) : undefined;
    }
    const partition = partitions.find(([it]) => it === name)?.[1];
    if (partition) return sized(partition.size) ?? left(bytes(partition.disk), partitions.filter(([, it]) => it.disk === partition.disk).map(([, it]) => it.size));
    const volume = volumes.find(([it]) => it === name)?.[1];
    return volume && (sized(volume.size) ?? left(bytes(volume.volume_group), volumes.filter(([, it]) => it.volume_group === volume.volume_group).map(([, it]) => it.size)));
  };

  /** What stands on a part. */
  const above = (name: string): Layer[] => {
    const whole = bytes(name);
    const layer = (name: string, is: string, size: string | null | undefined, isRest: boolean): Layer => ({
      name,
      is,
      bytes: bytes(name) ?? sized(size),
      isRest,
      share: 1,
      others: [],
      above: above(name),
    });
    const parts = [
      ...partitions.filter(([, it]) => it.disk === name).map(([part, it]) => layer(part, 'partition', it.size, !it.size)),
      ...volumes.filter(([, it]) => it.volume_group === name).map(([part, it]) => layer(part, 'volume', it.size, !it.size)),
    ].sort((a, b) => Number(a.isRest) - Number(b.isRest));
    const shared = parts.map((it) => ({ ...it, share: whole && it.bytes !== undefined ? Math.min(1, it.bytes / whole) : 1 / parts.length }));
    const joined = [
      ...raids.filter(([, it]) => [...(it.members ?? []), ...(it.spares ?? [])].includes(name)).map(([raid, it]) => ({
        ...layer(raid, (it.spares ?? []).includes(name) ? `spare of ${it.level}` : it.level, null, false),
        others: [...(it.members ?? []), ...(it.spares ?? []).map((spare) => `${spare} (spare)`)].filter((other) => other.replace(' (spare)', '') !== name),
      })),
      ...groups.filter(([, it]) => (it.members ?? []).includes(name)).map(([group, it]) => ({ ...layer(group, 'volume group', null, false), others: (it.members ?? []).filter((other) => other !== name) })),
    ];
    const filesystems = files
      .filter(([, it]) => it.device === name)
      .map(([file, { type, mount }]): Layer => ({ name: file, is: type ?? 'ext4', isRest: false, share: 1, others: [], mount: mount ?? undefined, above: [] }));
    return [...shared, ...joined, ...filesystems];
  };

  return named<Schemas['StorageDisk']>(storage.disks).map(([name, { id, min_size }]) => ({ name, disk: reported.get(name), id, least: min_size, layers: above(name) }));
}

const sized = (text: string | null | undefined): number | undefined => (text ? bytesOf(text) : undefined);

/** What parts with a size leave for the one without. */
function left(whole: number | undefined, sizes: (string | null | undefined)[]): number | undefined {
  if (whole === undefined) return undefined;
  return Math.max(0, sizes.reduce((rest, size) => rest - (sized(size) ?? 0), whole));
}
