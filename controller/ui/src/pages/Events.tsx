import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { type Schemas, ask } from '../api/client';
import { Tail } from '../api/log';
import { PLACES, pageOf, placeOfKind } from '../app/sections';
import { Button } from '../parts/Button';
import { Grid } from '../parts/Grid';
import { Failure, Loading } from '../parts/Notice';
import { Dot } from '../parts/State';
import type { Tone } from '../parts/state';
import { Time } from '../parts/Time';
import machine from './machine/Machine.module.css';

type Event = Schemas['EventEntry'];

/** Events that the page keeps; of more, the oldest are let go. */
const MOST = 2_000;
/** Events of a page, and before the first new one. */
const PAGE = 100;

const tone = ({ sort, detail }: Event): Tone => {
  if (sort === 'stalled') return 'wait';
  if (sort === 'ended') return detail ? 'bad' : 'ok';
  if (sort === 'began') return 'busy';
  return sort === 'phase' ? 'ok' : 'off';
};

/** What happens in the region, live, the latest first. */
export function Events() {
  const { kind } = useSearch({ strict: false }) as { kind?: string };
  const navigate = useNavigate();
  const [live, setLive] = useState(true);
  const [tries, setTries] = useState(0);
  const { events, isRead, away, error, earlier } = useEvents(kind, live, tries);
  return (
    <div className={machine.body}>
      <h1 className="unseen">Events</h1>
      <div className={machine.row}>
        <select
          aria-label="Kind"
          value={kind ?? ''}
          onChange={({ target }) => void navigate({ to: '/events', search: { kind: target.value || undefined }, replace: true })}
        >
          <option value="">All kinds</option>
          {PLACES.map(({ plural, title }) => (
            <option key={plural} value={plural}>
              {title}
            </option>
          ))}
        </select>
        <label>
          <input type="checkbox" checked={live} onChange={() => setLive(!live)} /> Live
        </label>
        {away && (
          <span className="muted" role="status">
            the region is away; trying again
          </span>
        )}
      </div>
      {error !== undefined && <Failure error={error} again={() => setTries(tries + 1)} />}
      {!isRead && error === undefined && <Loading />}
      {isRead && events.length === 0 && <p className="muted">Nothing has happened yet.</p>}
      {events.length > 0 && (
        <Grid label="Events" heads={['when', 'object', 'what', 'who']}>
          {events.map((event) => (
            <tr key={event.id}>
              <td className={machine.when}>
                <Time at={event.at} />
              </td>
              <td className={machine.broken}>
                <span className="muted">{event.kind}</span> <Name event={event} />
              </td>
              <td className={machine.broken}>
                <Dot tone={tone(event)} /> {event.words}
                {event.detail && <span className="muted"> · {event.detail}</span>}
              </td>
              <td className={`muted ${machine.whole}`}>{event.actor}</td>
            </tr>
          ))}
        </Grid>
      )}
      {earlier && <Button onClick={() => void earlier()}>Earlier</Button>}
    </div>
  );
}

function Name({ event: { kind, name, sort } }: { event: Event }) {
  const place = sort === 'left' ? undefined : placeOfKind(kind);
  return place ? (
    <Link to={pageOf(place.plural, name)} className="mono">
      {name}
    </Link>
  ) : (
    <span className="mono">{name}</span>
  );
}

function useEvents(kind: string | undefined, live: boolean, tries: number) {
  const [events, setEvents] = useState<readonly Event[]>([]);
  const [isRead, setRead] = useState(false);
  const [away, setAway] = useState(false);
  const [error, setError] = useState<unknown>();
  const [more, setMore] = useState(true);
  const question = `/api/v1/events?limit=${PAGE}${kind ? `&kinds=${encodeURIComponent(kind)}` : ''}`;

  useEffect(() => {
    setEvents([]);
    setRead(false);
    setMore(true);
    setError(undefined);
  }, [question, tries]);

  useEffect(() => {
    if (!live) {
      let isOver = false;
      const show = (page: Schemas['EventPage']) => {
        if (isOver) return;
        setEvents((before) => (before.length > 0 ? before : page.items));
        setRead(true);
      };
      ask<Schemas['EventPage']>(question).then(show, (error: unknown) => !isOver && setError(error));
      return () => {
        isOver = true;
      };
    }
    const waiting: Event[] = [];
    let frame: ReturnType<typeof setTimeout> | undefined;
    const flush = () => {
      frame = undefined;
      const fresh = waiting.splice(0).reverse();
      setRead(true);
      setEvents((before) => {
        const [newest] = before;
        const news = newest ? fresh.filter(({ id }) => Number(id) > Number(newest.id)) : fresh;
        return news.length > 0 ? [...news, ...before].slice(0, MOST) : before;
      });
    };
    const tail = new Tail<Event>(
      `${question}&follow=true`,
      (news) => {
        if (news.type === 'line') waiting.push(news.line);
        if (news.type === 'failed') setError(news.error);
        else setAway(news.type === 'away');
        frame ??= setTimeout(flush, FRAME);
      },
      undefined,
      'event',
    );
    tail.start();
    return () => {
      tail.stop();
      clearTimeout(frame);
    };
  }, [question, live, tries]);

  const oldest = events[events.length - 1];
  const earlier = async () => {
    try {
      const page = await ask<Schemas['EventPage']>(`${question}&continue=${oldest?.id}`);
      setEvents((now) => [...now, ...page.items].slice(0, MOST));
      setMore(page.continue !== undefined);
    } catch (error) {
      setError(error);
    }
  };
  return { events, isRead, away, error, earlier: oldest && more && events.length >= PAGE && events.length < MOST ? earlier : undefined };
}

/** New events are drawn together so often, in milliseconds. */
const FRAME = 100;
