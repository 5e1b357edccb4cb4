import { useNavigate, useSearch } from '@tanstack/react-router';
import type { Schemas } from '../../api/client';
import { path } from '../../api/client';
import { useRead } from '../../api/objects';
import type { OpenView } from '../../app/routes';
import { Copy, CopyButton, Facts } from '../../parts/Facts';
import { Grid } from '../../parts/Grid';
import { Failure, Loading, Notice } from '../../parts/Notice';
import { Dot } from '../../parts/State';
import { Time, useNow } from '../../parts/Time';
import { plain } from '../../parts/state';
import { until } from '../../parts/time';
import { useMachine } from './Machine';
import { type Operation, isOpen, tookOf, toneOf, wordsOf } from './asked';
import css from './Machine.module.css';
import parts from '../../parts/parts.module.css';

/** An operation ends without a change of its machine. */
const EVERY = 3_000;

/** Everything that the machine was asked for once, the latest first, with the output of scripts. The address names the one that is open. */
export function Asked() {
  const { name } = useMachine().metadata;
  const { of } = useSearch({ strict: false }) as OpenView;
  const navigate = useNavigate();
  const now = useNow();
  const { data, error, refetch } = useRead<Schemas['OperationList']>(path('machines', name, 'operations'), EVERY);
  if (error) return <Failure error={error} again={() => void refetch()} />;
  if (!data) return <Loading inside />;
  if (data.items.length === 0)
    return (
      <Notice inside title="Nothing was asked of it yet.">
        <p className="muted">Power, tests, a script, a rescue: each stands here with its end and its output.</p>
      </Notice>
    );
  const turn = (id: string) => void navigate({ to: '.', search: { of: id === of ? undefined : id }, replace: true } as never);
  return (
    <Grid label="Operations" heads={['asked', 'for', 'state', 'by', 'took']}>
      {data.items.map((it) => [
        <tr key={it.id}>
          <td className={css.when}>
            <Time at={it.accepted_at} />
          </td>
          <td>
            <button type="button" className={css.open} aria-expanded={it.id === of} onClick={() => turn(it.id)}>
              {wordsOf(it)}
            </button>
          </td>
          <td>
            <Dot tone={toneOf(it)} /> {it.state} <span className="muted">· {plain(it.message)}</span>
            {isOpen(it) && <span className="muted"> · until {until(it.deadline, now)}</span>}
          </td>
          <td className="muted">{it.requested_by}</td>
          <td className="muted">{tookOf(it, Math.max(now, Date.now()))}</td>
        </tr>,
        it.id === of && (
          <tr key={`${it.id} more`}>
            <td colSpan={5}>
              <More of={it} />
            </td>
          </tr>
        ),
      ])}
    </Grid>
  );
}

function More({ of: { id, reason, accepted_at, begun_at, finished_at, deadline, output, verb } }: { of: Operation }) {
  return (
    <div className={css.part}>
      <Facts
        of={[
          ['Reason', reason],
          ['Asked', <Time key="asked" at={accepted_at} />],
          ['Begun', begun_at && <Time at={begun_at} />],
          ['Ended', finished_at && <Time at={finished_at} />],
          ['Its end is', !finished_at && <Time at={deadline} />],
          ['Id', <Copy key="id" text={id} />],
        ]}
      />
      {output ? (
        <>
          <div className={css.row}>
            <h2>Output</h2>
            <CopyButton text={() => output} />
          </div>
          <pre className={`${parts.code} ${css.output}`} tabIndex={0} aria-label="Output">
            {output}
          </pre>
        </>
      ) : (
        verb === 'run_script' && <p className="muted">{finished_at ? 'It said nothing.' : 'Its output comes with its end.'}</p>
      )}
    </div>
  );
}
