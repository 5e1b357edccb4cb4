import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { useList } from '../../api/live';
import type { Schemas } from '../../api/client';
import { path } from '../../api/client';
import type { BasaltObject, Deployment } from '../../api/object';
import { useRead } from '../../api/objects';
import { pageOf } from '../../app/sections';
import { Button } from '../../parts/Button';
import { Grid } from '../../parts/Grid';
import { Failure, Loading } from '../../parts/Notice';
import { Dot } from '../../parts/State';
import { Time } from '../../parts/Time';
import type { Tone } from '../../parts/state';
import { type End, RUNNER, runsOf } from './firstBoot';
import css from '../machine/Machine.module.css';
import parts from '../../parts/parts.module.css';

const TONES: Record<End, Tone> = { 'not begun': 'off', running: 'busy', 'ended well': 'ok', failed: 'bad' };
const EVERY = 5_000;
/** Lines that are read: a script logs 64 KiB at most. */
const LINES = 1000;

const whenOf = ({ spec }: BasaltObject): unknown => spec.when ?? 'install';

/** Scripts of a deployment: when each runs, and how those of the first boot ended, with their output. */
export function DeploymentScripts({ deployment }: { deployment: BasaltObject }) {
  const names = Array.isArray(deployment.spec.scripts) ? deployment.spec.scripts.map(String).sort() : [];
  const { objects: scripts } = useList('Script', 'scripts');
  if (names.length === 0) return null;
  const isLate = (name: string) => scripts.some((script) => script.metadata.name === name && whenOf(script) === 'first_boot');
  const late = names.filter(isLate);
  const machine = typeof deployment.status.machine === 'string' ? deployment.status.machine : undefined;
  return (
    <section className={css.part} aria-labelledby="scripts">
      <h2 id="scripts">Scripts</h2>
      <p className="muted">
        At the end of the install:{' '}
        {names.length === late.length ? 'none' : names.filter((name) => !isLate(name)).map((name) => <span key={name}><Link to={pageOf('scripts', name)}>{name}</Link> </span>)}
      </p>
      {late.length > 0 && (machine ? <Runs machine={machine} names={late} /> : <p className="muted">At the first boot: {late.join(', ')}. There is no machine yet.</p>)}
    </section>
  );
}

function Runs({ machine, names }: { machine: string; names: string[] }) {
  const { data, error } = useRead<Schemas['Logs']>(`${path('machines', machine, 'logs')}?grep=${RUNNER}&limit=${LINES}`, EVERY);
  const [open, setOpen] = useState<string>();
  if (error && !data) return <Failure error={error} />;
  if (!data) return <Loading inside />;
  const runs = runsOf(names, data.lines);
  const shown = runs.find(({ name }) => name === open);
  return (
    <>
      <Grid label="Scripts of the first boot" heads={['at the first boot', 'state', 'began', 'output']}>
        {runs.map(({ name, end, failure, at, output }) => (
          <tr key={name} aria-current={name === open ? 'true' : undefined}>
            <td className="mono">
              <Link to={pageOf('scripts', name)}>{name}</Link>
            </td>
            <td>
              <Dot tone={TONES[end]} /> {end}
              {failure && <p className={parts.bad}>{failure}</p>}
            </td>
            <td className="muted">{at && <Time at={at} />}</td>
            <td>
              {output.length > 0 ? (
                <Button bare aria-expanded={name === open} onClick={() => setOpen(name === open ? undefined : name)}>
                  {output.length} {output.length === 1 ? 'line' : 'lines'}
                  <span className="unseen"> of {name}</span>
                </Button>
              ) : (
                <span className="muted">none</span>
              )}
            </td>
          </tr>
        ))}
      </Grid>
      {shown && (
        <pre className={`${parts.code} ${css.output}`} tabIndex={0} aria-label={`Output of ${shown.name}`}>
          {shown.output.join('\n')}
        </pre>
      )}
      <p className="muted">
        From the log of <Link to={`${pageOf('machines', machine)}/logs`} search={{ grep: RUNNER } as never}>{machine}</Link>. Without its log, a deployment says in its state whether the scripts ended well.
      </p>
    </>
  );
}

/** Deployments that run a script. */
export function ScriptUses({ script: { metadata } }: { script: BasaltObject }) {
  const { objects } = useList<Deployment>('Deployment', 'deployments');
  const uses = objects.filter(({ spec }) => spec.scripts?.includes(metadata.name));
  if (uses.length === 0) return null;
  return (
    <section className={css.part} aria-labelledby="uses">
      <h2 id="uses">Deployments that run it</h2>
      <ul className={css.list}>
        {uses.map((it) => (
          <li key={it.metadata.uid}>
            <Link to={pageOf('deployments', it.metadata.name)}>{it.metadata.name}</Link>
            {it.status.machine && <span className="muted"> on {it.status.machine}</span>}
          </li>
        ))}
      </ul>
    </section>
  );
}
