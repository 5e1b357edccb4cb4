import { useNavigate, useSearch } from '@tanstack/react-router';
import type { Schemas } from '../../api/client';
import { path } from '../../api/client';
import { useRead } from '../../api/objects';
import type { OpenView } from '../../app/routes';
import { Chart } from '../../parts/Chart';
import { Grid } from '../../parts/Grid';
import { figure, titleOf } from '../../parts/chart';
import { Failure, Loading, Notice } from '../../parts/Notice';
import { Dot } from '../../parts/State';
import { Time } from '../../parts/Time';
import type { Tone } from '../../parts/state';
import { useMachine } from './Machine';
import { type Row, keyOf, runsOf, scriptOf, trendsOf } from './history';
import css from './Machine.module.css';
import parts from '../../parts/parts.module.css';

const TONES: Record<Row['verdict'], Tone> = { skipped: 'off', passed: 'ok', degraded: 'wait', failed: 'bad' };
/** A run stores its rows at its end. */
const EVERY = 10_000;
/** Rows that the region answers at most. */
const MOST = 2_000;

/** The latest findings of the tests of its hardware, one for each device. The address names the one whose earlier runs are open. */
export function Tests() {
  const machine = useMachine();
  const { name } = machine.metadata;
  const { of } = useSearch({ strict: false }) as OpenView;
  const navigate = useNavigate();
  const { data, error, refetch } = useRead<Schemas['TestResults']>(`${path('machines', name, 'results')}?latest=true&limit=${MOST}`, EVERY);
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
  const turn = (key: string) => void navigate({ to: '.', search: { of: key === of ? undefined : key }, replace: true } as never);
  return (
    <>
      {accepted && (
        <p>
          Failed tests are overridden{accepted.by && ` by ${accepted.by}`}, <Time at={accepted.at} />: {accepted.reason}
        </p>
      )}
      <Grid label="Findings" heads={['test', 'device', 'finding', 'figures', 'ended']}>
        {data.items.map((row) => [
          <tr key={keyOf(row)}>
            <td className={css.whole}>
              <button type="button" className={`${css.open} mono`} aria-expanded={keyOf(row) === of} onClick={() => turn(keyOf(row))}>
                {row.script}
              </button>
            </td>
            <td className="mono">{row.device}</td>
            <td>
              <Verdict of={row} />
            </td>
            <td className="muted">
              <Figures of={row} />
            </td>
            <td className={`${css.when} muted`}>
              <Time at={row.at} />
            </td>
          </tr>,
          keyOf(row) === of && (
            <tr key={`${keyOf(row)} runs`}>
              <td colSpan={5}>
                <Runs machine={name} of={of} />
              </td>
            </tr>
          ),
        ])}
      </Grid>
    </>
  );
}

/** The runs of one test on one device: a chart of each figure, and the same numbers as a table with the outputs. */
function Runs({ machine, of }: { machine: string; of: string }) {
  const { data, error, refetch } = useRead<Schemas['TestResults']>(`${path('machines', machine, 'results')}?script=${encodeURIComponent(scriptOf(of))}&limit=${MOST}`, EVERY);
  if (error) return <Failure error={error} again={() => void refetch()} />;
  if (!data) return <Loading inside />;
  const runs = runsOf(of, data.items);
  const names = [...new Set(runs.flatMap(({ figures }) => Object.keys(figures ?? {})))].sort();
  return (
    <div className={css.part}>
      <div className={css.charts}>
        {trendsOf(runs).map(([name, points]) => (
          <Chart key={name} {...titleOf(name)} points={points} />
        ))}
      </div>
      <h2>{runs.length === 1 ? 'One run' : `${runs.length} runs`}</h2>
      <table className={parts.grid} aria-label={`Runs of ${of}`}>
        <thead>
          <tr>
            <th>ended</th>
            <th>finding</th>
            {names.map((name) => (
              <th key={name}>{headOf(name)}</th>
            ))}
            <th>took</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <tr key={`${run.attempt} ${run.at}`}>
              <td className={css.when}>
                <Time at={run.at} />
              </td>
              <td>
                <Verdict of={run} />
                {run.output && (
                  <details>
                    <summary className="muted">Output</summary>
                    <pre className={`${parts.code} ${css.output}`} tabIndex={0}>
                      {run.output}
                    </pre>
                  </details>
                )}
              </td>
              {names.map((name) => (
                <td key={name}>{valueOf(run, name)}</td>
              ))}
              <td className="muted">{figure(run.seconds)} s</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const headOf = (name: string): string => {
  const { title, unit } = titleOf(name);
  return unit ? `${title}, ${unit}` : title;
};

function valueOf({ figures }: Row, name: string): string {
  const value = (figures as Record<string, number> | undefined)?.[name];
  return value === undefined ? '' : figure(value);
}

function Verdict({ of: { verdict, message } }: { of: Row }) {
  return (
    <span className={verdict === 'failed' ? parts.bad : undefined}>
      <Dot tone={TONES[verdict]} /> {verdict}: {message}
    </span>
  );
}

function Figures({ of: { figures } }: { of: Row }) {
  return Object.entries((figures ?? {}) as Record<string, number>)
    .map(([name, value]) => {
      const { title, unit } = titleOf(name);
      return `${title} ${figure(value)}${unit && ` ${unit}`}`;
    })
    .join(' · ');
}
