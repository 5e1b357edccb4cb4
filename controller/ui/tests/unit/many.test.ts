import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { Refused } from '../../src/api/client';
import { type Edit, PART, applyEdit, blamedOf, partsOf, release, tryEdit, tryRelease } from '../../src/parts/plan/many';

interface Asked {
  method: string;
  path: string;
  body?: { documents: { metadata: { name: string } }[]; digest?: string };
  headers?: Record<string, string>;
}

const real = globalThis.fetch;
let asked: Asked[] = [];
afterEach(() => {
  globalThis.fetch = real;
  asked = [];
});

/** A region of these machines, which answers so. `undefined`: there is no answer. */
function region(machines: { name: string; deployment?: string }[], answer: (asked: Asked) => { status?: number; body: unknown } | undefined) {
  globalThis.fetch = ((path: string, init: { method: string; body?: string; headers?: Record<string, string> }) => {
    const one = { method: init.method, path, body: init.body === undefined ? undefined : JSON.parse(init.body), headers: init.headers };
    asked.push(one);
    if (path.startsWith('/api/v1/machines?')) {
      const wanted = decodeURIComponent(path).match(/=([\w-]+)(?=[,)])/g)?.map((name) => name.slice(1)) ?? [];
      const items = machines.filter(({ name }) => wanted.includes(name)).map(({ name, deployment }) => ({ kind: 'Machine', metadata: { name }, spec: {}, status: { deployment } }));
      return Promise.resolve(new Response(JSON.stringify({ items })));
    }
    const said = answer(one);
    return said ? Promise.resolve(new Response(JSON.stringify(said.body), { status: said.status ?? 200 })) : Promise.reject(new TypeError('Failed to fetch'));
  }) as typeof fetch;
}

const namesOf = ({ body }: Asked) => body?.documents.map(({ metadata }) => metadata.name) ?? [];
const taken = (one: Asked, action = 'updated') => ({
  body: { summary: '', digest: `digest of ${namesOf(one).join(' ')}`, results: namesOf(one).map((name) => ({ kind: 'Machine', name, action })), advisories: [] },
});
const edit = (machines: string[], more: Partial<Edit> = {}): Edit => ({
  kind: 'edit',
  verb: 'Tag',
  said: 'tagged',
  machines,
  document: ({ metadata: { name } }) => (name === 'never' ? 'it cannot' : { kind: 'Machine', metadata: { name }, spec: {} }),
  ...more,
});
const told = (outcomes: { name: string; action: string; refused?: unknown; missed?: string }[]) =>
  outcomes.map(({ name, action, refused, missed }) => `${name} ${missed ?? (refused ? (refused as Error).message : action)}`);

test('a refused document leaves the plan with its reason, and the others stay in it', async () => {
  region([{ name: 'a' }, { name: 'b' }, { name: 'never' }], (one) => {
    const at = namesOf(one).indexOf('b');
    if (at < 0) return taken(one);
    return { status: 409, body: { detail: 'one is managed', errors: [{ pointer: `/documents/${at}/metadata`, code: 'rule', message: 'Machine "b" is managed by "terraform"' }] } };
  });
  const { outcomes, parts } = await tryEdit(edit(['a', 'b', 'never', 'gone']), false);
  assert.deepEqual(told(outcomes), ['a tagged', 'b Machine "b" is managed by "terraform"', 'never it cannot', 'gone there is no such machine']);
  assert.deepEqual(parts.map(({ machines, digest }) => [machines, digest]), [[['a'], 'digest of a']]);
});

test('a refusal that names no document is found by halves', async () => {
  const names = ['a', 'b', 'c', 'd', 'e'];
  region(names.map((name) => ({ name })), (one) => (namesOf(one).includes('d') ? { status: 409, body: { detail: 'd is locked' } } : taken(one)));
  const { outcomes, parts } = await tryEdit(edit(names), false);
  assert.deepEqual(told(outcomes), ['a tagged', 'b tagged', 'c tagged', 'd d is locked', 'e tagged']);
  assert.deepEqual(parts.flatMap(({ machines }) => machines), ['a', 'b', 'c', 'e']);
});

