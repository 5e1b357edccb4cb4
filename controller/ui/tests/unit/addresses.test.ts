import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Entry, countsOf, entriesOf, mapOf } from '../../src/pages/objects/addresses';

const entry = (address: string, more: Partial<Entry>): Entry => ({ address, source: 'lease', ...more }) as Entry;
const RANGES = [
  { name: 'pool', start: '10.0.0.100', end: '10.0.0.109', purpose: 'dynamic' },
  { name: 'kept', start: '10.0.0.200', end: '10.0.0.203', purpose: 'reserved' },
];

test('each address of a network has a cell, a row is a /26', () => {
  const rows = mapOf('10.0.0.0/24', [entry('10.0.0.1', { source: 'gateway' }), entry('10.0.0.100', { mac: '52:54:00:00:00:01' }), entry('10.0.0.7', { source: 'deployment', machine: 'web1' })], RANGES);
  assert.deepEqual(rows?.map((row) => [row.length, row[0]?.address]), [[64, '10.0.0.0'], [64, '10.0.0.64'], [64, '10.0.0.128'], [64, '10.0.0.192']]);
  assert.deepEqual(Object.fromEntries(countsOf(rows ?? [])), { none: 2, gateway: 1, static: 1, leased: 1, dynamic: 9, reserved: 4, free: 238 });
  assert.equal(rows?.[1]?.[36]?.range?.name, 'pool');
});

test('an address with two owners is a conflict; a machine that leases its own is one owner', () => {
  const of = (...entries: Partial<Entry>[]) => mapOf('10.0.0.0/30', entries.map((it) => entry('10.0.0.1', it)), [])?.[0]?.[1]?.use;
  assert.equal(of({ mac: '52:54:00:00:00:01' }, { mac: '52:54:00:00:00:02' }), 'conflict');
  assert.equal(of({ source: 'deployment', machine: 'a' }, { source: 'lease', machine: 'b', mac: '52:54:00:00:00:02' }), 'conflict');
  assert.equal(of({ source: 'deployment', machine: 'a' }, { source: 'lease', machine: 'a', mac: '52:54:00:00:00:01' }), 'static');
});

test('a map is made of all entries, and of none where they are too many', async () => {
  const asked: (string | undefined)[] = [];
  const pages = (count: number, size: number) => async (after: string | undefined) => {
    asked.push(after);
    const at = Number(after ?? 0);
    return { items: Array.from({ length: size }, () => entry('10.0.0.1', {})), ...(at + 1 < count ? { continue: String(at + 1) } : {}) };
  };
  const of = async (cidr: string, count: number, size: number) => {
    asked.length = 0;
    const { items, more } = await entriesOf(cidr, pages(count, size));
    return [items.length, more, asked.length];
  };
  assert.deepEqual(await of('10.0.0.0/22', 3, 1000), [3000, false, 3]);
  assert.deepEqual(asked, [undefined, '1', '2']);
  assert.deepEqual(await of('10.0.0.0/22', 9, 1000), [5000, true, 5]);
  assert.deepEqual(await of('10.0.0.0/30', 2, 1000), [1000, true, 1]);
  assert.deepEqual([await of('10.0.0.0/16', 2, 1000), await of('2001:db8::/64', 2, 1000)], [[1000, true, 1], [1000, true, 1]]);
  assert.deepEqual(await of('10.0.0.0/24', 1, 0), [0, false, 1]);
});

test('small networks have no address to spare, and large ones and IPv6 no map', () => {
  assert.deepEqual(mapOf('10.0.0.7/32', [], [])?.map((row) => row.map(({ address, use }) => [address, use])), [[['10.0.0.7', 'free']]]);
  assert.deepEqual(mapOf('10.0.0.6/31', [], [])?.[0]?.map(({ use }) => use), ['free', 'free']);
  assert.deepEqual([mapOf('10.0.0.0/21', [], []), mapOf('2001:db8::/64', [], []), mapOf('nothing', [], [])], [undefined, undefined, undefined]);
  assert.equal(mapOf('255.255.255.0/24', [], [])?.[3]?.[63]?.address, '255.255.255.255');
});
