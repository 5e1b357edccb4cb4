// The declared storage of a machine as layers of its disks.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Layer, diskOf, stacksOf } from '../../src/pages/machine/layers';

const GIB = 1024 ** 3;
const DISKS = { sda: { size_bytes: 1000 * GIB, serial: 'S1', ids: ['wwn-0x5000c500a1b2c3d4'] }, sdb: { size_bytes: 500 * GIB, serial: 'S2' } };

/** `name is share% [mount] (others) > …`, each layer in brackets after the one below it. */
const written = (layers: Layer[]): string =>
  layers
    .map(({ name, is, share, mount, others, above }) => {
      const said = [name, is, `${Math.round(share * 100)}%`, mount, others.length > 0 && `with ${others.join(', ')}`].filter(Boolean).join(' ');
      return above.length > 0 ? `${said} (${written(above)})` : said;
    })
    .join(', ');

test('partitions, a mirror, a volume group, volumes and file systems stand on each other', () => {
  const stacks = stacksOf(
    {
      layout: 'custom',
      disks: { one: { id: 'sda' }, two: { id: 'S2' } },
      partitions: { swap: { disk: 'one', size: '500GiB' }, a: { disk: 'one' }, b: { disk: 'two' } },
      raids: { mirror: { level: 'raid1', members: ['a', 'b'], spares: [] } },
      volume_groups: { data: { members: ['mirror'] } },
      volumes: { root: { volume_group: 'data', size: '100GiB' }, srv: { volume_group: 'data' } },
      filesystems: { swap: { device: 'swap', type: 'swap' }, root: { device: 'root', type: 'ext4', mount: '/' }, srv: { device: 'srv', type: 'xfs', mount: '/srv' } },
    },
    DISKS as never,
  );
  assert.deepEqual(
    stacks.map(({ name, disk, layers }) => [name, disk, written(layers)]),
    [
      [
        'one',
        'sda',
        'swap partition 50% (swap swap 100%), a partition 50% (mirror raid1 100% with b (data volume group 100% (root volume 20% (root ext4 100% /), srv volume 80% (srv xfs 100% /srv))))',
      ],
      ['two', 'sdb', 'b partition 100% (mirror raid1 100% with a (data volume group 100% (root volume 20% (root ext4 100% /), srv volume 80% (srv xfs 100% /srv))))'],
    ],
  );
});

test('a layout is drawn as its parts, on the disk that it names, or on any', () => {
  const of = (storage: object) => stacksOf(storage as never, DISKS as never).map(({ name, disk, layers }) => [name, disk, written(layers)]);
  assert.deepEqual(of({ layout: 'flat', disk: 'sda', root_size: '250GiB' }), [['disk', 'sda', 'root partition 25% (root ext4 100% /)']]);
  assert.deepEqual(of({ layout: 'lvm' }), [['disk', undefined, 'system volume group 100% (root volume 100% (root ext4 100% /))']]);
  assert.deepEqual(of({ layout: 'raid1' }), [
    ['disk1', undefined, 'root raid1 100% with disk2 (root ext4 100% /)'],
    ['disk2', undefined, 'root raid1 100% with disk1 (root ext4 100% /)'],
  ]);
});

test('a spare disk says so, and carries what its RAID carries', () => {
  const [, spare] = stacksOf({ layout: 'custom', disks: { a: {}, c: {} }, raids: { md: { level: 'raid1', members: ['a', 'b'], spares: ['c'] } } } as never, {});
  assert.equal(written(spare?.layers ?? []), 'md spare of raid1 100% with a, b');
});

test('a disk is found by each of its names', () => {
  for (const id of ['sda', '/dev/sda', 'S1', '/dev/disk/by-id/wwn-0x5000c500a1b2c3d4', '50:00:c5:00:a1:b2:c3:d4']) assert.equal(diskOf(id, DISKS as never), 'sda', id);
  assert.equal(diskOf('sdc', DISKS as never), undefined);
});
