import { useMemo, useState } from 'react';
import type { Machine } from '../api/object';
import { useWrites } from '../app/who';
import { Button } from '../parts/Button';
import { Plan } from '../parts/plan/Plan';
import { type Outcome, type Verb, type Wish, doingOf, wishOf } from '../parts/plan/proposal';
import { WishSheet, needsWords } from './machine/WishSheet';
import css from './List.module.css';

const VERBS: Verb[] = ['power_on', 'power_off', 'power_cycle', 'recommission', 'test', 'run_script'];

/** What can be done with the machines that are selected. It stays while any are, whatever their state. */
export function Bulk({ machines, release }: { machines: Machine[]; release: (machines: readonly Machine[]) => void }) {
  const { off } = useWrites();
  const [asked, setAsked] = useState<{ verb: Verb; wish?: Wish; machines: Machine[] }>();
  // The machines are those of the moment at which it was asked.
  const proposal = useMemo(() => asked?.wish && { kind: 'operation' as const, wish: asked.wish, machines: asked.machines.map(({ metadata }) => metadata.name) }, [asked]);
  return (
    <div className={css.bulk} role="toolbar" aria-label="Selected machines">
      <b>{machines.length} selected</b>
      {VERBS.map((verb) => (
        <Button key={verb} off={off} onClick={() => setAsked({ verb, wish: needsWords(verb) ? undefined : wishOf(verb), machines })}>
          {doingOf(verb)}…
        </Button>
      ))}
      <Button bare onClick={() => release(machines)}>
        Let go
      </Button>
      {asked && !proposal && <WishSheet verb={asked.verb} close={() => setAsked(undefined)} wish={(wish) => setAsked({ ...asked, wish })} />}
      {proposal && <Plan proposal={proposal} close={() => setAsked(undefined)} done={(became) => release(takenBy(asked?.machines ?? [], became))} />}
    </div>
  );
}

/** The machines that took it. The others stay selected: refused, failed and not asked. */
export function takenBy(machines: readonly Machine[], became: readonly Outcome[]): Machine[] {
  const took = new Set(became.filter(({ refused }) => !refused).map(({ name }) => name));
  return machines.filter(({ metadata }) => took.has(metadata.name));
}
