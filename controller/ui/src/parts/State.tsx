import type { State } from './state';
import { useNow } from './Time';
import { until } from './time';
import { Words } from './Words';
import css from './parts.module.css';

/** A dot whose shape says the tone as well: nothing is said by colour alone. */
export function Dot({ tone }: { tone: State['tone'] }) {
  return (
    <svg className={`${css.dot} ${css[tone]}`} viewBox="0 0 10 10" aria-hidden="true">
      {tone === 'ok' && <circle cx="5" cy="5" r="4" fill="currentColor" />}
      {tone === 'busy' && (
        <>
          <circle cx="5" cy="5" r="3.5" fill="none" stroke="currentColor" strokeWidth="1.5" />
          <path d="M5 1.5a3.5 3.5 0 0 1 0 7Z" fill="currentColor" />
        </>
      )}
      {tone === 'wait' && <circle cx="5" cy="5" r="3.25" fill="none" stroke="currentColor" strokeWidth="2" />}
      {tone === 'bad' && <path d="M1.5 1.5l7 7m0-7l-7 7" stroke="currentColor" strokeWidth="2" />}
      {tone === 'off' && <path d="M1.5 5h7" stroke="currentColor" strokeWidth="2" />}
    </svg>
  );
}

/** The state as a sentence; whole where there is room for all of it. */
export function StateLine({ state, whole = false }: { state: State; whole?: boolean }) {
  return (
    <span className={whole ? css.whole : css.state} title={whole ? undefined : state.reason || undefined}>
      <Dot tone={state.tone} /> <span className={`${css.word} ${css[state.tone]}`}>{state.word}</span>{' '}
      {state.reason && <span className={css.reason}>· {state.reason}</span>} {state.until && <Until at={state.until} />}
      {whole && state.todo && (
        <span className={css.todo}>
          <b>To do:</b> <Words of={state.todo} />
        </span>
      )}
    </span>
  );
}

function Until({ at }: { at: string }) {
  const now = useNow();
  return <span className={css.until}>· until {until(at, now)}</span>;
}
