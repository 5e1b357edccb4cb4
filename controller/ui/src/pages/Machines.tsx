import { Link, useNavigate } from '@tanstack/react-router';
import { useCallback, useDeferredValue, useMemo, useState } from 'react';
import { reload, useList } from '../api/live';
import type { BasaltObject, Machine } from '../api/object';
import { pageOf } from '../app/sections';
import { useView } from '../app/view';
import { useWrites } from '../app/who';
import { FilterBox } from '../filter/FilterBox';
import { matcher, parse } from '../filter/language';
import { MACHINES, addresses } from '../filter/machines';
import { Failure, Loading } from '../parts/Notice';
import { StateLine } from '../parts/State';
import { type State, type Tone, stateOf } from '../parts/state';
import { type Column, Table } from '../parts/Table';
import { bytes } from '../parts/size';
import { Bulk } from './Bulk';
import { Choice } from './Choice';
import { DeclareButton } from './DeclareButton';
import { FirstRun, useFirstRun } from './FirstRun';
import { NoMatch } from './NoMatch';
import { Views } from './Views';
import css from './List.module.css';

const states = new WeakMap<object, State>();

/** The state, once for each version of a machine. */
export function known(machine: Machine): State {
  const found = states.get(machine) ?? stateOf(machine as unknown as BasaltObject);
  states.set(machine, found);
  return found;
}

/** What needs somebody comes first. */
const RANK: Record<Tone, number> = { bad: 0, wait: 1, busy: 2, ok: 3, off: 4 };

const COLUMNS: Column<Machine>[] = [
  {
    key: 'name',
    title: 'name',
    width: 160,
    by: ({ metadata }) => metadata.name,
    cell: ({ metadata }) => (
      <Link to={pageOf('machines', metadata.name)} className="mono" tabIndex={-1} preload={false}>
        {metadata.name}
      </Link>
    ),
  },
  { key: 'state', title: 'state', width: 280, grows: true, by: (it) => RANK[known(it).tone], cell: (it) => <StateLine state={known(it)} /> },
  { key: 'power', title: 'power', width: 64, by: ({ status }) => status.power?.state, cell: ({ status }) => <span className="muted">{status.power?.state ?? ''}</span> },
  { key: 'address', title: 'address', width: 112, by: (it) => addresses(it)[0], cell: (it) => <span className="mono">{addresses(it)[0] ?? ''}</span> },
  { key: 'zone', title: 'zone', width: 88, by: ({ spec }) => spec.zone ?? 'default', cell: ({ spec }) => spec.zone ?? <span className="faint">default</span> },
  { key: 'pool', title: 'pool', width: 88, by: ({ spec }) => spec.pool ?? 'default', cell: ({ spec }) => spec.pool ?? <span className="faint">default</span> },
  { key: 'deployment', title: 'deployment', width: 112, by: ({ status }) => status.deployment ?? undefined, cell: ({ status }) => status.deployment ?? '' },
  { key: 'cores', title: 'cores', width: 56, end: true, by: ({ status }) => status.inventory?.cpu?.cores ?? undefined, cell: ({ status }) => status.inventory?.cpu?.cores ?? '' },
  {
    key: 'ram',
    title: 'memory',
    width: 72,
    end: true,
    by: ({ status }) => status.inventory?.memory_bytes ?? undefined,
    cell: ({ status }) => (status.inventory?.memory_bytes ? bytes(status.inventory.memory_bytes) : ''),
  },
  { key: 'tags', title: 'tags', width: 160, by: ({ status }) => status.tags?.join(' ') || undefined, cell: ({ status }) => <span className="muted">{status.tags?.join(', ')}</span> },
  { key: 'mac', title: 'MAC', width: 140, by: ({ spec }) => spec.boot_macs?.[0], cell: ({ spec }) => <span className="mono">{spec.boot_macs?.[0] ?? ''}</span> },
  { key: 'bmc', title: 'BMC', width: 112, by: ({ spec }) => spec.bmc?.address ?? undefined, cell: ({ spec }) => <span className="mono">{spec.bmc?.address ?? ''}</span> },
  { key: 'model', title: 'model', width: 160, by: ({ status }) => status.inventory?.dmi?.product ?? undefined, cell: ({ status }) => status.inventory?.dmi?.product ?? '' },
  { key: 'manager', title: 'manager', width: 88, by: ({ metadata }) => metadata.manager, cell: ({ metadata }) => <span className="muted">{metadata.manager ?? ''}</span> },
];

/** What the list can be grouped by. */
const GROUPS: Record<string, { title: string; of: (machine: Machine) => string }> = {
  zone: { title: 'zone', of: ({ spec }) => spec.zone ?? 'default' },
  pool: { title: 'pool', of: ({ spec }) => spec.pool ?? 'default' },
  status: { title: 'state', of: (machine) => known(machine).word },
};

