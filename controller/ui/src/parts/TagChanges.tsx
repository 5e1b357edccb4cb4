import { Link } from '@tanstack/react-router';
import type { Schemas } from '../api/client';
import { pageOf } from '../app/sections';
import { Dot } from './State';
import css from './plan/Plan.module.css';

type TagChange = Schemas['TagChange'];

/** The machines that gain and lose tags because expressions change. */
export function TagChanges({ of }: { of: readonly TagChange[] }) {
  return of.map((change) => (
    <section key={change.tag} className={css.part} aria-label={`Machines of tag ${change.tag}`}>
      <h2>
        Tag <span className="mono">{change.tag}</span>
      </h2>
      <Names sign="ok" count={change.gained} words={['gains it', 'gain it']} of={change.gains} />
      <Names sign="bad" count={change.lost} words={['loses it', 'lose it']} of={change.loses} />
      {change.gained + change.lost === 0 && <p className="muted">No machine gains or loses it.</p>}
      {change.errors > 0 && <p>The expression cannot be computed for {machines(change.errors)}.</p>}
      {change.not_examined > 0 && <p className="muted">{machines(change.not_examined)} more were not examined: there are too many.</p>}
    </section>
  ));
}

const machines = (count: number): string => `${count} ${count === 1 ? 'machine' : 'machines'}`;

function Names({ sign, count, words: [one, many], of }: { sign: 'ok' | 'bad'; count: number; words: [string, string]; of: string[] }) {
  if (count === 0) return null;
  return (
    <p>
      <Dot tone={sign} /> <b>{machines(count)}</b> {count === 1 ? one : many}
      {of.length > 0 && ': '}
      {of.map((name, at) => (
        <span key={name}>
          {at > 0 && ', '}
          <Link to={pageOf('machines', name)} className="mono">
            {name}
          </Link>
        </span>
      ))}
      {of.length > 0 && of.length < count && <span className="muted"> and {count - of.length} more</span>}
    </p>
  );
}
