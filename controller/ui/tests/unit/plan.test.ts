import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { Refused } from '../../src/api/client';
import { type Outcome, alikeOf, carryOut, tryOut, verbOf } from '../../src/parts/plan/proposal';

const real = globalThis.fetch;
afterEach(() => {
  globalThis.fetch = real;
});

interface Sent {
  path: string;
  body: { names: string[]; name?: string };
}

/** Answers each request by a function, and keeps what was sent. */
function region(answer: (sent: Sent, turn: number) => { status?: number; body: unknown }): Sent[] {
  const all: Sent[] = [];
  globalThis.fetch = ((path: string, { body }: RequestInit) => {
    const sent = { path, body: JSON.parse(String(body)) as Sent['body'] };
    all.push(sent);
    const { status = 200, body: said } = answer(sent, all.length);
    return Promise.resolve(new Response(JSON.stringify(said), { status }));
  }) as typeof fetch;
  return all;
}

const plan = (summary: string) => ({ summary, changes: [], effect: 'none', steps: [], waits: [] });
const machines = Array.from({ length: 2_500 }, (_, at) => `web${at}`);
const answers = ({ body }: Sent) => ({ body: { items: body.names.map((machine) => ({ machine, plan: plan(`Machine "${machine}" is off.`) })) } });
const wish = { kind: 'operation' as const, wish: { verb: 'power_off' as const }, machines };

test('thousands of machines are asked in requests that the region takes, and each has its outcome', async () => {
  const sent = region(answers);
  const told: number[] = [];
  const tried = await tryOut(wish, false, (answered) => told.push(answered));
  assert.deepEqual(sent.map(({ path, body }) => [path, body.names.length]), [1000, 1000, 500].map((many) => ['/api/v1/operations?dry_run=true', many]));
  assert.deepEqual(told, [1000, 2000, 2500]);
  assert.equal(verbOf(wish, tried), 'Switch off 2500 machines');
});

test('a request that fails ends the row: what was answered before it stays, the others were not asked', async () => {
  const sent = region((it, turn) => (turn === 2 ? { status: 503, body: { detail: 'the region is stopping' } } : answers(it)));
  const tried = { summary: '', outcomes: machines.map((name) => ({ name, of: 'Machine', action: '' })), power: [], disks: [], advisories: [] };
  const became = await carryOut(wish, tried, false);
  assert.deepEqual([became.length, sent.length, became.filter(({ refused }) => refused).length], [2500, 2, 1500]);
  assert.equal(String((became[2499]?.refused as Error).message), 'the region is stopping');
});

test('outcomes that differ in the name alone are one group, and others are not', () => {
  const refused = (name: string, detail: string): Outcome => ({ name, of: 'Machine', action: '', refused: new Refused({ detail }) });
  const groups = alikeOf([
    refused('web1', 'Machine "web1" is retired'),
    refused('web2', 'Machine "web2" is broken'),
    refused('web3', 'Machine "web3" is retired'),
    { name: 'web4', of: 'Machine', action: 'done', plan: plan('Machine "web4" is off.') as never },
    { name: 'web5', of: 'Machine', action: 'done', plan: plan('Machine "web5" is off.') as never },
    { name: 'web6', of: 'Machine', action: 'done', plan: { ...plan('Machine "web6" is off.'), steps: [{ message: 'cut the power', power: true }] } as never },
  ]);
  assert.deepEqual(groups.map(({ names }) => names), [['web1', 'web3'], ['web2'], ['web4', 'web5'], ['web6']]);
});

test('a request is tried at its path, and its answer is handed on', async () => {
  const sent = region((_, turn) => ({ body: turn === 1 ? { object: {}, plan: plan('Zone "a" will be called "b".'), advisories: [] } : { kind: 'Zone' } }));
  const rename = { kind: 'request' as const, of: 'Zone', plural: 'zones', name: 'a', at: 'rename' as const, body: { name: 'b' }, verb: 'Rename a' };
  const tried = await tryOut(rename, true);
  assert.deepEqual([tried.summary, verbOf(rename, tried)], ['Zone "a" will be called "b".', 'Rename a']);
  const [became] = await carryOut(rename, tried, true);
  assert.deepEqual([became?.action, became?.answer], ['renamed', { kind: 'Zone' }]);
  assert.deepEqual(sent.map(({ path, body }) => [path, body.name]), [['/api/v1/zones/a/rename?dry_run=true&adopt=true', 'b'], ['/api/v1/zones/a/rename?adopt=true', 'b']]);
});
