import { useQueryClient } from '@tanstack/react-query';
import { useCallback, useEffect, useState } from 'react';
import { Refused, type Schemas } from '../../api/client';
import { useWrites } from '../../app/who';
import { Steps } from '../../pages/machine/Steps';
import { Button } from '../Button';
import { Failure, Loading } from '../Notice';
import { Sheet } from '../Sheet';
import { Dot } from '../State';
import { TagChanges } from '../TagChanges';
import { Words } from '../Words';
import { plain } from '../state';
import { type Outcome, type Proposal, type Tried, alikeOf, carryOut, countsOf, doingOf, doneOf, retry, toldOf, tryOut, verbOf } from './proposal';
import { written } from './value';
import css from './Plan.module.css';
import parts from '../parts.module.css';

export type { Proposal } from './proposal';

interface Props {
  proposal: Proposal;
  close: () => void;
  /** When the sheet closes after it was done, with each outcome. Failures are shown before that. */
  done?: (became: Outcome[]) => void;
}

const titleOf = (proposal: Proposal): string => {
  if (proposal.kind === 'apply') return 'Plan';
  if (proposal.kind === 'delete') return `Plan: delete ${proposal.name}`;
  if (proposal.kind === 'request') return `Plan: ${proposal.verb.charAt(0).toLowerCase()}${proposal.verb.slice(1)}`;
  if (proposal.kind === 'edit') return `Plan: ${proposal.verb.toLowerCase()}`;
  if (proposal.kind === 'release') return 'Plan: release';
  return `Plan: ${doingOf(proposal.wish.verb).toLowerCase()}`;
};

/** Another tool manages it: it has to be taken over, or left alone. */
const managed = (error: unknown): boolean => error instanceof Refused && / is managed by /.test(error.message);

/** What would be done, before anything is; and one button, which does exactly that. */
export function Plan({ proposal, close, done }: Props) {
  const queries = useQueryClient();
  const { off } = useWrites();
  const [adopt, setAdopt] = useState(false);
  const [tried, setTried] = useState<Tried>();
  const [error, setError] = useState<unknown>();
  const [stale, setStale] = useState(false);
  const [busy, setBusy] = useState(false);
  const [outcomes, setOutcomes] = useState<Outcome[]>();
  const [answered, setAnswered] = useState(0);
  const total = 'machines' in proposal ? proposal.machines.length : 1;

  const compute = useCallback(async () => {
    setTried(undefined);
    setError(undefined);
    setAnswered(0);
    try {
      setTried(await tryOut(proposal, adopt, setAnswered));
    } catch (error) {
      setError(error);
    }
  }, [proposal, adopt]);
  useEffect(() => void compute(), [compute]);

  const end = (became: Outcome[] | undefined) => {
    if (became) done?.(became);
    close();
  };
  const apply = async () => {
    if (!tried || busy) return;
    setBusy(true);
    setError(undefined);
    setStale(false);
    setAnswered(0);
    try {
      const became = await (outcomes ? retry(proposal, tried, outcomes, adopt, setAnswered) : carryOut(proposal, tried, adopt, setAnswered));
      void queries.invalidateQueries();
      if (became.some(({ refused }) => refused)) setOutcomes(became);
      else end(became);
    } catch (error) {
      const other = error instanceof Refused && (error.code === 'stale_plan' || error.status === 412);
      if (other) {
        setStale(true);
        await compute();
      } else setError(error);
    } finally {
      setBusy(false);
    }
  };

  const nothing = tried && tried.outcomes.every(({ action, refused }) => refused || action === 'unchanged');
  const why = off || (!tried ? 'the plan is not there yet' : nothing ? 'there is nothing to do' : busy && 'it is being done');
  const hurts = (tried?.disks.length ?? 0) > 0 || proposal.kind === 'delete' || proposal.kind === 'release' || (proposal.kind === 'request' && !!proposal.hurts);
  return (
    <Sheet
      title={titleOf(proposal)}
      close={() => end(outcomes)}
      foot={
        outcomes ? (
          <>
            {outcomes.some(({ missed }) => missed) && (
              <Button off={off || (busy && 'it is being done')} title="No machine is asked twice" onClick={() => void apply()}>
                {busy ? 'Doing it…' : 'Try again'}
              </Button>
            )}
            <Button primary onClick={() => end(outcomes)}>
              Close
            </Button>
          </>
        ) : (
          <>
            <Button primary danger={hurts} off={why} onClick={() => void apply()}>
              {busy ? 'Doing it…' : tried && !nothing ? verbOf(proposal, tried) : 'Apply'}
            </Button>
            <Button onClick={close}>Leave it</Button>
          </>
        )
      }
    >
      {stale && <p className={css.stale}>Things have changed since the plan was made: this is the plan as it is now.</p>}
      {error !== undefined && <Failure error={error} again={outcomes || managed(error) ? undefined : () => void compute()} />}
      {(managed(error) || adopt || (!outcomes && tried?.outcomes.some(({ refused }) => managed(refused)))) && (
        <label className={css.adopt}>
          <input type="checkbox" checked={adopt} onChange={() => setAdopt(!adopt)} />
          Take it over. The tool that manages it will see a difference, and may change it back.
        </label>
      )}
      {!tried && error === undefined && <Loading />}
      {answered > 0 && answered < total && (
        <p className="muted" role="status">
          {answered} of {total} have answered.
        </p>
      )}
      {outcomes ? <Became of={outcomes} done={doneOf(proposal)} /> : tried && <Shown tried={tried} />}
    </Sheet>
  );
}

