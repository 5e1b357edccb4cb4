import { useState } from 'react';
import type { Schemas } from '../../api/client';
import { path } from '../../api/client';
import { useRead } from '../../api/objects';
import { Failure, Loading, Notice } from '../../parts/Notice';
import { Dot } from '../../parts/State';
import { Time } from '../../parts/Time';
import type { Tone } from '../../parts/state';
import { useMachine } from './Machine';
import css from './Machine.module.css';
import parts from '../../parts/parts.module.css';

type Row = Schemas['TestResult'];

const TONES: Record<Row['verdict'], Tone> = { skipped: 'off', passed: 'ok', degraded: 'wait', failed: 'bad' };
/** A run stores its rows at its end. */
const EVERY = 10_000;

/** The findings of the tests of its hardware, one for each device. */
export function Tests() {
  const machine = useMachine();
  const { name } = machine.metadata;
  const [history, setHistory] = useState(false);
  const { data, error, refetch } = useRead<Schemas['TestResults']>(`${path('machines', name, 'results')}?latest=${String(!history)}&limit=2000`, EVERY);
  if (error) return <Failure error={error} again={() => void refetch()} />;
  if (!data) return <Loading inside />;
  if (data.items.length === 0)
    return (
      <Notice inside title="No test of its hardware has ended.">
        <p className="muted">
          Tests run with each commissioning, if <code>commissioning.testing</code> names them, or once: <code>basalt test {name} --test basalt-disks</code>
        </p>
      </Notice>
    );
  const accepted = machine.status.tests?.overridden;
  return (
    <>
      {accepted && (
        <p>
          Failed tests are overridden{accepted.by && ` by ${accepted.by}`}, <Time at={accepted.at} />: {accepted.reason}
        </p>
      )}
      <label>
        <input type="checkbox" checked={history} onChange={(event) => setHistory(event.target.checked)} /> Earlier runs too
      </label>
      <ul className={css.list} aria-label="Findings">
        {data.items.map((row) => (
          <Finding key={`${row.attempt} ${row.script} ${row.device ?? ''}`} row={row} />
        ))}
      </ul>
    </>
  );
}

function Finding({ row }: { row: Row }) {
  const figures = Object.entries(row.figures ?? {});
  return (
    <li className={css.row}>
      <Dot tone={TONES[row.verdict]} />
      <span className="mono">
        {row.script} {row.device}
      </span>
      <span className={row.verdict === 'failed' ? parts.bad : ''}>
        {row.verdict}: {row.message}
      </span>
      <span className="muted">
        <Time at={row.at} />
        {figures.map(([figure, value]) => ` · ${figure} ${Number(value.toFixed(2))}`)}
      </span>
    </li>
  );
}
