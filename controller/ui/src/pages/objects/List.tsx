import { Link, useNavigate, useParams } from '@tanstack/react-router';
import { useCallback, useDeferredValue, useMemo } from 'react';
import { reload, useList } from '../../api/live';
import { type Kind, useKinds } from '../../api/kinds';
import { Refused } from '../../api/client';
import type { BasaltObject, Json } from '../../api/object';
import { type Place, pageOf, placeOf, sectionOf } from '../../app/sections';
import { useView } from '../../app/view';
import { FilterBox } from '../../filter/FilterBox';
import { matcher, parse } from '../../filter/language';
import { rowsOf, scalars } from '../../filter/objects';
import { Failure, Loading, Notice } from '../../parts/Notice';
import { StateLine } from '../../parts/State';
import { Time } from '../../parts/Time';
import { type Column, Table } from '../../parts/Table';
import { type Tone, spaced, stateOf } from '../../parts/state';
import { DeclareButton } from '../DeclareButton';
import { NoMatch } from '../NoMatch';
import { JoinToken } from './JoinToken';
import css from '../List.module.css';
import parts from '../../parts/parts.module.css';

export function List() {
  const { plural = '' } = useParams({ strict: false }) as { plural?: string };
  const place = placeOf(plural);
  if (!place) {
    return (
      <Notice title={`There is no page ${plural}.`}>
        <p>
          Ctrl-K finds pages, machines and MACs. Or go to <Link to="/machines">the machines</Link>.
        </p>
      </Notice>
    );
  }
  const siblings = sectionOf(plural)?.places ?? [];
  return (
    <>
      <h1 className="unseen">{place.title}</h1>
      {siblings.length > 1 && (
        <nav className={parts.tabs} aria-label="Kinds">
          {siblings.map((it) => (
            <Link key={it.plural} to="/$plural" params={{ plural: it.plural }} activeProps={{ 'aria-current': 'page' }}>
              {it.title}
            </Link>
          ))}
        </nav>
      )}
      <Objects key={plural} place={place} />
    </>
  );
}

function Objects({ place: { kind, plural, title } }: { place: Place }) {
  const navigate = useNavigate();
  const { view, text, setText, change } = useView();
  const { objects, phase, error } = useList(kind, plural);
  const described = useKinds()?.find((it) => it.plural === plural);
  const rows = useMemo(() => rowsOf(described?.spec ?? []), [described]);
  const columns = useMemo(() => columnsOf(plural, described, objects), [plural, described, objects]);
  const asked = useDeferredValue(text);
  const matches = useMemo(() => objects.filter(matcher(parse(asked), rows)), [objects, asked, rows]);
  const open = useCallback((object: BasaltObject) => void navigate({ to: pageOf(plural, object.metadata.name) }), [navigate, plural]);
  if (phase === 'loading') return <Loading />;
  if (phase === 'failed') {
    if (error instanceof Refused && error.status === 403) {
      return (
        <Notice title={`${title} are not yours to see.`}>
          <p>{error.message}. An admin can give the role: Access, Users.</p>
        </Notice>
      );
    }
    return <Failure error={error} again={() => reload(kind, plural)} />;
  }
  const isEmpty = objects.length === 0;
  const every = matches.length === objects.length;
  return (
    <>
      {/* The first rack may enrol while a join token is shown: its place is the same with and without rows. */}
      {(!isEmpty || plural === 'racks') && (
        <div className={css.bar}>
          {!isEmpty && <FilterBox text={text} change={setText} rows={rows} all={objects} />}
          {plural === 'racks' && <JoinToken />}
          {!isEmpty && described?.declarable && <DeclareButton plural={plural} />}
        </div>
      )}
      {!isEmpty && (
        <p className={css.answer} role="status">
          <b>{every ? `${objects.length} ${low(objects.length === 1 ? spaced(kind) : title)}` : `${matches.length} of ${objects.length}`}</b>
          {told(matches)} <span className="muted">· {SAYS[plural] ?? described?.says}</span>
        </p>
      )}
      {isEmpty ? (
        <Empty title={title} plural={plural} described={described} />
      ) : matches.length === 0 ? (
        <NoMatch text={asked} rows={rows} all={objects} change={setText} />
      ) : (
        <Table
          label={title}
          rows={matches}
          columns={columns}
          sort={view.sort ?? 'name'}
          changeSort={(sort) => change({ sort: sort === 'name' ? undefined : sort })}
          of={`${plural} ${asked}`}
          open={open}
        />
      )}
    </>
  );
}

/** How many of them wait for a person, and how many have failed. */
function told(objects: readonly BasaltObject[]): string {
  const count = (tone: Tone) => objects.filter((it) => stateOf(it).tone === tone).length;
  const [waiting, failed] = [count('wait'), count('bad')];
  return [waiting > 0 && ` · ${waiting} ${waiting === 1 ? 'waits' : 'wait'} for a person`, failed > 0 && ` · ${failed} ${failed === 1 ? 'has' : 'have'} failed`].filter(Boolean).join('');
}

