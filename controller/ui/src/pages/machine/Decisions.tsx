import { useSearch } from '@tanstack/react-router';
import { useEffect, useRef, useState } from 'react';
import { type Schemas, ask, path } from '../../api/client';
import { useObject } from '../../api/objects';
import type { OpenView } from '../../app/routes';
import { Button } from '../../parts/Button';
import { Grid } from '../../parts/Grid';
import { Failure, Loading, Notice } from '../../parts/Notice';
import { Time } from '../../parts/Time';
import { plain } from '../../parts/state';
import { useMachine } from './Machine';
import css from './Machine.module.css';

type Decision = Schemas['Decision'];

export function Decisions() {
  const { name } = useMachine().metadata;
  return <DecisionsOf kind="Machine" plural="machines" name={name} />;
}

/** Why it was done: each decision, and whether this version of the planner would decide so again. */
export function DecisionsOf({ kind, plural, name }: { kind: string; plural: string; name: string }) {
  const { data, error, refetch } = useObject<Schemas['Decisions']>(kind, plural, name, 'decisions');
  const [replayed, setReplayed] = useState<ReadonlyMap<number, Schemas['Replay']>>(new Map());
  const [failed, setFailed] = useState<unknown>();
  const { of } = useSearch({ strict: false }) as OpenView;
  const meant = useRef<HTMLTableRowElement>(null);
  const isRead = data !== undefined;
  useEffect(() => meant.current?.scrollIntoView({ block: 'center' }), [isRead, of]);
  if (error) return <Failure error={error} again={() => void refetch()} />;
  if (!data) return <Loading inside />;
  if (data.decisions.length === 0) return (
      <Notice inside title="Nothing has been decided about it yet.">
        <p className="muted">Each step that the region chooses for it stands here with its reason: power, commissioning, the machine of a deployment.</p>
      </Notice>
    );
  const replay = async () => {
    setFailed(undefined);
    try {
      const { decisions } = await ask<Schemas['Decisions']>(`${path(plural, name, 'decisions')}?replay=true`);
      setReplayed(new Map(decisions.flatMap((it) => (it.detail?.replay ? [[it.id, it.detail.replay] as const] : []))));
    } catch (error) {
      setFailed(error);
    }
  };
  return (
    <>
      <div className={css.row}>
        <Button onClick={() => void replay()}>Decide again</Button>
        <span className="muted">The planner of this version is given what each decision was made from. Nothing changes.</span>
      </div>
      {failed !== undefined && <Failure error={failed} />}
      <Grid label="Decisions" heads={['when', 'decided', 'step', 'generation', 'again']}>
        {data.decisions.map((it: Decision) => (
          <tr key={it.id} ref={it.step_key === of ? meant : undefined} aria-current={it.step_key === of ? true : undefined}>
            <td className={css.when}>
              <Time at={it.at} />
            </td>
            <td>{plain(it.message)}</td>
            <td className="mono muted">{it.step_key}</td>
            <td className="muted">{it.generation}</td>
            <td className="muted">
              {replayed.get(it.id)?.verdict}
              {replayed.get(it.id)?.message && ` · ${replayed.get(it.id)?.message}`}
            </td>
          </tr>
        ))}
      </Grid>
    </>
  );
}
