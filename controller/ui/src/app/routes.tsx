import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect } from '@tanstack/react-router';
import { Failure, Loading, Notice } from '../parts/Notice';
import { Machines } from '../pages/Machines';
import { Shell } from './Shell';

/** The view of a list: its filter, its order, its columns, its groups. */
export interface View {
  q?: string;
  sort?: string;
  cols?: string;
  group?: string;
}

function view(search: Record<string, unknown>): View {
  const text = (name: keyof View) => (typeof search[name] === 'string' && search[name] ? search[name] : undefined);
  return { q: text('q'), sort: text('sort'), cols: text('cols'), group: text('group') };
}

/** The lines of a log that are shown: a time or a boot (`1h`, `boot-0`), and a text. */
export interface LogView {
  of?: string;
  grep?: string;
}

function logView(search: Record<string, unknown>): LogView {
  const text = (name: keyof LogView) => (typeof search[name] === 'string' && search[name] ? search[name] : undefined);
  return { of: text('of'), grep: text('grep') };
}

/** The part of an object's page that is shown, and the state of the deliveries among them. */
export interface ObjectView {
  tab?: string;
  state?: string;
}

function objectView(search: Record<string, unknown>): ObjectView {
  const text = (name: keyof ObjectView) => (typeof search[name] === 'string' && search[name] ? search[name] : undefined);
  return { tab: text('tab'), state: text('state') };
}

/** The operation, the finding or the decision that is open. */
export interface OpenView {
  of?: string;
}

const openView = ({ of }: Record<string, unknown>): OpenView => ({ of: typeof of === 'string' && of ? of : undefined });

const more = () => import('../pages/more');
const page = (name: Exclude<keyof Awaited<ReturnType<typeof more>>, 'Declare'>) => lazyRouteComponent(more, name);

const root = createRootRoute({
  component: Shell,
  notFoundComponent: () => <Notice title="There is no such page." />,
  errorComponent: ({ error }) => <Failure error={error} again={() => location.reload()} />,
});

const home = createRoute({
  getParentRoute: () => root,
  path: '/',
  beforeLoad: () => {
    throw redirect({ to: '/machines' });
  },
});

const machines = createRoute({ getParentRoute: () => root, path: '/machines', validateSearch: view, component: Machines });

const machine = createRoute({
  getParentRoute: () => root,
  path: '/machines/$name',
  component: page('Machine'),
});

const TABS = ['Overview', 'Timeline', 'Operations', 'Boots', 'Logs', 'Hardware', 'Network', 'Storage', 'Tests', 'Configuration', 'Decisions'] as const;
export const MACHINE_TABS = TABS.map((title) => ({ title, path: title === 'Overview' ? '' : title.toLowerCase() }));

const SEARCHES: Partial<Record<(typeof TABS)[number], (search: Record<string, unknown>) => object>> = { Logs: logView, Operations: openView, Tests: openView, Decisions: openView };

const tabs = MACHINE_TABS.map(({ title, path }) =>
  createRoute({
    getParentRoute: () => machine,
    path: path || '/',
    validateSearch: SEARCHES[title],
    component: page(title),
  }),
);

const boots = createRoute({
  getParentRoute: () => root,
  path: '/boots',
  validateSearch: ({ of }: Record<string, unknown>): { of?: string } => ({ of: typeof of === 'string' && of ? of : undefined }),
  component: page('BootsOf'),
});

const audit = createRoute({
  getParentRoute: () => root,
  path: '/audit',
  validateSearch: ({ object }: Record<string, unknown>): { object?: string } => ({ object: typeof object === 'string' && object ? object : undefined }),
  component: page('Audit'),
});

const events = createRoute({
  getParentRoute: () => root,
  path: '/events',
  validateSearch: ({ kind }: Record<string, unknown>): { kind?: string } => ({ kind: typeof kind === 'string' && kind ? kind : undefined }),
  component: page('Events'),
});

const objects = createRoute({
  getParentRoute: () => root,
  path: '/$plural',
  validateSearch: view,
  component: page('List'),
});

const object = createRoute({
  getParentRoute: () => root,
  path: '/$plural/$name',
  validateSearch: objectView,
  component: page('Detail'),
});

const tree = root.addChildren([home, machines, machine.addChildren(tabs), boots, audit, events, objects, object]);

export const router = createRouter({
  routeTree: tree,
  basepath: '/ui',
  defaultPendingComponent: Loading,
  defaultPreload: 'intent',
  notFoundMode: 'root',
  defaultNotFoundComponent: () => <Notice title="There is no such page." />,
  defaultErrorComponent: ({ error }) => <Failure error={error} />,
  scrollRestoration: false,
});