/** The specs of these kinds are only what people add to what racks tell, so their words say little of the list. */
const SAYS: Record<string, string> = {
  discoveries: 'Hosts that racks saw, and that nobody has declared.',
  racks: 'Rack controllers, which serve networks with machines.',
};

/** Kinds whose objects come by themselves. */
const FOUND: Record<string, string> = {
  discoveries: 'Undeclared machines stand here once they boot on a network that a rack serves, and so do DHCP servers that are not of Basalt.',
  racks: 'A rack stands here once its controller has enrolled with a token.',
};

function Empty({ title, plural, described }: { title: string; plural: string; described: Kind | undefined }) {
  return (
    <Notice title={`There are no ${title.toLowerCase()}.`}>
      <p className="muted">{FOUND[plural] ?? described?.says}</p>
      {described?.declarable && !(plural in FOUND) && (
        <>
          <p>
            Declare one here, with <code>basalt apply -f FILE</code>, or with Terraform. <a href="/docs">The API</a> shows an example of each kind.
          </p>
          <DeclareButton plural={plural} />
        </>
      )}
    </Notice>
  );
}

/** Fields of the status that a row shows, where there are any. */
const STATUS: Record<string, string[]> = {
  deployments: ['machine', 'address'],
  racks: ['version', 'last_seen'],
  vlans: ['serving'],
  discoveries: ['sort', 'mac', 'addresses', 'vlan', 'last_seen_at'],
  subnets: ['used', 'free'],
};
/** The sum of the widths of columns that a window of 1440 pixels shows, gaps among them. */
const ROOM = 1224;
const GAP = 12;
/** Numbers take less room than names. */
const NARROW = ['used', 'free'];
/** Texts of many lines. */
const LONG = ['content'];

/** As heads of columns are written; what is said by its letters stays as it is. */
const low = (title: string): string => (/^[A-Z]{2}/.test(title) ? title : title.charAt(0).toLowerCase() + title.slice(1));

function columnsOf(plural: string, described: Kind | undefined, objects: readonly BasaltObject[]): Column<BasaltObject>[] {
  const has = (name: string) => objects.some(({ spec }) => scalars(spec[name]).length > 0);
  const spec = (described?.spec ?? []).filter(({ name }) => has(name) && name !== 'description' && !LONG.includes(name) && !STATUS[plural]?.includes(name));
  const text = (value: Json | undefined) => {
    const all = value && typeof value === 'object' && !Array.isArray(value) ? Object.values(value).flatMap(scalars) : scalars(value);
    return all.join(', ');
  };
  const widthOf = (name: string) => (name === 'description' ? 200 : NARROW.includes(name) ? 72 : 128);
  const told = STATUS[plural] ?? [];
  // Name, state and manager are always there, and so is a description. Other fields are there as far as they fit.
  let room = ROOM - [200, 240, 88, ...told.map(widthOf), ...(has('description') ? [widthOf('description')] : [])].reduce((sum, width) => sum + width + GAP, 0);
  const fitting = spec.filter(({ name }) => {
    room -= widthOf(name) + GAP;
    return room >= 0;
  });
  const shown = [...fitting, ...(has('description') ? [{ name: 'description' }] : [])];
  return [
    {
      key: 'name',
      title: 'name',
      width: 200,
      by: ({ metadata }) => metadata.name,
      cell: ({ metadata }) => (
        <Link to={pageOf(plural, metadata.name)} className="mono" tabIndex={-1} preload={false}>
          {metadata.name}
        </Link>
      ),
    },
    { key: 'state', title: 'state', width: 240, grows: true, by: (it) => stateOf(it).word, cell: (it) => <StateLine state={stateOf(it)} /> },
    ...told.map((name) => ({
      key: name,
      title: low(spaced(name)),
      width: widthOf(name),
      by: ({ status }: BasaltObject) => text(status[name] as Json) || undefined,
      cell: ({ status }: BasaltObject) =>
        /(_at|_seen)$/.test(name) ? <Time at={status[name] as string} /> : <span className="mono">{text(status[name] as Json)}</span>,
    })),
    ...shown.map(({ name }) => ({
      key: name,
      title: low(spaced(name)),
      width: widthOf(name),
      by: (it: BasaltObject) => text(it.spec[name]) || undefined,
      cell: (it: BasaltObject) => <span title={text(it.spec[name])}>{text(it.spec[name])}</span>,
    })),
    { key: 'manager', title: 'manager', width: 88, by: ({ metadata }) => metadata.manager, cell: ({ metadata }) => <span className="muted">{metadata.manager}</span> },
  ];
}
