import { type FormEvent, type ReactNode, useId, useState } from 'react';
import { Button } from '../parts/Button';
import { Sheet } from '../parts/Sheet';
import css from './objects/Form.module.css';
import parts from '../parts/parts.module.css';

interface Props {
  title: string;
  close: () => void;
  /** Takes the fields. Its answer is the reason why there is no plan yet. */
  submit: (form: FormData) => string | undefined;
  /** Why no plan can be made now. */
  off?: string;
  /** Stands before the fields, outside of their form. */
  head?: ReactNode;
  children: ReactNode;
}

/** Fields in a sheet, whose plan comes next. */
export function FormSheet({ title, close, submit, off, head, children }: Props) {
  const id = useId();
  const [fault, setFault] = useState<string>();
  const send = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (!off) setFault(submit(new FormData(event.currentTarget)));
  };
  return (
    <Sheet
      title={title}
      close={close}
      foot={
        <>
          <button type="submit" form={id} className={`${parts.button} ${parts.primary}`} aria-disabled={off ? true : undefined} title={off}>
            Show the plan
          </button>
          <Button onClick={close}>Leave it</Button>
        </>
      }
    >
      {head}
      <form id={id} className={css.form} onSubmit={send}>
        {children}
        {fault && (
          <p className={css.fault} role="alert">
            {fault}
          </p>
        )}
      </form>
    </Sheet>
  );
}
