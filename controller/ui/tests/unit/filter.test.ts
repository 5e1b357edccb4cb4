import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BasaltObject, Machine } from '../../src/api/object';
import { complete } from '../../src/filter/complete';
import { type Rows, fault, matcher, parse, strictest, without } from '../../src/filter/language';
import { MACHINES } from '../../src/filter/machines';
import { rowsOf } from '../../src/filter/objects';
import vectors from '../../../../api/src/filter/vectors.json';

const GIB = 1024 ** 3;

function machine(name: string, zone: string, cores: number, ram: number, more: object = {}): Machine {
  return {
    kind: 'Machine',
    metadata: { name, uid: name, generation: 1, created_at: '', updated_at: '', labels: { row: name.slice(-1) } },
    spec: { zone, ...more },
    status: {
      tags: name === 'web1' ? ['gpu'] : ['gpu-small', 'ssd'],
      phase: name === 'db1' ? 'Failed deploying' : 'Ready',
      axes: { lifecycle: 'ready', operation: name === 'db1' ? 'failed' : 'idle' },
      inventory: { cpu: { cores }, memory_bytes: ram * GIB },
    },
  } as unknown as Machine;
}

const ALL = [machine('web1', 'row-1', 8, 64), machine('web2', 'row-2', 32, 256, { description: 'by the door' }), machine('db1', 'row-1', 64, 512)];

const found = (text: string): string => ALL.filter(matcher(parse(text), MACHINES)).map((it) => it.metadata.name).join(' ');

test('words are looked for in all that a row says, and all of them have to be there', () => {
  assert.equal(found(''), 'web1 web2 db1');
  assert.equal(found('web'), 'web1 web2');
  assert.equal(found('web row-2'), 'web2');
  assert.equal(found('"by the door"'), 'web2');
});

test("a key takes one value, several, or a group, as MAAS's users type them", () => {
  assert.equal(found('zone:row-1'), 'web1 db1');
  for (const text of ['zone:row-1,row-2', 'zone:(row-1,row-2)', 'zone:(row-1, row-2)']) assert.equal(found(text), 'web1 web2 db1', text);
  assert.equal(found('zone:row'), 'web1 web2 db1', 'a part is enough');
  assert.equal(found('zone:row-1 cores:64'), 'db1', 'keys are all asked for');
});

test('a value is exact behind =, and excluded behind !', () => {
  assert.equal(found('tags:gpu'), 'web1 web2 db1');
  assert.equal(found('tags:(=gpu)'), 'web1');
  assert.equal(found('tags=gpu'), 'web1');
  for (const text of ['zone:(!row-1)', 'zone:!row-1', 'zone:!(row-1)', 'zone!=row-1']) assert.equal(found(text), 'web2', text);
  assert.equal(found('tags:(!=gpu)'), 'web2 db1');
});

test('numbers are compared, and a colon means at least', () => {
  assert.equal(found('cores:32'), 'web2 db1');
  assert.equal(found('cores>32'), 'db1');
  assert.equal(found('cores<=8'), 'web1');
  assert.equal(found('cores=32'), 'web2');
  assert.equal(found('cores!=32'), 'web1 db1');
  assert.equal(found('ram>=256'), 'web2 db1', 'memory is in GiB');
  assert.equal(found('ram<0.1TiB'), 'web1');
});

test('the state is asked for by its word, its tone and its operation', () => {
  assert.equal(found('status:failed'), 'db1');
  assert.equal(found('status:ready'), 'web1 web2');
});

test('labels have keys of their own', () => {
  assert.equal(found('label-row:2'), 'web2');
});

test('what is wrong or not finished asks for nothing, and is told', () => {
  assert.equal(found('colour:red web'), 'web1 web2');
  assert.equal(found('zone: web'), 'web1 web2');
  const faults = (text: string) => parse(text).map((term) => fault(MACHINES, term));
  assert.deepEqual(faults('colour:red zone>1 cores:many web'), [
    'there is no colour to filter by',
    'zone is no number',
    'cores is a number, and many is none',
    undefined,
  ]);
});

