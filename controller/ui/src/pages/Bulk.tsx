import { useMemo, useState } from 'react';
import type { Machine } from '../api/object';
import { useWrites } from '../app/who';
import { Button } from '../parts/Button';
import { Menu, menu } from '../parts/Menu';
import { Plan, type Proposal } from '../parts/plan/Plan';
import { type Verb, type Wish, doingOf, wishOf } from '../parts/plan/proposal';
import { type Asking, BulkSheet } from './BulkSheet';
import { takenBy } from './bulk';
import { WishSheet, needsWords } from './machine/WishSheet';
import css from './List.module.css';

const VERBS: Verb[] = ['power_on', 'power_off', 'power_cycle', 'recommission', 'test', 'override_tests', 'run_script', 'rescue', 'abort', 'reset_bmc'];

const ASKING: { asking: Asking; title: string }[] = [
  { asking: 'deploy', title: 'Deploy…' },
  { asking: 'tag', title: 'Tag…' },
  { asking: 'place', title: 'Zone or pool…' },
];

/** What is asked, of the machines of the moment at which it was. */
interface Asked {
  asking?: Asking;
  verb?: Verb;
  wish?: Wish;
  proposal?: Proposal;
  machines: Machine[];
}

/** What can be done with the machines that are selected. It stays while any are, whatever their state. */
export function Bulk({ machines, release }: { machines: Machine[]; release: (machines: readonly Machine[]) => void }) {
  const { off } = useWrites();
  const [asked, setAsked] = useState<Asked>();
  const end = () => setAsked(undefined);
  const proposal = useMemo((): Proposal | undefined => {
    if (!asked?.wish) return asked?.proposal;
    return { kind: 'operation', wish: asked.wish, machines: asked.machines.map(({ metadata }) => metadata.name) };
  }, [asked]);
  return (
    <div className={css.bulk} role="toolbar" aria-label="Selected machines">
      <b>{machines.length} selected</b>
      {ASKING.map(({ asking, title }) => (
        <Button key={asking} off={off} onClick={() => setAsked({ asking, machines })}>
          {title}
        </Button>
      ))}
      <Button off={off} onClick={() => setAsked({ machines, proposal: { kind: 'release', machines: machines.map(({ metadata }) => metadata.name) } })}>
        Release…
      </Button>
      <More off={off} choose={(verb) => setAsked({ verb, wish: needsWords(verb) ? undefined : wishOf(verb), machines })} />
      <Button bare onClick={() => release(machines)}>
        Let go
      </Button>
      {asked?.asking && !proposal && <BulkSheet asking={asked.asking} machines={asked.machines} close={end} propose={(proposal) => setAsked({ ...asked, proposal })} />}
      {asked?.verb && !proposal && <WishSheet verb={asked.verb} close={end} wish={(wish) => setAsked({ ...asked, wish })} />}
      {proposal && <Plan proposal={proposal} close={end} done={(became) => release(takenBy(asked?.machines ?? [], became))} />}
    </div>
  );
}

/** The operations, in a list that opens. */
function More({ off, choose }: { off: string | false; choose: (verb: Verb) => void }) {
  return (
    <Menu title="More…" off={off}>
      {(close) => (
        <div className={menu(true)} role="group" aria-label="More operations">
          {VERBS.map((verb) => (
            <Button
              key={verb}
              bare
              onClick={() => {
                close();
                choose(verb);
              }}
            >
              {doingOf(verb)}…
            </Button>
          ))}
        </div>
      )}
    </Menu>
  );
}
