import type { Schemas } from '../../api/client';
import type { BasaltObject } from '../../api/object';
import { Dot } from '../../parts/State';
import type { Tone } from '../../parts/state';
import css from '../machine/Machine.module.css';
import parts from '../../parts/parts.module.css';

export const TONES: Record<string, Tone> = { running: 'ok', degraded: 'wait', stopped: 'bad' };

/** What a rack runs, and which part of its configuration it has applied. */
export function RackServices({ rack }: { rack: BasaltObject }) {
  const services = Object.entries((rack.status.services ?? {}) as unknown as Record<string, Schemas['RackService']>);
  const concerns = Object.entries((rack.status.concerns ?? {}) as unknown as Record<string, Schemas['ConcernState']>);
  if (services.length + concerns.length === 0) return null;
  return (
    <div className={css.columns}>
      <section className={css.part}>
        <h2>Services</h2>
        <ul className={css.list}>
          {services.map(([name, { state, message }]) => (
            <li key={name} className={css.row}>
              <Dot tone={TONES[state] ?? 'off'} />
              <b>{name}</b>
              <span className="muted">
                {state}
                {message && ` · ${message}`}
              </span>
            </li>
          ))}
        </ul>
      </section>
      <section className={css.part}>
        <h2>What it was told</h2>
        <table className={parts.grid}>
          <thead>
            <tr>
              <th>concern</th>
              <th>applied</th>
              <th>error</th>
            </tr>
          </thead>
          <tbody>
            {concerns.map(([name, { applied, error }]) => (
              <tr key={name}>
                <td>{name}</td>
                <td className="muted">{applied ?? 'nothing yet'}</td>
                <td className={error ? parts.bad : undefined}>{error}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </div>
  );
}