test('an object that is there already is not changed by what makes new ones', async () => {
  region([{ name: 'a' }, { name: 'b' }], (one) => {
    const said = taken(one, 'created');
    for (const result of said.body.results) if (result.name === 'b') result.action = 'updated';
    return said;
  });
  const { outcomes, parts } = await tryEdit(edit(['a', 'b'], { creates: true }), false);
  assert.deepEqual(told(outcomes), ['a tagged', 'b Machine b is there already']);
  assert.deepEqual(parts.map(({ machines }) => machines), [['a']]);
});

test('many machines are tried and applied in parts, each by its digest, with progress', async () => {
  const names = Array.from({ length: PART + 2 }, (_, at) => `m${at}`);
  region(names.map((name) => ({ name })), (one) => taken(one));
  const progress: number[] = [];
  const { parts } = await tryEdit(edit(names), false, (answered) => progress.push(answered));
  assert.deepEqual(progress, [PART, PART + 2]);
  const became = await applyEdit(edit(names), parts, false);
  assert.equal(became.length, PART + 2);
  const applied = asked.filter(({ path }) => path === '/api/v1/apply');
  assert.deepEqual(applied.map(({ body }) => body?.digest), parts.map(({ digest }) => digest));
});

test('a plan that has changed before anything was done is made again; later it is one result', async () => {
  const parts = ['a', 'b'].map((name) => ({ documents: [{ kind: 'Machine', metadata: { name }, spec: {} }], machines: [name], digest: name }));
  let stale = 'a';
  region([], (one) => (namesOf(one).includes(stale) ? { status: 409, body: { code: 'stale_plan', detail: 'the plan has changed' } } : taken(one)));
  await assert.rejects(applyEdit(edit(['a', 'b']), parts, false), Refused);
  stale = 'b';
  assert.deepEqual(told(await applyEdit(edit(['a', 'b']), parts, false)), ['a tagged', 'b the plan has changed']);
});

test('without an answer nothing more is sent, and another try asks first what was done', async () => {
  const parts = ['a', 'b', 'c'].map((name) => ({ documents: [{ kind: 'Machine', metadata: { name }, spec: {} }], machines: [name], digest: name }));
  region([], (one) => (namesOf(one).includes('b') ? undefined : taken(one)));
  assert.deepEqual(told(await applyEdit(edit(['a', 'b', 'c']), parts, false)), ['a tagged', 'b unknown', 'c not asked']);
  asked = [];
  // It was applied before the answer was lost.
  region([], (one) => taken(one, namesOf(one).includes('b') ? 'unchanged' : 'updated'));
  assert.deepEqual(told(await applyEdit(edit(['a', 'b', 'c']), parts.slice(1), false, undefined, true)), ['b tagged', 'c tagged']);
  assert.deepEqual(asked.filter(({ path }) => path === '/api/v1/apply').map(namesOf), [['c']]);
});

test('a release deletes the deployments that were planned, at their generations', async () => {
  const machines = [{ name: 'a', deployment: 'shop' }, { name: 'b' }, { name: 'c', deployment: 'kept' }, { name: 'd', deployment: 'left' }];
  region(machines, ({ path }) => {
    if (path.includes('kept')) return { status: 409, body: { detail: 'it is protected' } };
    if (!path.includes('dry_run') && path.includes('left')) return { status: 404, body: { detail: 'no such deployment' } };
    return { body: { object: { metadata: { generation: 7 } }, plan: { summary: '', steps: [], waits: [], changes: [], effect: 'none' }, advisories: [] } };
  });
  const { outcomes, held } = await tryRelease(['a', 'b', 'c', 'd'], false);
  assert.deepEqual(told(outcomes), ['a released', 'b it has no deployment', 'c it is protected', 'd released']);
  asked = [];
  assert.deepEqual(told(await release(held, false)), ['a released', 'd released'], 'one that is gone was released');
  assert.deepEqual(asked.map(({ method, path, headers }) => [method, path, headers?.['if-match']]), [
    ['DELETE', '/api/v1/deployments/shop', '"7"'],
    ['DELETE', '/api/v1/deployments/left', '"7"'],
  ]);
});

test('errors blame the documents that their pointers name', () => {
  const error = (pointer: string, message: string) => ({ pointer, message, code: 'rule' }) as never;
  const blamed = blamedOf([error('/documents/1/spec/zone', 'no zone'), error('/documents/1', 'twice'), error('/prune', 'no'), error('/documents/12/spec', 'beyond')], 2);
  assert.deepEqual([...blamed], [[1, 'no zone; twice']]);
  assert.deepEqual(partsOf([1, 2, 3], 2), [[1, 2], [3]]);
});
