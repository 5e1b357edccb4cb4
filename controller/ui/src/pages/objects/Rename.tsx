import { useNavigate } from '@tanstack/react-router';
import { useCallback, useMemo, useState } from 'react';
import { useCommands } from '../../app/commands';
import { pageOf } from '../../app/sections';
import { useWrites } from '../../app/who';
import { Button } from '../../parts/Button';
import { Plan } from '../../parts/plan/Plan';
import { FormSheet } from '../FormSheet';
import css from './Form.module.css';

interface Props {
  kind: string;
  plural: string;
  name: string;
}

/** Asks for another name, shows the plan with the objects that refer to it, and goes to the page of the new name. */
export function Rename({ kind, plural, name }: Props) {
  const navigate = useNavigate();
  const { off } = useWrites();
  const [open, setOpen] = useState(false);
  const [to, setTo] = useState<string>();
  const begin = useCallback(() => setOpen(true), []);
  useCommands(useMemo(() => [{ title: `Rename ${name}`, run: begin }], [name, begin]));
  const proposal = useMemo(
    () => to && { kind: 'request' as const, of: kind, plural, name, at: 'rename' as const, body: { name: to }, verb: `Rename ${name}` },
    [kind, plural, name, to],
  );
  const end = () => {
    setOpen(false);
    setTo(undefined);
  };
  const submit = (form: FormData) => void setTo(String(form.get('name') ?? '').trim());
  return (
    <>
      <Button off={off} onClick={begin}>
        Rename…
      </Button>
      {open && !proposal && (
        <FormSheet title={`Rename ${name}`} close={end} submit={submit}>
          <div className={css.field}>
            <label htmlFor="rename-to">New name</label>
            <input id="rename-to" name="name" className="mono" required autoComplete="off" spellCheck={false} data-first defaultValue={name} aria-describedby="rename-says" />
            <p id="rename-says" className={css.says}>
              Objects that refer to it follow.
            </p>
          </div>
        </FormSheet>
      )}
      {proposal && <Plan proposal={proposal} close={end} done={() => void navigate({ to: pageOf(plural, to ?? name) })} />}
    </>
  );
}