/** So many are shown whole; of more, each opens by itself. */
const FEW = 3;
/** So many results are listed one by one. */
const MANY = 20;

function Shown({ tried }: { tried: Tried }) {
  const refused = tried.outcomes.filter((outcome) => outcome.refused);
  const changing = tried.outcomes.filter(({ action, refused }) => !refused && action !== 'unchanged');
  return (
    <>
      {tried.summary && <p className={css.summary}>{counted(tried.summary)}</p>}
      <ul className={css.follows}>
        {tried.disks.length > 0 && (
          <li>
            <Dot tone="bad" /> <b>Disks are written or erased</b> of {count(tried.disks)}
          </li>
        )}
        {tried.power.length > 0 && (
          <li>
            <Dot tone="wait" /> <b>Power is switched</b> of {count(tried.power)}
          </li>
        )}
      </ul>
      {tried.advisories.length > 0 && <Advisories of={tried.advisories} />}
      {refused.length > 0 && (
        <section className={css.part}>
          <h2>{refused.length === 1 ? 'One cannot take it' : `${refused.length} cannot take it`}</h2>
          {refused.length <= FEW ? <Results of={refused} /> : <Reasons of={refused} />}
        </section>
      )}
      {changing.length <= FEW
        ? changing.map((outcome) => <Change key={`${outcome.of} ${outcome.name}`} of={outcome} />)
        : alikeOf(changing).map(({ first, names }) => (
            <details key={`${first.of} ${first.name}`}>
              <summary>
                <b>{names.length === 1 ? <span className="mono">{first.name}</span> : names.length}</b>{' '}
                <span className="muted">
                  {names.length > 1 && 'like '}
                  {plain(first.plan?.summary ?? first.action)}
                </span>
              </summary>
              <Names of={names} />
              <Change of={first} />
            </details>
          ))}
      <Consequences of={tried.consequences} />
    </>
  );
}

/** The counts of a summary without those of nothing: `0 created, 1 changed.` */
const counted = (summary: string): string => summary.replace(/\b0 [a-z]+(, |(?=\.))/g, '').replace(/, (?=\.)/, '');

/** Reasons for which many cannot take it, each with its count. The names stand in it. */
function Reasons({ of }: { of: Outcome[] }) {
  return alikeOf(of).map(({ first, names }) => (
    <details key={first.name}>
      <summary>
        <Dot tone="bad" /> <b>{names.length === 1 ? <span className="mono">{first.name}</span> : names.length}</b>{' '}
        <span className="muted">
          {names.length > 1 && 'like '}
          {plain(toldOf(first))}
        </span>
      </summary>
      <Names of={names} />
    </details>
  ));
}

