import type { ReactNode } from 'react';
import { Refused } from '../api/client';
import { Button } from './Button';
import css from './parts.module.css';

/** What stands where there is nothing to show, and what to do. */
export function Notice({ title, inside, children }: { title: string; inside?: boolean; children?: ReactNode }) {
  const Heading = inside ? 'h2' : 'h1';
  return (
    <div className={`${css.notice} ${inside ? css.inside : ''}`}>
      <Heading>{title}</Heading>
      {children}
    </div>
  );
}

/** A refusal in the region's words: what failed, where, with what value. */
export function Failure({ error, again }: { error: unknown; again?: () => void }) {
  const problem = error instanceof Refused ? error.problem : undefined;
  return (
    <div className={css.problem} role="alert">
      <p>{error instanceof Error ? error.message : String(error)}</p>
      {(problem?.errors?.length ?? 0) > 0 && (
        <ul>
          {problem?.errors?.map(({ pointer, message, hint }) => (
            <li key={pointer + message}>
              {pointer && <code>{pointer}</code>} {message}
              {hint && <span className="muted"> · {hint}</span>}
            </li>
          ))}
        </ul>
      )}
      {problem?.request_id && <p className="faint mono">request {problem.request_id}</p>}
      {again && <Button onClick={again}>Try again</Button>}
    </div>
  );
}

export function Loading({ inside }: { inside?: boolean }) {
  return (
    <div className={`${css.notice} ${inside ? css.inside : ''}`} role="status">
      <span className="muted">Reading…</span>
    </div>
  );
}
