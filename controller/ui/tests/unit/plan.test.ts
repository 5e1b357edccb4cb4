import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { Refused } from '../../src/api/client';
import { type Outcome, alikeOf, carryOut, countsOf, retry, toldOf, tryOut, verbOf } from '../../src/parts/plan/proposal';

const real = globalThis.fetch;
afterEach(() => {
  globalThis.fetch = real;
});

interface Sent {
  path: string;
  body: { names: string[]; name?: string };
  key?: string;
}

/** Answers each request by a function, and keeps what was sent. */
function region(answer: (sent: Sent, turn: number) => { status?: number; body: unknown } | undefined): Sent[] {
  const all: Sent[] = [];
  globalThis.fetch = ((path: string, { body, headers }: RequestInit) => {
    const sent = { path, body: JSON.parse(String(body)) as Sent['body'], key: new Headers(headers).get('idempotency-key') ?? undefined };
    all.push(sent);
    const answered = answer(sent, all.length);
    if (!answered) return Promise.reject(new TypeError('Failed to fetch'));
    const { status = 200, body: said } = answered;
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

const tried = { summary: '', outcomes: machines.map((name) => ({ name, of: 'Machine', action: '' })), power: [], disks: [], advisories: [], key: 'k' };
const fates = (outcomes: Outcome[]) => alikeOf(outcomes).map(({ first, names }) => [toldOf(first), names.length]);

test('a request without an answer ends the row: its machines may have been asked, and later ones were not', async () => {
  for (const [end, reason] of [
    [{ status: 503, body: { detail: 'the region is stopping' } }, 'the region is stopping'],
    [undefined, 'the region does not answer POST /api/v1/operations; check the network, and that it runs'],
  ] as const) {
    const sent = region((it, turn) => (turn === 2 ? end : answers(it)));
    const became = await carryOut(wish, tried, false);
    assert.equal(sent.length, 2);
    assert.deepEqual(fates(became).slice(-2), [[`no answer: it may have been asked (${reason})`, 1000], [`not asked (${reason})`, 500]]);
    assert.equal(countsOf(became), '1000 of 2500 were asked; 1000 may have been asked; 500 were not asked');
  }
});

test('the first request without an answer is told as such, and a refused one asked for nothing', async () => {
  region(() => undefined);
  assert.deepEqual((await carryOut(wish, tried, false)).map(({ missed }) => missed).filter((_, at) => [0, 999, 1000].includes(at)), ['unknown', 'unknown', 'not asked']);
  region(() => ({ status: 403, body: { detail: 'only an operator may' } }));
  await assert.rejects(carryOut(wish, tried, false), /only an operator may/);
  region((it, turn) => (turn === 2 ? { status: 429, body: { detail: 'too many requests' } } : answers(it)));
  assert.deepEqual(fates(await carryOut(wish, tried, false)).slice(-1), [['not asked (too many requests)', 1500]]);
});

test('a plan has one key: all its requests and tries carry it, and another plan has another', async () => {
  const sent = region((it, turn) => (turn === 5 ? undefined : answers(it)));
  const plan = await tryOut(wish, false);
  const became = await carryOut(wish, plan, false);
  const whole = await retry(wish, plan, became, false);
  assert.deepEqual(whole.filter(({ refused }) => refused), []);
  assert.equal(whole.length, 2500);
  await carryOut(wish, plan, false);
  assert.deepEqual(sent.slice(0, 3).map(({ key }) => key), [undefined, undefined, undefined], 'a dry run has none');
  assert.ok(plan.key);
  assert.deepEqual(sent.slice(3).map(({ key, body }) => [key, body.names[0]]), ['web0', 'web1000', 'web1000', 'web2000', 'web0', 'web1000', 'web2000'].map((first) => [plan.key, first]));
  assert.notEqual((await tryOut(wish, false)).key, plan.key);
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