/** Names that are written out; of more there is a count. */
const WRITTEN = 500;

function Names({ of }: { of: string[] }) {
  if (of.length === 1) return null;
  return (
    <p className={`mono ${css.names}`}>
      {of.slice(0, WRITTEN).join(' ')}
      {of.length > WRITTEN && <span className="muted"> and {of.length - WRITTEN} more</span>}
    </p>
  );
}

const count = (names: string[]): string => (names.length <= 3 ? names.join(', ') : `${names.slice(0, 3).join(', ')} and ${names.length - 3} more`);

function Change({ of: { of, name, action, plan } }: { of: Outcome }) {
  return (
    <section className={css.part}>
      <h2>
        {of} <span className="mono">{name}</span> <span className="muted">is {action}</span>
      </h2>
      {plan?.taken_from && <p>It is taken over from {plan.taken_from}.</p>}
      {plan?.interrupts && <p>{plan.interrupts}</p>}
      {plan && plan.changes.length > 0 && (
        <div className={parts.scroll}>
          <table className={parts.grid}>
            <thead>
              <tr>
                <th>field</th>
                <th>before</th>
                <th>after</th>
                <th>takes</th>
              </tr>
            </thead>
            <tbody>
              {plan.changes.map(({ pointer, old, new: next, effect }) => (
                <tr key={pointer}>
                  <td className="mono">{pointer}</td>
                  <td className={css.old}>{written(old)}</td>
                  <td className={css.new}>{written(next)}</td>
                  <td className="muted">{TAKES[effect]}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {plan && plan.steps.length > 0 && (
        <>
          <h3>Then</h3>
          <Steps steps={plan.steps} none="" />
        </>
      )}
      {plan?.waits.map((wait) => (
        <p key={wait.message} className="muted">
          <Words of={plain(wait.message)} />. {wait.human && <Words of={`To do: ${wait.human}.`} />}
        </p>
      ))}
      {plan?.notes?.map((note) => (
        <p key={note} className="muted">
          {note}
        </p>
      ))}
    </section>
  );
}

/** What a change takes. */
const TAKES: Record<Schemas['FieldChange']['effect'], string> = { none: 'effect at once', live: 'effect at once', reboot: 'a reboot', redeploy: 'a new install', replace: 'a new object' };

function Advisories({ of }: { of: Schemas['Advisory'][] }) {
  return (
    <ul className={css.stale} aria-label="Advisories">
      {of.map(({ pointer, message, hint }) => (
        <li key={pointer + message}>
          {pointer && <code>{pointer}</code>} {message}
          {hint && <span className="muted"> · {hint}</span>}
        </li>
      ))}
    </ul>
  );
}

function Consequences({ of }: { of: Schemas['Consequences'] | undefined }) {
  if (!of) return null;
  return (
    <>
      <TagChanges of={of.tags ?? []} />
      {of.machines.length > 0 && <Others of={of} />}
    </>
  );
}

function Others({ of }: { of: Schemas['Consequences'] }) {
  return (
    <section className={css.part}>
      <h2>What follows for other machines</h2>
      {of.machines.map(({ machine, summary, steps }) => (
        <div key={machine}>
          <p>{summary}</p>
          <Steps steps={steps} none="" />
        </div>
      ))}
      {of.not_told > 0 && <p className="muted">And for {of.not_told} more.</p>}
    </section>
  );
}

/** Results of many: those that were refused by their reasons, and the count of the others. */
function Became({ of, done }: { of: Outcome[]; done: string }) {
  const refused = of.filter((outcome) => outcome.refused);
  if (of.length <= MANY) return <Results of={of} />;
  return (
    <>
      <p className={css.summary}>
        {countsOf(of, done)}.
      </p>
      <Reasons of={refused} />
    </>
  );
}

function Results({ of }: { of: Outcome[] }) {
  return (
    <ul className={css.results}>
      {of.map((outcome) => (
        <li key={outcome.name}>
          <Dot tone={outcome.refused ? 'bad' : 'ok'} />
          <span className="mono">{outcome.name}</span>
          <span className="muted">{toldOf(outcome)}</span>
        </li>
      ))}
    </ul>
  );
}
