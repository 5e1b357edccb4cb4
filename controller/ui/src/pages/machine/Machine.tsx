import { Link, Outlet, useParams } from '@tanstack/react-router';
import { createContext, useContext, useMemo, useState } from 'react';
import { isGone, useObject } from '../../api/objects';
import type { Schemas } from '../../api/client';
import type { Machine as MachineObject } from '../../api/object';
import { useCommands } from '../../app/commands';
import { MACHINE_TABS } from '../../app/routes';
import { useWrites } from '../../app/who';
import { Button } from '../../parts/Button';
import { Manager } from '../../parts/Manager';
import { Failure, Loading } from '../../parts/Notice';
import { StateLine } from '../../parts/State';
import { Time } from '../../parts/Time';
import { Words } from '../../parts/Words';
import { Plan, type Proposal } from '../../parts/plan/Plan';
import { useNow } from '../../parts/Time';
import { plain, stateOf } from '../../parts/state';
import { until } from '../../parts/time';
import { Rename } from '../objects/Rename';
import { Operations } from './Operations';
import css from './Machine.module.css';
import parts from '../../parts/parts.module.css';

const Shown = createContext<MachineObject | undefined>(undefined);

/** The machine of the page. */
export function useMachine(): MachineObject {
  const machine = useContext(Shown);
  if (!machine) throw new Error('no machine is shown');
  return machine;
}

export function Machine() {
  const { name } = useParams({ strict: false }) as { name: string };
  const { data: machine, error, refetch } = useObject<MachineObject>('Machine', 'machines', name);
  const failure = error && <Failure error={error} again={() => void refetch()} />;
  if (failure && (!machine || isGone(error))) return failure;
  if (!machine) return <Loading />;
  return (
    <Shown value={machine}>
      {failure}
      <Head machine={machine} />
      <nav className={parts.tabs} aria-label="About this machine">
        {MACHINE_TABS.map(({ title, path }) => (
          <Link
            key={title}
            to={`/machines/$name/${path}` as '/machines/$name'}
            params={{ name }}
            activeOptions={{ exact: true, includeSearch: false }}
            activeProps={{ 'aria-current': 'page' }}
          >
            {title}
          </Link>
        ))}
      </nav>
      <div className={css.body}>
        <Outlet />
      </div>
    </Shown>
  );
}

function Head({ machine }: { machine: MachineObject }) {
  const { name } = machine.metadata;
  const { may, off } = useWrites();
  const [proposal, setProposal] = useState<Proposal>();
  const { data: waits } = useObject<Schemas['Waits']>('Machine', 'machines', name, 'waits');
  const state = stateOf(machine as never);
  const remove = () => setProposal({ kind: 'delete', of: 'Machine', plural: 'machines', name });
  useCommands(
    useMemo(
      () => (may ? [{ title: `Delete ${name}`, run: () => setProposal({ kind: 'delete', of: 'Machine', plural: 'machines', name }) }] : []),
      [may, name],
    ),
  );
  return (
    <header className={css.head}>
      <div className={css.line}>
        <h1 className="mono">{name}</h1>
        {machine.spec.locked && <span className={parts.chip}>locked</span>}
        <Manager of={machine.metadata.manager} />
        {may && (
          <span className={css.actions}>
            <Operations machine={machine} />
            <Rename kind="Machine" plural="machines" name={name} />
            <Button danger off={off} onClick={remove}>
              Delete…
            </Button>
          </span>
        )}
      </div>
      <StateLine state={state} whole />
      <Waits waits={(waits?.waits ?? []).filter((wait) => plain(wait.message) !== state.reason)} />
      {proposal && <Plan proposal={proposal} close={() => setProposal(undefined)} />}
    </header>
  );
}

/** What else it waits for: until when, and what somebody can do. */
function Waits({ waits }: { waits: Schemas['Wait'][] }) {
  const now = useNow();
  if (waits.length === 0) return null;
  return (
    <ul className={css.waits} aria-label="Waits">
      {waits.map((wait) => (
        <li key={wait.cause + wait.message}>
          <span>{plain(wait.message)}</span>
          <span className="muted">
            since <Time at={wait.since} />
            {wait.deadline && <> · until {until(wait.deadline, now)}</>}
          </span>
          {(wait.human ?? wait.remedy) && (
            <span>
              <b>To do:</b> <Words of={wait.human ?? wait.remedy ?? ''} />
            </span>
          )}
        </li>
      ))}
    </ul>
  );
}
