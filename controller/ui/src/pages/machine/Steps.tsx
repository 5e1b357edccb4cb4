import type { Schemas } from '../../api/client';
import { Dot } from '../../parts/State';
import { Time } from '../../parts/Time';
import type { Tone } from '../../parts/state';
import css from './Machine.module.css';
import parts from '../../parts/parts.module.css';

const TONES: Record<Schemas['Step']['state'], Tone> = { later: 'off', next: 'wait', running: 'busy', done: 'ok', failed: 'bad' };

/** What will be done, in its order, and what of it hurts. */
export function Steps({ steps, none }: { steps: Schemas['Step'][]; none: string }) {
  if (steps.length === 0) return <p className="muted">{none}</p>;
  return (
    <ol className={css.list}>
      {steps.map((step, place) => (
        <li key={`${step.key} ${place}`} className={css.row}>
          <Dot tone={TONES[step.state]} />
          <span>{step.message}</span>
          <span className="muted">
            {step.state}
            {step.started_at && (
              <>
                {' · begun '}
                <Time at={step.started_at} />
              </>
            )}
            {step.deadline && (
              <>
                {' · its end is '}
                <Time at={step.deadline} />
              </>
            )}
            {step.attempts > 1 && ` · attempt ${step.attempts}`}
          </span>
          {step.destructive && <span className={`${parts.chip} ${parts.bad}`}>erases</span>}
          {step.power && <span className={`${parts.chip} ${parts.wait}`}>power</span>}
          {step.error && <span className={parts.bad}>{step.error}</span>}
        </li>
      ))}
    </ol>
  );
}
