import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FieldOf } from '../../src/api/kinds';
import { kindsOf } from '../../src/api/kinds';
import { spaced } from '../../src/parts/state';
import { changed, faultsOf, keptOf, shownOf, typedOf } from '../../src/pages/objects/values';

const field = (name: string, shape: FieldOf['shape']): FieldOf => ({ name, says: '', shape, required: false, immutable: false, isMap: false });

test('an emptied field is left out, and so is a group without fields', () => {
  assert.deepEqual(changed({ a: 1, b: 2 }, ['a'], 3), { a: 3, b: 2 });
  assert.deepEqual(changed({ a: 1, b: 2 }, ['a'], undefined), { b: 2 });
  assert.deepEqual(changed({}, ['boot', 'mode'], 'none'), { boot: { mode: 'none' } });
  assert.deepEqual(changed({ boot: { mode: 'none' } }, ['boot', 'mode'], undefined), {});
  assert.deepEqual(changed({ boot: { mode: 'none', architectures: [] } }, ['boot', 'mode'], undefined), { boot: { architectures: [] } });
});

test('what is typed becomes a value, and a value is shown as it is typed', () => {
  const of = (is: 'text' | 'whole' | 'yes-no' | 'list' | 'items' | 'texts' | 'lines', text: string) => typedOf(field('a', { is } as FieldOf['shape']), text);
  assert.deepEqual(
    [of('text', ' a b '), of('whole', '12'), of('whole', 'twelve'), of('yes-no', 'false'), of('text', ' ')],
    ['a b', 12, 'twelve', false, undefined],
  );
  assert.deepEqual(of('list', 'a, b\nc ,'), ['a', 'b', 'c']);
  assert.deepEqual(of('texts', '150=10.0.0.5\nx = a=b\n'), { '150': '10.0.0.5', x: 'a=b' });
  assert.equal(of('lines', '#!/bin/sh\n'), '#!/bin/sh\n');
  for (const value of ['a', 12, ['a', 'b'], { a: 'b', c: 'd' }]) {
    const is = Array.isArray(value) ? 'list' : typeof value === 'object' ? 'texts' : typeof value === 'number' ? 'whole' : 'text';
    assert.deepEqual(of(is, shownOf(field('a', { is } as FieldOf['shape']), value)), value);
  }
});

test('a list of texts with spaces has one of them a line', () => {
  const keys = field('ssh_keys', { is: 'items' });
  const value = ['ssh-ed25519 AAAA me@example.com', 'from="a,b" ssh-rsa BBBB you'];
  assert.deepEqual(typedOf(keys, shownOf(keys, value)), value);
  assert.deepEqual(typedOf(keys, ' a b \r\n\nc, d\n'), ['a b', 'c, d']);
  assert.equal(typedOf(keys, ' \n'), undefined);
});

test('a list has one item a line where its items may have spaces', () => {
  const FREE = '^[^\\u0000-\\u001f\\u007f-\\u009f]*$';
  const items = {
    ssh_keys: { format: 'ssh-key' },
    hardware: { pattern: FREE },
    any: {},
    tags: { format: 'tag' },
    pools: { pattern: '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$' },
    dns_servers: { format: 'ip', pattern: '^[0-9A-Fa-f.:]{2,45}$' },
    days: { enum: ['monday', 'tuesday'] },
  };
  const properties = Object.fromEntries(Object.entries(items).map(([name, of]) => [name, { type: 'array', items: { type: 'string', ...of } }]));
  const [kind] = kindsOf({
    paths: { '/api/v1/things': { get: { operationId: 'listThing' } } },
    components: { schemas: { ThingSpec: { properties } } },
  });
  assert.deepEqual(Object.fromEntries((kind?.spec ?? []).map(({ name, shape }) => [name, shape.is])), { ssh_keys: 'items', hardware: 'items', any: 'items', tags: 'list', pools: 'list', dns_servers: 'list', days: 'list' });
});

test('a secret that is emptied again stays as it was read', () => {
  const read = { set: true, revision: 4 };
  assert.deepEqual(keptOf(read, read), read);
  // The plan was shown, and the form is there again.
  assert.deepEqual(keptOf('typed', read), read);
  assert.deepEqual([keptOf('typed', undefined), keptOf(undefined, read), keptOf(null, read)], [undefined, undefined, undefined]);
});

test('a refusal is told at its field, or at the one that it is within', () => {
  const fields = [field('gateway', { is: 'text' }), field('dns_servers', { is: 'list' }), field('boot', { is: 'group', fields: [field('mode', { is: 'text' })] })];
  const error = (pointer: string) => ({ pointer, code: 'format' as const, message: `wrong ${pointer.at(-1)}`, hint: 'so' });
  const { faults, others } = faultsOf(['/documents/0/spec/gateway', '/documents/0/spec/dns_servers/1', '/spec/boot/mode', '/documents/0/spec/other', '/documents/0/metadata/name'].map(error), fields);
  assert.deepEqual([...faults.keys()], ['/gateway', '/dns_servers', '/boot/mode', 'name']);
  assert.equal(faults.get('/gateway'), 'wrong y; so');
  assert.deepEqual(others.map(({ pointer }) => pointer), ['/documents/0/spec/other']);
});

test('fields are made of what the region describes', () => {
  const [kind] = kindsOf({
    paths: { '/api/v1/things': { get: { operationId: 'listThing' } } },
    components: {
      schemas: {
        ThingSpec: {
          required: ['a'],
          properties: {
            a: { type: 'string', description: 'first' },
            b: { type: ['string', 'null'], enum: ['x', 'y', null] },
            c: { anyOf: [{ $ref: '#/components/schemas/Secret' }, { type: 'null' }] },
            d: { anyOf: [{ $ref: '#/components/schemas/Inner' }, { type: 'null' }] },
            e: { type: ['array', 'null'], items: { type: 'string', format: 'tag' } },
            f: { type: ['object', 'null'], additionalProperties: { type: 'string' } },
            g: { type: ['string', 'null'], pattern: '^[^\\u0000]*$' },
            h: { type: ['boolean', 'null'] },
          },
        },
        Inner: { properties: { deep: { anyOf: [{ $ref: '#/components/schemas/Inner' }] }, n: { type: 'integer' } } },
      },
    },
  });
  assert.deepEqual(kind?.spec.map(({ shape }) => shape.is), ['text', 'choice', 'secret', 'group', 'list', 'texts', 'lines', 'yes-no']);
  assert.equal(kind?.spec[0]?.required, true);
  const inner = kind?.spec[3]?.shape;
  assert.deepEqual(inner?.is === 'group' && inner.fields.map(({ shape }) => shape.is), ['other', 'whole']);
});

test('a field is called as people write it', () => {
  assert.deepEqual(['dns_servers', 'boot_macs', 'vlan', 'allow_dns', 'os', 'CannotBeRead'].map(spaced), ['DNS servers', 'Boot MACs', 'VLAN', 'Allow DNS', 'OS', 'Cannot be read']);
});
