// The keys by which machines are filtered.
import type { BasaltObject, Machine } from '../api/object';
import { MACHINE_FIELDS } from '../api/stream';
import { stateOf, wordsOf } from '../parts/state';
import { bytes, bytesOf } from '../parts/size';
import type { Field, Rows } from './language';

const some = (...values: (string | null | undefined)[]): string[] => values.filter((value): value is string => !!value);

const one = (number: number | null | undefined): number[] => (number === null || number === undefined ? [] : [number]);

export const addresses = (machine: Machine): string[] => Object.values(machine.status.addresses ?? {}).map(String);

const FIELDS: Field<Machine>[] = [
  { key: 'name', aliases: ['hostname'], says: 'its name', values: ({ metadata }) => [metadata.name] },
  {
    key: 'status',
    says: 'how it is: Deployed, waiting, failed …',
    values: (machine) => wordsOf(machine as unknown as BasaltObject),
  },
  { key: 'zone', says: 'its failure domain', values: ({ spec }) => [spec.zone ?? 'default'] },
  { key: 'pool', says: 'its pool', values: ({ spec }) => [spec.pool ?? 'default'] },
  { key: 'tags', aliases: ['tag'], says: 'its tags', values: ({ status }) => status.tags ?? [] },
  { key: 'deployment', says: 'the deployment that owns it', values: ({ status }) => some(status.deployment) },
  { key: 'power', says: 'on, off, unknown', values: ({ status }) => some(status.power?.state) },
  { key: 'arch', says: 'amd64, arm64', values: ({ spec, status }) => some(status.inventory?.architecture ?? spec.architecture ?? 'amd64') },
  {
    key: 'cores',
    aliases: ['cpu'],
    says: 'cores of its processors',
    values: ({ status }) => some(status.inventory?.cpu?.cores?.toString()),
    numbers: ({ status }) => one(status.inventory?.cpu?.cores),
  },
  {
    key: 'ram',
    aliases: ['memory'],
    says: 'memory, in GiB',
    values: ({ status }) => some(status.inventory?.memory_bytes ? bytes(status.inventory.memory_bytes) : undefined),
    numbers: ({ status }) => one(status.inventory?.memory_bytes),
    read: bytesOf,
  },
  { key: 'mac', says: 'a MAC that it boots by', values: ({ spec }) => (spec.boot_macs ?? []).map(String) },
  { key: 'ip', aliases: ['ip_addresses', 'address'], says: 'an address of its system', values: addresses },
  { key: 'bmc', says: 'the address of its BMC', values: ({ spec }) => some(spec.bmc?.address) },
  { key: 'domain', says: 'the domain that it has a name in', values: ({ spec }) => some(spec.domain) },
  { key: 'vendor', says: 'who made it', values: ({ status }) => some(status.inventory?.dmi?.manufacturer) },
  { key: 'model', says: 'its product name', values: ({ status }) => some(status.inventory?.dmi?.product) },
  { key: 'serial', says: 'its serial number', values: ({ status }) => some(status.inventory?.dmi?.serial) },
  { key: 'manager', aliases: ['owner'], says: 'the tool that declared it', values: ({ metadata }) => some(metadata.manager) },
  { key: 'mode', says: 'managed, rescue, broken, retired', values: ({ spec }) => [spec.mode ?? 'managed'] },
  { key: 'locked', says: 'true, false', values: ({ spec }) => [String(spec.locked ?? false)] },
  { key: 'health', says: 'ok, degraded, critical, unknown', values: ({ status }) => some(status.axes?.health) },
  { key: 'description', says: 'words about it', values: ({ spec }) => some(spec.description) },
];

const texts = new WeakMap<Machine, string>();

/** All that its row and its hardware say, once for each state of it. */
function text(machine: Machine): string {
  const known = texts.get(machine);
  if (known !== undefined) return known;
  const { reason } = stateOf(machine as unknown as BasaltObject);
  const labels = Object.entries(machine.metadata.labels ?? {}).map((pair) => pair.join('='));
  const made = [...FIELDS.flatMap((field) => field.values(machine)), machine.metadata.uid, reason, ...labels].join(' ').toLowerCase();
  texts.set(machine, made);
  return made;
}

const CARRIED = MACHINE_FIELDS.split(',');

/** Rows have no whole status: a path that leads elsewhere is for the region. */
function lacks(key: string): string | undefined {
  const carried = CARRIED.some((member) => key === member || key.startsWith(`${member}.`));
  return !key.startsWith('status.') || carried ? undefined : `rows have no ${key}: basalt get machines --where '${key}:…'`;
}

export const MACHINES: Rows<Machine> = { example: 'zone:row-1, cores>=32', fields: FIELDS, text, labels: ({ metadata }) => metadata.labels ?? {}, lacks };
