import { Link, Outlet, useNavigate, useRouterState } from '@tanstack/react-router';
import { useEffect, useMemo, useState } from 'react';
import { useList, useLiveness } from '../api/live';
import type { Rack } from '../api/object';
import { keepAlive, logout } from '../api/session';
import { Button } from '../parts/Button';
import { Sheet } from '../parts/Sheet';
import { stateOf } from '../parts/state';
import { clock } from '../parts/time';
import type { Command } from './commands';
import { Palette } from './Palette';
import { Icon } from './icons';
import { SECTIONS } from './sections';
import { setTheme, turn, turnDensity } from './theme';
import { useWho } from './who';
import css from './Shell.module.css';

export function Shell() {
  const who = useWho();
  const navigate = useNavigate();
  const [palette, setPalette] = useState(false);
  const [keys, setKeys] = useState(false);
  useEffect(keepAlive, []);
  const more: Command[] = useMemo(
    () => [
      { title: 'Turn light and dark', run: turn },
      { title: 'Light and dark as the system is', run: () => setTheme('system') },
      { title: 'Turn compact and usual rows', run: turnDensity },
      { title: 'Show keys', says: '?', run: () => setKeys(true) },
      { title: 'Log out', says: who.actor, run: () => void logout() },
    ],
    [who],
  );
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const typing = (event.target as HTMLElement).closest('input, textarea, select');
      if (event.key === 'k' && (event.ctrlKey || event.metaKey)) setPalette(true);
      else if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
      else if (event.key === '/') {
        const filter = document.getElementById('filter');
        if (filter) filter.focus();
        else setPalette(true);
      } else if (event.key === '?') setKeys(true);
      else if (event.key === 'g') void navigate({ to: '/machines' });
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, [navigate]);
  return (
    <div className={css.frame}>
      <a className={css.skip} href="#page">
        Skip to the page
      </a>
      <Side />
      <div className={css.main}>
        <header className={css.top}>
          <Title />
          <Button bare onClick={() => setPalette(true)} title="Commands and search (Ctrl-K)">
            <kbd>Ctrl K</kbd>
          </Button>
          <Button bare onClick={turn} title="Turn light and dark" aria-label="Turn light and dark">
            <Icon name="theme" />
          </Button>
          <span className="muted mono">{who.actor}</span>
          <Button bare onClick={() => void logout()}>
            Log out
          </Button>
        </header>
        <Banner />
        <main id="page" className={css.page} tabIndex={-1}>
          <Outlet />
        </main>
      </div>
      {palette && <Palette close={() => setPalette(false)} more={more} />}
      {keys && <Keys close={() => setKeys(false)} />}
    </div>
  );
}

function Side() {
  const { objects: discoveries } = useList('Discovery', 'discoveries');
  const { objects: racks } = useList<Rack>('Rack', 'racks');
  const path = useRouterState({ select: ({ location }) => location.pathname });
  const trouble = racks.filter((rack) => stateOf(rack as never).tone !== 'ok').length;
  const marks: Record<string, string> = {
    Discoveries: discoveries.length ? String(discoveries.length) : '',
    Racks: trouble ? `${trouble}!` : '',
  };
  return (
    <nav className={css.side} aria-label="Sections">
      <Link to="/machines" className={css.mark} aria-label="Basalt">
        <Icon name="mark" />
        <span>Basalt</span>
      </Link>
      <ul>
        {SECTIONS.map(({ title, places }) => {
          const to = `/${places[0]?.plural ?? title.toLowerCase()}`;
          const here = places.some(({ plural }) => path.startsWith(`/ui/${plural}`) || path.startsWith(`/${plural}`)) || path.endsWith(to);
          return (
            <li key={title}>
              <Link to={to} aria-current={here ? 'page' : undefined} title={title}>
                <Icon name={title} />
                <span>{title}</span>
                {marks[title] && <b>{marks[title]}</b>}
              </Link>
            </li>
          );
        })}
      </ul>
      <p>
        <a href="/pages">Manual</a>
        <a href="/docs">API</a>
      </p>
    </nav>
  );
}

/** Pages that are of no kind. */
const TITLES: Record<string, string> = { boots: 'Why does it not boot?', events: 'Events', audit: 'Audit' };

/** Where one is: the document's title too, which a screen reader says. */
function Title() {
  const path = useRouterState({ select: ({ location }) => location.pathname });
  const [, plural = '', name] = path.replace(/^\/ui(?=\/)/, '').split('/');
  const section = SECTIONS.find(({ places }) => places.some((place) => place.plural === plural));
  const title = section?.places.find((place) => place.plural === plural)?.title ?? TITLES[plural] ?? 'Not found';
  const shown = name ? decodeURIComponent(name) : undefined;
  useEffect(() => {
    document.title = `${shown ? `${shown} · ` : ''}${title} · Basalt`;
  }, [shown, title]);
  return (
    <p className={css.title} aria-live="polite">
      {shown ? (
        <>
          <Link to={`/${plural}`}>{title}</Link>
          <span className="faint">/</span>
          <span className="mono">{shown}</span>
        </>
      ) : (
        title
      )}
    </p>
  );
}

/** After so long without the region somebody has to know. */
const PATIENCE = 5_000;

function Banner() {
  const liveness = useLiveness();
  const since = liveness.live ? undefined : liveness.since;
  const [late, setLate] = useState(false);
  useEffect(() => {
    setLate(false);
    if (since === undefined) return;
    const timer = setTimeout(() => setLate(true), PATIENCE);
    return () => clearTimeout(timer);
  }, [since]);
  return (
    <div role="status">
      {late && since !== undefined && (
        <p className={css.banner}>Live data stopped at {clock(since)}; trying again. What is shown may have changed, and nothing can be changed now.</p>
      )}
    </div>
  );
}

const KEYS = [
  ['/', 'filter, or search'],
  ['Ctrl K', 'commands, pages and machines'],
  ['g', 'machines'],
  ['↑ ↓ Home End', 'row by row in a list'],
  ['Enter', 'open the row'],
  ['Space', 'select the row'],
  ['Ctrl A', 'select all that match'],
  ['Esc', 'close, or let go of the selection'],
  ['?', 'this'],
];

function Keys({ close }: { close: () => void }) {
  return (
    <Sheet middle title="Keys" close={close}>
      <dl className={css.keys}>
        {KEYS.map(([key, says]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{says}</dd>
          </div>
        ))}
      </dl>
    </Sheet>
  );
}
