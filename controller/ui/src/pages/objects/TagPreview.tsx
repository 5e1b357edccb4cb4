import { useQuery } from '@tanstack/react-query';
import { useEffect, useMemo, useState } from 'react';
import { type Schemas, ask } from '../../api/client';
import type { BasaltObject } from '../../api/object';
import { useWrites } from '../../app/who';
import { Button } from '../../parts/Button';
import { Failure, Loading } from '../../parts/Notice';
import { TagChanges } from '../../parts/TagChanges';
import { Plan } from '../../parts/plan/Plan';
import { withExpression } from './tag';
import css from '../machine/Machine.module.css';
import form from './Form.module.css';

/** After so long without a letter the expression counts. */
const PAUSE = 400;

/** The machines that gain and lose the tag by another expression, before it is declared. */
export function TagPreview({ tag }: { tag: BasaltObject }) {
  const { may, off } = useWrites();
  const declared = String(tag.spec.expression ?? '');
  const [typed, setTyped] = useState(declared);
  const [text, setText] = useState(declared);
  const [open, setOpen] = useState(false);
  useEffect(() => setTyped(declared), [declared]);
  useEffect(() => {
    const timer = setTimeout(() => setText(typed.trim()), PAUSE);
    return () => clearTimeout(timer);
  }, [typed]);
  const isChanged = text !== declared.trim();
  const document = useMemo(() => withExpression(tag, text), [tag, text]);
  const { data, error, isFetching } = useQuery({
    queryKey: ['tags', tag.metadata.name, 'preview', text],
    queryFn: () => ask<Schemas['ApplyResponse']>('/api/v1/apply?dry_run=true', { method: 'POST', body: { documents: [document] } }),
    enabled: isChanged,
    retry: false,
  });
  const proposal = useMemo(() => ({ kind: 'apply' as const, documents: [document] }), [document]);
  const changes = data?.consequences?.tags ?? [];
  const isOld = isFetching || typed.trim() !== text;
  return (
    <section className={css.part} aria-labelledby="preview">
      <h2 id="preview">Another expression</h2>
      <div className={form.field}>
        <label htmlFor="expression">Expression</label>
        <textarea
          id="expression"
          value={typed}
          spellCheck={false}
          aria-describedby="expression-says"
          aria-invalid={isChanged && error ? true : undefined}
          onChange={({ target }) => setTyped(target.value)}
        />
        <p id="expression-says" className={form.says}>
          CEL over the hardware of a machine, like cpu.cores &gt;= 32 &amp;&amp; gpu.count &gt; 0. Nothing changes before its plan is applied.
        </p>
      </div>
      <div role="status">
        {!isChanged && <p className="muted">This is the declared one. Write another one to see which machines gain and lose the tag.</p>}
        {isChanged && isOld && <Loading inside />}
        {isChanged && !isOld && error && <Failure error={error} />}
        {isChanged && !isOld && data && <TagChanges of={changes} />}
      </div>
      {may && (
        <div className={css.row}>
          <Button off={off || (!isChanged && 'nothing was changed') || (isOld && 'the region is being asked') || (error !== null && 'the region refuses it')} onClick={() => setOpen(true)}>
            Show the plan
          </Button>
          {isChanged && <Button onClick={() => setTyped(declared)}>Leave it</Button>}
        </div>
      )}
      {open && <Plan proposal={proposal} close={() => setOpen(false)} />}
    </section>
  );
}
