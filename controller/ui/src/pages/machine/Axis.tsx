import { Link } from '@tanstack/react-router';
import { type MouseEvent, type PointerEvent, type ReactNode, useMemo, useRef, useState } from 'react';
import { type Schemas, path } from '../../api/client';
import { useObject, useRead } from '../../api/objects';
import { Button } from '../../parts/Button';
import { useNow } from '../../parts/Time';
import { absolute, clock } from '../../parts/time';
import { HOURS, type Mark, type Place, type Range, axisOf, happeningsOf, hoursFor, lastHours, moved, partOf, zoomed } from './axis';
import css from './Axis.module.css';

const TITLES: Record<number, string> = { 1: 'The last hour', 24: 'The last day', 168: 'The last week', 720: 'The last 30 days' };
const EVERY = 10_000;
/** Times below the axis. */
const TICKS = 5;
/** The part of the axis in which a mark says in words what it is. */
const ROOM = 0.15;
/** Pixels of a drag that is one. */
const DRAGGED = 8;
const DAY = 86_400_000;

interface Props {
  machine: { name: string; uid: string };
  entries: Schemas['TimelineEntry'][];
}

/** Power, boots, agent, tests, deployments, people and deadlines of a machine, side by side in time. Each mark leads to its evidence. */
export function Axis({ machine: { name, uid }, entries }: Props) {
  const { data: boots } = useRead<Schemas['Boots']>(path('boots', name), EVERY);
  const { data: tests } = useRead<Schemas['TestResults']>(`${path('machines', name, 'results')}?limit=1000`, EVERY);
  const { data: events } = useRead<Schemas['EventPage']>(`/api/v1/events?object=${encodeURIComponent(`uid:${uid}`)}&limit=500`, EVERY);
  const { data: waits } = useObject<Schemas['Waits']>('Machine', 'machines', name, 'waits');
  const now = useNow();
  const all = useMemo(
    () => happeningsOf(name, { entries, boots: boots?.boots ?? [], results: tests?.items ?? [], events: events?.items ?? [], waits: waits?.waits ?? [] }, now),
    [name, entries, boots, tests, events, waits, now],
  );
  const [asked, setHours] = useState<number>();
  const [zoom, setZoom] = useState<Range>();
  const hours = asked ?? hoursFor([...all.values()].flat().map(({ from }) => from), now);
  const deadlines = (waits?.waits ?? []).flatMap(({ deadline }) => (deadline ? [Date.parse(deadline)] : []));
  const range = zoom ?? lastHours(hours, deadlines, now);
  const lanes = axisOf(all, range);
  const { from, to } = range;
  const written = to - from > DAY ? (at: number) => absolute(at).slice(5, 16) : to - from < 600_000 ? clock : (at: number) => clock(at).slice(0, 5);
  const ticks = Array.from({ length: TICKS }, (_, tick) => from + ((to - from) * tick) / (TICKS - 1));
  const present = (now - from) / (to - from);
  const { dragged, ...drag } = useDrag((a, b) => setZoom(partOf(range, a, b)));
  return (
    <section className={css.axis} aria-label="Axis of time">
      <div className={css.tools}>
        <select
          aria-label="Time"
          value={zoom ? '' : hours}
          onChange={({ target }) => {
            setHours(Number(target.value));
            setZoom(undefined);
          }}
        >
          {zoom && (
            <option value="">
              {absolute(from).slice(0, 16)} to {absolute(to).slice(0, 16)}
            </option>
          )}
          {HOURS.map((it) => (
            <option key={it} value={it}>
              {TITLES[it]}
            </option>
          ))}
        </select>
        <Button aria-label="Earlier" title="Earlier" onClick={() => setZoom(moved(range, -0.5))}>
          ←
        </Button>
        <Button aria-label="Later" title="Later" onClick={() => setZoom(moved(range, 0.5))}>
          →
        </Button>
        <Button aria-label="Zoom in" title="Zoom in, or drag over a part of the axis" onClick={() => setZoom(zoomed(range, 0.5))}>
          +
        </Button>
        <Button aria-label="Zoom out" title="Zoom out" onClick={() => setZoom(zoomed(range, 2))}>
          −
        </Button>
        {zoom && <Button onClick={() => setZoom(undefined)}>Back to now</Button>}
      </div>
      {lanes.length === 0 && <p className="muted">Nothing happened then.</p>}
      {lanes.length > 0 && (
        <div className={css.lanes} {...drag}>
          {lanes.map(({ title, marks }) => [
            <span key={title} className="muted">
              {title}
            </span>,
            <ul key={`${title} lane`} className={css.lane} aria-label={title} data-lane>
              {marks.map((mark) => (
                <Shown key={`${mark.at} ${mark.says}`} machine={name} mark={mark} />
              ))}
              {present > 0 && present < 1 && <li className={css.now} aria-hidden="true" style={{ left: `${present * 100}%` }} />}
              {dragged && <li className={css.dragged} aria-hidden="true" style={{ left: `${dragged[0] * 100}%`, width: `${(dragged[1] - dragged[0]) * 100}%` }} />}
            </ul>,
          ])}
          <div className={css.ticks} aria-hidden="true">
            {ticks.map((tick) => (
              <span key={tick}>{written(tick)}</span>
            ))}
          </div>
        </div>
      )}
    </section>
  );
}

