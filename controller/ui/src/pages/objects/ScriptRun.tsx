import { useDeferredValue, useMemo, useState } from 'react';
import { reload, useList } from '../../api/live';
import type { Schemas } from '../../api/client';
import type { BasaltObject, Machine } from '../../api/object';
import { useWrites } from '../../app/who';
import { FilterBox } from '../../filter/FilterBox';
import { MACHINES } from '../../filter/machines';
import { Button } from '../../parts/Button';
import { Failure } from '../../parts/Notice';
import { Plan } from '../../parts/plan/Plan';
import type { Wish } from '../../parts/plan/proposal';
import { FormSheet } from '../FormSheet';
import { ParameterFields, parametersOf } from './ParameterFields';
import { targetsOf } from './targets';

/** Runs a script on the machines that match a filter, after the plan for each of them. */
export function ScriptRun({ script: { metadata, spec } }: { script: BasaltObject }) {
  const { name } = metadata;
  const { off } = useWrites();
  const { objects, phase, error } = useList<Machine>('Machine', 'machines');
  const [open, setOpen] = useState(false);
  const [text, setText] = useState('');
  const [asked, setAsked] = useState<{ wish: Wish; machines: string[] }>();
  const filter = useDeferredValue(text);
  const targets = useMemo(() => (open ? targetsOf(filter, { objects, phase, error }) : undefined), [open, objects, phase, error, filter]);
  const proposal = useMemo(() => asked && { kind: 'operation' as const, ...asked }, [asked]);
  const end = () => {
    setOpen(false);
    setAsked(undefined);
  };
  const submit = (form: FormData) => {
    // The shown count may still be of an earlier text.
    const { machines, refusal } = targetsOf(text, { objects, phase, error });
    if (refusal) return refusal;
    setAsked({
      wish: { verb: 'run_script', script: name, parameters: parametersOf(form) },
      machines: machines.map(({ metadata }) => metadata.name),
    });
  };
  const count = `${targets?.machines.length} of ${objects.length} ${objects.length === 1 ? 'machine' : 'machines'}`;
  return (
    <>
      <Button off={off || (phase === 'ready' && objects.length === 0 && 'there is no machine')} onClick={() => setOpen(true)}>
        Run…
      </Button>
      {open && !proposal && (
        <FormSheet
          title={`Run ${name}`}
          close={end}
          submit={submit}
          off={targets?.refusal}
          head={
            <>
              <div>
                <FilterBox text={text} change={setText} rows={MACHINES} all={objects} />
              </div>
              {error !== undefined && <Failure error={error} again={() => reload('Machine', 'machines')} />}
              <p role="status" className="muted">
                {targets?.refusal ?? `On ${count}.`}
              </p>
            </>
          }
        >
          <ParameterFields of={(spec.parameters ?? {}) as unknown as Record<string, Schemas['ScriptParameter']>} />
        </FormSheet>
      )}
      {proposal && <Plan proposal={proposal} close={end} />}
    </>
  );
}