const USUAL = 'name,state,power,address,zone,pool,deployment,cores,ram';

export function Machines() {
  const navigate = useNavigate();
  const { view, text, setText, change } = useView();
  const { objects, phase, error } = useList<Machine>('Machine', 'machines');
  const { may } = useWrites();
  const [isFirstRun, leave] = useFirstRun(objects, phase === 'ready');
  const [selected, select] = useState<ReadonlySet<string>>(new Set());
  const asked = useDeferredValue(text);
  const matches = useMemo(() => objects.filter(matcher(parse(asked), MACHINES)), [objects, asked]);
  const open = useCallback((machine: Machine) => void navigate({ to: pageOf('machines', machine.metadata.name) }), [navigate]);
  const release = (machines: readonly Machine[]) => {
    const gone = new Set(machines.map(({ metadata }) => metadata.uid));
    select((selected) => new Set([...selected].filter((uid) => !gone.has(uid))));
  };
  const chosen = (view.cols ?? USUAL).split(',');
  const columns = COLUMNS.filter(({ key }) => chosen.includes(key));

  if (phase === 'loading') return <Loading />;
  if (phase === 'failed') return <Failure error={error} again={() => reload('Machine', 'machines')} />;
  if (isFirstRun) return <FirstRun machines={objects} leave={leave} />;
  return (
    <>
      <h1 className="unseen">Machines</h1>
      <div className={css.bar}>
        <FilterBox text={text} change={setText} rows={MACHINES} all={objects} />
        <select aria-label="Groups" value={GROUPS[view.group ?? ''] ? view.group : ''} onChange={({ target }) => change({ group: target.value || undefined })}>
          <option value="">Not grouped</option>
          {Object.entries(GROUPS).map(([key, { title }]) => (
            <option key={key} value={key}>
              By {title}
            </option>
          ))}
        </select>
        <Choice
          title="Columns"
          all={COLUMNS.map(({ key, title }) => ({ key, title }))}
          chosen={chosen}
          change={(keys) => change({ cols: keys.join(',') === USUAL ? undefined : keys.join(',') })}
        />
        <Views plural="machines" view={view} show={(kept) => change({ q: undefined, sort: undefined, cols: undefined, group: undefined, ...kept })} />
        <DeclareButton plural="machines" />
      </div>
      <Answer matches={matches} all={objects} narrow={setText} isPartial={phase === 'partial'} />
      {matches.length === 0 ? (
        <NoMatch text={asked} rows={MACHINES} all={objects} change={setText} />
      ) : (
        <Table
          label="Machines"
          rows={matches}
          columns={columns}
          sort={view.sort ?? 'name'}
          changeSort={(sort) => change({ sort: sort === 'name' ? undefined : sort })}
          of={asked}
          open={open}
          group={GROUPS[view.group ?? '']?.of}
          selected={may ? selected : undefined}
          select={may ? select : undefined}
        />
      )}
      {may && selected.size > 0 && (
        <Bulk machines={objects.filter(({ metadata }) => selected.has(metadata.uid))} release={release} />
      )}
    </>
  );
}

/** The answer to what brought the reader here, before the rows. */
function Answer({ matches, all, narrow, isPartial }: { matches: readonly Machine[]; all: readonly Machine[]; narrow: (text: string) => void; isPartial: boolean }) {
  const counts = useMemo(() => {
    const counts: Record<Tone, number> = { ok: 0, busy: 0, wait: 0, bad: 0, off: 0 };
    for (const machine of matches) counts[known(machine).tone] += 1;
    return counts;
  }, [matches]);
  const part = (count: number, one: string, many: string, filter: string) =>
    count > 0 && (
      <>
        {' · '}
        <button type="button" className={css.part} onClick={() => narrow(filter)}>
          {count} {count === 1 ? one : many}
        </button>
      </>
    );
  const every = matches.length === all.length;
  return (
    <p className={css.answer} role="status">
      <b>{every ? `${all.length} ${all.length === 1 ? 'machine' : 'machines'}` : `${matches.length} of ${all.length}`}</b>
      {isPartial && <span className="muted"> so far; the others are being read</span>}
      {part(counts.wait, 'waits for a person', 'wait for a person', 'status:waiting')}
      {part(counts.bad, 'has failed', 'have failed', 'status:failed')}
      {part(counts.busy, 'works', 'work', 'status:working')}
      {matches.length > 0 && counts.wait + counts.bad + counts.busy === 0 && <span className="muted"> · nothing waits, nothing has failed</span>}
    </p>
  );
}
