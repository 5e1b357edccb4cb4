import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import type { FunctionComponent } from 'react';
import { openPage } from './dom';

const real = globalThis.fetch;
const page = openPage();
const WHO = { name: 'root', roles: [{ role: 'admin' }], scopes: [] };
/** Answers of the region by path. */
const answers = new Map<string, () => { status?: number; body: unknown } | undefined>();
let show: (at: string, shown: FunctionComponent) => Promise<{ again: () => void }>;
let end = () => {};

before(async () => {
  globalThis.FormData = class {
    get() {
      return '';
    }
  } as unknown as typeof FormData;
  globalThis.fetch = ((path: string) => {
    const said = (answers.get(path) ?? (() => ({ status: 404, body: { detail: `no ${path}` } })))();
    return said ? Promise.resolve(new Response(JSON.stringify(said.body), { status: said.status ?? 200 })) : Promise.reject(new TypeError('Failed to fetch'));
  }) as typeof fetch;
  const { createElement } = await import('react');
  const { createRoot } = await import('react-dom/client');
  const { QueryClient, QueryClientProvider } = await import('@tanstack/react-query');
  const { RouterProvider, createMemoryHistory, createRootRoute, createRoute, createRouter } = await import('@tanstack/react-router');
  const { Who } = await import('../../src/app/who');
  show = async (at, shown) => {
    const queries = new QueryClient({ defaultOptions: { queries: { retry: false, gcTime: Infinity } } });
    const top = createRootRoute();
    const routes = ['/$plural', '/$plural/$name'].map((path) => createRoute({ getParentRoute: () => top, path: path as '/$plural', component: shown }));
    const router = createRouter({ routeTree: top.addChildren(routes), history: createMemoryHistory({ initialEntries: [at] }), isServer: false });
    await router.load();
    const root = createRoot(page.root as unknown as Element);
    const routed = createElement(RouterProvider, { router } as never);
    root.render(createElement(QueryClientProvider, { client: queries }, createElement(Who.Provider, { value: WHO as never }, routed)));
    end = () => root.unmount();
    return { again: () => void queries.invalidateQueries() };
  };
});
afterEach(() => end());
after(() => {
  globalThis.fetch = real;
});

const object = (kind: string, name: string) => ({ kind, metadata: { name, uid: name, generation: 1, labels: {}, created_at: '2026-01-31T12:00:00Z', updated_at: '2026-01-31T12:00:00Z' }, spec: {}, status: {} });

test('a join token stays while the first rack enrols', async () => {
  const { List } = await import('../../src/pages/objects/List');
  const { store } = await import('../../src/api/live');
  answers.set('/api/v1/racks?limit=200', () => ({ body: { items: [], position: '1-1' } }));
  answers.set('/api/v1/join_tokens', () => ({ body: { token: 'SECRET-JOIN' } }));
  await show('/racks', List);
  await page.shows('There are no racks.');
  page.press('Join token…');
  await page.shows('Make a token');
  page.submit();
  await page.shows('SECRET-JOIN');
  store('Rack', 'racks').hear({ type: 'put', object: object('Rack', 'r1'), position: '1-2' } as never);
  await page.shows('There are no racks.', false);
  assert.ok(page.root.textContent.includes('SECRET-JOIN'));
});

test('a page stays with its failure when a later read fails, and ends when the object is gone', async () => {
  const { Detail } = await import('../../src/pages/objects/Detail');
  const at = '/api/v1/api_tokens/ci';
  answers.set(at, () => ({ body: object('ApiToken', 'ci') }));
  answers.set(`${at}/issue?dry_run=true`, () => ({ body: { object: {}, advisories: [], plan: { summary: 'It gets a text.', changes: [], effect: 'none', steps: [], waits: [] } } }));
  answers.set(`${at}/issue`, () => ({ body: { token: 'SECRET-TEXT' } }));
  const { again } = await show('/api_tokens/ci', Detail);
  await page.shows('Issue…');
  page.press('Issue…');
  await page.shows('It gets a text.');
  page.press('Issue a text');
  await page.shows('SECRET-TEXT');
  answers.set(at, () => ({ status: 503, body: { detail: 'the region is stopping' } }));
  again();
  await page.shows('the region is stopping');
  assert.ok(page.root.textContent.includes('SECRET-TEXT'));
  answers.set(at, () => ({ status: 404, body: { detail: 'there is no ApiToken "ci"' } }));
  again();
  await page.shows('there is no ApiToken');
  assert.ok(!page.root.textContent.includes('Issue…'));
});

test('failures of a selection stay in view until they are closed, and the machines that failed stay selected', async () => {
  const { Machines } = await import('../../src/pages/Machines');
  const { MACHINE_FIELDS } = await import('../../src/api/stream');
  const names = ['web1', 'web2', 'web3'];
  const plan = { summary: 'It is off.', changes: [], effect: 'none', steps: [], waits: [] };
  answers.set(`/api/v1/machines?limit=200&fields=${MACHINE_FIELDS}`, () => ({ body: { items: names.map((name) => object('Machine', name)), position: '1-1' } }));
  answers.set('/api/v1/operations?dry_run=true', () => ({ body: { items: names.map((machine) => ({ machine, plan })) } }));
  answers.set('/api/v1/operations', () => ({ body: { items: names.map((machine) => (machine === 'web2' ? { machine, problem: { status: 409, detail: 'a script runs' } } : { machine })) } }));
  await show('/machines', Machines);
  await page.shows('3 machines');
  page.check('Select all that match');
  await page.shows('3 selected');
  page.press('More…');
  await page.shows('Switch off…');
  page.press('Switch off…');
  await page.shows('Switch off 3 machines');
  page.press('Switch off 3 machines');
  await page.shows('a script runs');
  assert.ok(page.root.textContent.includes('3 selected'), 'nothing is let go while the results are shown');
  page.press('Close');
  await page.shows('a script runs', false);
  await page.shows('1 selected');
});

test('a script has no target while the machines are still being read', async () => {
  const { ScriptRun } = await import('../../src/pages/objects/ScriptRun');
  const { store } = await import('../../src/api/live');
  const { createElement } = await import('react');
  const machines = store('Machine', 'machines');
  machines.shown = 'partial';
  await show('/scripts/firmware', () => createElement(ScriptRun, { script: object('Script', 'firmware') as never }));
  await page.shows('Run…');
  page.press('Run…');
  await page.shows('Machines are still being read: 3 so far.');
  machines.shown = 'ready';
});
