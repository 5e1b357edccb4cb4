import { useQuery } from '@tanstack/react-query';
import { useCallback, useMemo, useState } from 'react';
import { type Schemas, ask, path } from '../../api/client';
import type { Machine } from '../../api/object';
import { useCommands } from '../../app/commands';
import { useWrites } from '../../app/who';
import { Button } from '../../parts/Button';
import { Plan } from '../../parts/plan/Plan';
import { type Verb, type Wish, doingOf, wishOf } from '../../parts/plan/proposal';
import { WishSheet, needsWords } from './WishSheet';

/** A verb that is `rare` is shown while the machine takes it. */
const VERBS: { verb: Verb; title: string; rare?: boolean }[] = [
  { verb: 'power_on', title: 'On' },
  { verb: 'power_off', title: 'Off' },
  { verb: 'power_cycle', title: 'Cycle' },
  { verb: 'recommission', title: 'Recommission' },
  { verb: 'test', title: 'Test' },
  { verb: 'override_tests', title: 'Override tests', rare: true },
  { verb: 'run_script', title: 'Run a script' },
  { verb: 'rescue', title: 'Rescue' },
  { verb: 'abort', title: 'Abort' },
  { verb: 'reset_bmc', title: 'Reset BMC' },
];

/** What can be asked of it now; and of the rest, why not. */
export function Operations({ machine }: { machine: Machine }) {
  const { name } = machine.metadata;
  const { off } = useWrites();
  const [verb, setVerb] = useState<Verb>();
  const [wish, setWish] = useState<Wish>();
  const { data: refusals } = useQuery({
    queryKey: ['machines', name, 'actions'],
    queryFn: async () => {
      const { items } = await ask<Schemas['Actions']>(path('machines', name, 'actions'));
      return new Map(items.map(({ verb, problem }) => [verb, problem ? (problem.detail ?? problem.title) : (false as const)]));
    },
  });
  const start = useCallback((verb: Verb) => {
    setVerb(verb);
    setWish(needsWords(verb) ? undefined : wishOf(verb));
  }, []);
  const end = () => setVerb(undefined);
  const proposal = useMemo(() => verb && wish && { kind: 'operation' as const, wish, machines: [name] }, [verb, wish, name]);
  useCommands(
    useMemo(
      () =>
        VERBS.filter(({ verb }) => refusals?.get(verb) === false).map(({ verb }) => ({ title: `${doingOf(verb)} ${name}`, run: () => start(verb) })),
      [name, refusals, start],
    ),
  );
  return (
    <>
      {VERBS.filter(({ verb, rare }) => !rare || refusals?.get(verb) === false).map(({ verb, title }) => (
        <Button key={verb} off={off || (refusals?.get(verb) ?? (refusals ? false : 'the region is being asked'))} title={doingOf(verb)} onClick={() => start(verb)}>
          {title}
        </Button>
      ))}
      {verb && !proposal && <WishSheet verb={verb} close={end} wish={setWish} />}
      {proposal && <Plan proposal={proposal} close={end} />}
    </>
  );
}