test('no text breaks the parser, and its terms cover it', () => {
  const signs = ['(', ')', '!', '=', ',', '"', ' ', ':', '<', '>', 'zone', 'a', '\u{1F600}', '\n'];
  let seed = 7;
  const next = (most: number) => (seed = (seed * 48271) % 2147483647) % most;
  for (let round = 0; round < 3000; round += 1) {
    const text = Array.from({ length: next(14) }, () => signs[next(signs.length)]).join('');
    let at = 0;
    for (const term of parse(text)) {
      assert.ok(term.start >= at && term.end > term.start, JSON.stringify(text));
      assert.equal(text.slice(at, term.start).trim(), '', JSON.stringify(text));
      at = term.end;
    }
    found(text);
  }
});

test('the term that excludes most is named, and can be taken out', () => {
  const text = 'zone:row-1 cores>=100';
  const worst = strictest(parse(text), MACHINES, ALL);
  assert.equal(worst?.matches, 2);
  assert.equal(without(text, worst!.term), 'zone:row-1');
});

test('keys are completed, then values that exist, with their counts', () => {
  const labels = (text: string) => complete(text, text.length, MACHINES, ALL).map((it) => it.label);
  assert.deepEqual(labels('zo'), ['zone']);
  assert.deepEqual(labels('web mem'), ['ram']);
  assert.deepEqual(labels('zone:'), ['row-1', 'row-2']);
  assert.deepEqual(labels('zone:(row-1,row-2'), ['row-2']);
  const [first] = complete('zone:ro', 7, MACHINES, ALL);
  assert.deepEqual({ text: first?.text, caret: first?.caret, says: first?.says }, { text: 'zone:row-1 ', caret: 11, says: '2' });
  assert.equal(complete('cor', 3, MACHINES, ALL)[0]?.text, 'cores>=');
});

test('ten thousand rows are filtered within a frame or few', () => {
  const many = Array.from({ length: 10_000 }, (_, at) => machine(`m${at}`, `row-${at % 40}`, at % 128, 64));
  const ready = matcher(parse('row'), MACHINES);
  many.forEach(ready);
  const begun = performance.now();
  const count = many.filter(matcher(parse('zone:(=row-7) cores>=16 m1'), MACHINES)).length;
  const took = performance.now() - begun;
  assert.ok(count > 0 && took < 200, `${count} rows in ${took} ms`);
});

/** The region answers the same: api/src/filter/tests.rs. */
test('every case of the region is answered as there', () => {
  const fields = { Subnet: ['vlan', 'cidr', 'gateway', 'dns_servers'], Rack: [], Machine: [] };
  // The region has the whole status of a machine.
  const machines = { ...MACHINES, lacks: undefined } as unknown as Rows<BasaltObject>;
  for (const { kind, where, names, wrong, at } of vectors.found as { kind: keyof typeof fields; where: string; names?: string; wrong?: string; at?: number }[]) {
    const rows = kind === 'Machine' ? machines : rowsOf(fields[kind].map((name) => ({ name, says: '' })));
    const terms = parse(where);
    const [first] = terms.flatMap((term) => (fault(rows, term) ? [{ wrong: fault(rows, term), at: term.start + 1 }] : []));
    assert.deepEqual(first, wrong === undefined ? undefined : { wrong, at }, where);
    if (names === undefined) continue;
    const all = vectors.objects[kind] as unknown as BasaltObject[];
    assert.equal(all.filter(matcher(terms, rows)).map((it) => it.metadata.name).join(' '), names, `${kind} ${where}`);
  }
});

test('rows of machines say which fields they do not have', () => {
  const faults = (text: string) => parse(text).map((term) => fault(MACHINES, term) !== undefined);
  assert.deepEqual(faults('status.inventory.disks.*.model:x status.power.state:on spec.bmc.driver:ipmi'), [true, false, false]);
});
