import { useQuery } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { Refused, ask, path } from '../../api/client';
import type { Machine } from '../../api/object';
import { useCommands } from '../../app/commands';
import { useWrites } from '../../app/who';
import { Button } from '../../parts/Button';
import { Plan } from '../../parts/plan/Plan';
import { type Verb, doingOf } from '../../parts/plan/proposal';

const VERBS: { verb: Verb; title: string }[] = [
  { verb: 'power_on', title: 'On' },
  { verb: 'power_off', title: 'Off' },
  { verb: 'power_cycle', title: 'Cycle' },
  { verb: 'recommission', title: 'Recommission' },
  { verb: 'abort', title: 'Abort' },
];

/** What can be asked of it now; and of the rest, why not, as the region says when it is tried. */
export function Operations({ machine }: { machine: Machine }) {
  const { name } = machine.metadata;
  const { off } = useWrites();
  const [verb, setVerb] = useState<Verb>();
  const { data: refusals } = useQuery({
    queryKey: ['machines', name, 'able'],
    queryFn: async () => {
      const tried = VERBS.map(async ({ verb }): Promise<[Verb, string | false]> => {
        try {
          await ask(`${path('machines', name, 'operations')}?dry_run=true`, { method: 'POST', body: { verb } });
          return [verb, false];
        } catch (error) {
          if (!(error instanceof Refused) || error.status === 0 || error.status === 503) throw error;
          return [verb, error.message];
        }
      });
      return new Map(await Promise.all(tried));
    },
  });
  const proposal = useMemo(() => verb && { kind: 'operation' as const, verb, machines: [name] }, [verb, name]);
  useCommands(
    useMemo(
      () =>
        VERBS.filter(({ verb }) => refusals?.get(verb) === false).map(({ verb }) => ({ title: `${doingOf(verb)} ${name}`, run: () => setVerb(verb) })),
      [name, refusals],
    ),
  );
  return (
    <>
      {VERBS.map(({ verb, title }) => (
        <Button key={verb} off={off || (refusals?.get(verb) ?? (refusals ? false : 'the region is being asked'))} title={doingOf(verb)} onClick={() => setVerb(verb)}>
          {title}
        </Button>
      ))}
      {proposal && <Plan proposal={proposal} close={() => setVerb(undefined)} />}
    </>
  );
}
