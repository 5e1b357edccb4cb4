import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Refused } from '../../src/api/client';
import type { Machine } from '../../src/api/object';
import { deploymentOf, namesOf, placedOf, taggedOf, tagsOf, takenBy, wordsOf } from '../../src/pages/bulk';

const machine = (name: string, spec = {}, status = {}) => ({ kind: 'Machine', metadata: { name, uid: name }, spec, status }) as unknown as Machine;

test('machines that took an operation are let go, and all others stay selected', () => {
  const machines = ['web1', 'web2', 'web3', 'web4'].map((name) => machine(name));
  const said = { of: 'Machine', action: 'switched off' };
  const refused = new Refused({ detail: 'no' });
  // The plan refused web4 already, so it was not asked.
  const became = [{ ...said, name: 'web1' }, { ...said, name: 'web2', refused }, { ...said, name: 'web3', refused, missed: 'unknown' as const }];
  assert.deepEqual(takenBy(machines, became).map(({ metadata }) => metadata.name), ['web1']);
});

test('a new deployment has the name of its machine, or one beside it that is free', () => {
  const names = namesOf(['web1', 'web2', 'web2-2'], ['web2', 'web9']);
  assert.deepEqual([...names], [['web1', 'web1'], ['web2', 'web2-2'], ['web2-2', 'web2-2-2']]);
});

test('a machine is deployed once, and not in another mode', () => {
  const wish = { image: 'debian-12', sshKeys: ['ssh-ed25519 AAAA'], userData: '', always: false };
  assert.deepEqual(deploymentOf(machine('web1'), 'web1-2', wish), {
    kind: 'Deployment',
    metadata: { name: 'web1-2' },
    spec: { machine: 'web1', image: 'debian-12', ssh_keys: ['ssh-ed25519 AAAA'] },
  });
  assert.match(String(deploymentOf(machine('web1', {}, { deployment: 'shop' }), 'web1', wish)), /^it has the deployment shop/);
  assert.match(String(deploymentOf(machine('web1', { mode: 'broken' }), 'web1', wish)), /^its mode is broken/);
  const spec = (deploymentOf(machine('web1'), 'web1', { ...wish, userData: '#cloud-config', always: true }) as { spec: object }).spec;
  assert.deepEqual(spec, { machine: 'web1', image: 'debian-12', ssh_keys: ['ssh-ed25519 AAAA'], user_data: '#cloud-config', wipe: 'always' });
});

test('tags are added and taken away in the spec, whose other fields stay', () => {
  const web1 = machine('web1', { zone: 'a', tags: ['old', 'kept'] }, { tags: ['big', 'given', 'kept', 'old'], automatic_tags: ['big'] });
  const tagged = (add: string[], remove: string[]) => {
    const made = taggedOf(web1, add, remove);
    return typeof made === 'string' ? made : made.spec;
  };
  assert.deepEqual(tagged(['new'], ['old']), { zone: 'a', tags: ['kept', 'new'] });
  assert.deepEqual(tagged([], ['old', 'kept']), { zone: 'a' });
  assert.deepEqual(tagged(['old'], ['absent']), { zone: 'a', tags: ['old', 'kept'] }, 'nothing changes, not even the order');
  assert.equal(tagged([], ['big']), 'it has big by the expression of that tag');
  assert.equal(tagged([], ['given']), 'another tool gave it given');
});

test('a machine moves to the zone or pool that is given, and stays in the other', () => {
  const web1 = machine('web1', { zone: 'a', pool: 'web' });
  assert.deepEqual(placedOf(web1, { pool: 'batch' }).spec, { zone: 'a', pool: 'batch' });
  assert.deepEqual(placedOf(web1, { zone: 'b', pool: 'batch' }).spec, { zone: 'b', pool: 'batch' });
});

test('tags are words, and those of specs are counted', () => {
  assert.deepEqual(wordsOf(' gpu, big  gpu\n'), ['gpu', 'big']);
  assert.deepEqual(tagsOf([machine('a', { tags: ['x', 'b'] }), machine('b', { tags: ['x'] }), machine('c')]), [['b', 1], ['x', 2]]);
});
