import { useState } from 'react';
import type { Schemas } from '../../api/client';
import { useObject } from '../../api/objects';
import { Grid } from '../../parts/Grid';
import { Failure, Loading, Notice } from '../../parts/Notice';
import { Time } from '../../parts/Time';
import { capital, plain } from '../../parts/state';
import { Axis } from './Axis';
import { useMachine } from './Machine';
import css from './Machine.module.css';
import parts from '../../parts/parts.module.css';

type Entry = Schemas['TimelineEntry'];
const KINDS: Entry['kind'][] = ['change', 'fact', 'step', 'condition'];

export function Timeline() {
  const { name, uid } = useMachine().metadata;
  return <TimelineOf kind="Machine" plural="machines" name={name} uid={uid} />;
}

/** What happened, the latest first. */
export function TimelineOf({ kind, plural, name, uid }: { kind: string; plural: string; name: string; uid?: string }) {
  const { data, error, refetch } = useObject<Schemas['Timeline']>(kind, plural, name, 'timeline');
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  if (error) return <Failure error={error} again={() => void refetch()} />;
  if (!data) return <Loading inside />;
  if (data.entries.length === 0) return <Notice inside title="Nothing has happened to it yet." />;
  const entries = data.entries.filter((entry) => !hidden.has(entry.kind)).sort((a, b) => b.at.localeCompare(a.at));
  const turn = (kind: string) => {
    const next = new Set(hidden);
    if (!next.delete(kind)) next.add(kind);
    setHidden(next);
  };
  return (
    <>
      {uid && <Axis machine={{ name, uid }} entries={data.entries} />}
      <fieldset className={css.row} style={{ border: 0, padding: 0, margin: 0 }}>
        <legend className="unseen">What is shown</legend>
        {KINDS.map((kind) => (
          <label key={kind} className={css.row}>
            <input type="checkbox" checked={!hidden.has(kind)} onChange={() => turn(kind)} />
            {capital(kind)}s
          </label>
        ))}
      </fieldset>
      <Grid label="Timeline" heads={['when', 'what', 'happened', 'source', 'took']}>
        {entries.map((entry, place) => (
          <tr key={`${entry.at} ${entry.reason} ${place}`}>
            <td className={css.when}>
              <Time at={entry.at} />
            </td>
            <td className="muted">{entry.kind}</td>
            <td>
              {worded(entry)}
              {errorOf(entry) && <span className={parts.bad}>: {errorOf(entry)}</span>}
            </td>
            <td className="muted">{entry.source}</td>
            <td className="muted">{entry.took}</td>
          </tr>
        ))}
      </Grid>
    </>
  );
}

/** An operation begins its message with its verb: `run_script was asked for`. */
const worded = ({ kind, message }: Entry): string => plain(kind === 'step' ? message.replace(/^[a-z]+(_[a-z]+)+/, (verb) => verb.replaceAll('_', ' ')) : message);

/** Why a step failed. */
const errorOf = ({ data }: Entry): string | undefined => (data as { error?: string } | undefined)?.error;
