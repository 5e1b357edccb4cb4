import { useNavigate, useSearch } from '@tanstack/react-router';
import { type FormEvent } from 'react';
import parts from '../parts/parts.module.css';
import machine from './machine/Machine.module.css';
import { BootLadders } from './machine/Boots';

/** Why does it not boot? Of a MAC that no machine has, too. */
export function BootsOf() {
  const { of } = useSearch({ strict: false }) as { of?: string };
  const navigate = useNavigate();
  const look = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const asked = String(new FormData(event.currentTarget).get('of') ?? '').trim();
    void navigate({ to: '/boots', search: { of: asked || undefined } });
  };
  return (
    <div className={machine.body}>
      <h1 className="unseen">Why does it not boot?</h1>
      <form className={machine.row} onSubmit={look}>
        <input name="of" aria-label="MAC, or name of a machine" placeholder="52:54:00:12:34:56" defaultValue={of} required className="mono" />
        <button type="submit" className={parts.button}>
          Look
        </button>
        <span className="muted">a MAC, or a machine's name</span>
      </form>
      {!of && <p className="muted">What a machine asked as it booted, what each rack answered, and why it was refused. An undeclared machine is found by its MAC; the page is live while it boots.</p>}
      {of && <BootLadders key={of} of={of} />}
    </div>
  );
}