function Shown({ machine, mark: { from, to, until, at, says, count, tone, place } }: { machine: string; mark: Mark }) {
  const title = `${absolute(at)}\n${says}`;
  const style = { left: `min(${from * 100}%, calc(100% - 6px))`, width: `${(Math.max(to, until) - from) * 100}%` };
  const whole = Math.max(to, until) - from;
  return (
    <li className={css.mark} style={style} data-tone={tone}>
      <Evidence machine={machine} place={place} title={title} label={`${absolute(at)} ${count > 1 ? `${count} events: ` : ''}${says.split('\n').slice(0, 3).join('; ')}`}>
        <span className={css.span} style={{ width: whole > 0 ? `${((to - from) / whole) * 100}%` : '100%' }}>
          {to - from > ROOM && says.split('\n')[0]}
        </span>
      </Evidence>
    </li>
  );
}

function Evidence({ machine, place, title, label, children }: { machine: string; place?: Place; title: string; label: string; children: ReactNode }) {
  if (!place) return <span title={title}>{children}</span>;
  const to = place.to.startsWith('/') ? place.to : `/machines/${encodeURIComponent(machine)}${place.to && `/${place.to}`}`;
  return (
    <Link to={to} search={place.search as never} title={title} aria-label={label} draggable={false}>
      {children}
    </Link>
  );
}

/** A drag over the lanes, as two parts of them. */
function useDrag(done: (a: number, b: number) => void) {
  const begun = useRef<number>(undefined);
  const hasDragged = useRef(false);
  const [dragged, setDragged] = useState<[number, number]>();
  const part = (event: PointerEvent<HTMLElement>): number | undefined => {
    const lane = event.currentTarget.querySelector('[data-lane]')?.getBoundingClientRect();
    return lane && lane.width > 0 ? (event.clientX - lane.left) / lane.width : undefined;
  };
  const ordered = (a: number, b: number): [number, number] => [Math.max(0, Math.min(a, b)), Math.min(1, Math.max(a, b))];
  const isDrag = (event: PointerEvent<HTMLElement>, at: number) => {
    const width = event.currentTarget.querySelector('[data-lane]')?.getBoundingClientRect().width ?? 0;
    return begun.current !== undefined && Math.abs(at - begun.current) * width > DRAGGED;
  };
  return {
    dragged,
    onPointerDown: (event: PointerEvent<HTMLElement>) => {
      const at = part(event);
      hasDragged.current = false;
      begun.current = event.button === 0 && at !== undefined && at >= 0 && at <= 1 ? at : undefined;
    },
    onPointerMove: (event: PointerEvent<HTMLElement>) => {
      const at = part(event);
      if (begun.current !== undefined && at !== undefined && isDrag(event, at)) setDragged(ordered(begun.current, at));
    },
    onPointerUp: (event: PointerEvent<HTMLElement>) => {
      const at = part(event);
      if (begun.current !== undefined && at !== undefined && isDrag(event, at)) {
        hasDragged.current = true;
        done(begun.current, at);
      }
      begun.current = undefined;
      setDragged(undefined);
    },
    onPointerLeave: () => {
      begun.current = undefined;
      setDragged(undefined);
    },
    // A drag that ends over a mark does not follow it.
    onClickCapture: (event: MouseEvent) => {
      if (hasDragged.current) event.preventDefault();
      hasDragged.current = false;
    },
  };
}
