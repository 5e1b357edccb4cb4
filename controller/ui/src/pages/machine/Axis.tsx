import { useState } from 'react';
import { type Schemas, path } from '../../api/client';
import { useRead } from '../../api/objects';
import { useNow } from '../../parts/Time';
import { absolute, clock } from '../../parts/time';
import { HOURS, axisOf, hoursFor } from './axis';
import css from './Axis.module.css';

const TITLES: Record<number, string> = { 1: 'The last hour', 24: 'The last day', 168: 'The last week', 720: 'The last 30 days' };
const EVERY = 10_000;
/** Times below the axis. */
const TICKS = 5;

/** Boots, steps, conditions, facts and changes of a machine, side by side in time. The table below it has the words. */
export function Axis({ machine, entries }: { machine: string; entries: Schemas['TimelineEntry'][] }) {
  const { data } = useRead<Schemas['Boots']>(path('boots', machine), EVERY);
  const now = useNow();
  const boots = data?.boots ?? [];
  const [asked, setHours] = useState<number>();
  const hours = asked ?? hoursFor([...entries.map(({ at }) => at), ...boots.map(({ began }) => began)], now);
  const lanes = axisOf(entries, boots, hours, now);
  const written = hours > 24 ? (at: number) => absolute(at).slice(5, 16) : (at: number) => clock(at).slice(0, 5);
  const ticks = Array.from({ length: TICKS }, (_, tick) => now - hours * 3_600_000 * (1 - tick / (TICKS - 1)));
  return (
    <section className={css.axis} aria-label="Axis of time">
      <select aria-label="Time" value={hours} onChange={({ target }) => setHours(Number(target.value))} style={{ justifySelf: 'start' }}>
        {HOURS.map((it) => (
          <option key={it} value={it}>
            {TITLES[it]}
          </option>
        ))}
      </select>
      {lanes.length === 0 && <p className="muted">Nothing happened then.</p>}
      {lanes.length > 0 && (
        <div className={css.lanes}>
          {lanes.map(({ title, marks }) => [
            <span key={title} className="muted">
              {title}
            </span>,
            <div key={`${title} lane`} className={css.lane} role="img" aria-label={`${title}: ${marks.reduce((all, { count }) => all + count, 0)}`}>
              {marks.map(({ from, to, at, says }) => (
                <span
                  key={at + from}
                  className={css.mark}
                  title={`${absolute(at)}\n${says}`}
                  style={{ left: `min(${from * 100}%, calc(100% - 4px))`, width: `${(to - from) * 100}%` }}
                />
              ))}
            </div>,
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
