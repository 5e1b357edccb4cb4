import type { Json } from '../../api/object';
import { Copy } from '../../parts/Facts';
import { Time } from '../../parts/Time';
import { spaced } from '../../parts/state';
import css from '../machine/Machine.module.css';

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/;

/** Any value, readable. A secret is only said to be set. Names that people chose (`named`) stay as they are written. */
export function Value({ of, named = false }: { of: Json | undefined; named?: boolean }) {
  if (of === undefined || of === null) return <span className="faint">none</span>;
  if (typeof of === 'boolean') return <>{of ? 'yes' : 'no'}</>;
  if (typeof of === 'number') return <>{of}</>;
  if (typeof of === 'string') {
    if (TIME.test(of)) return <Time at={of} />;
    if (of.includes('\n')) return <pre className="mono">{of}</pre>;
    // Words are for reading; names, addresses and hashes are for copying.
    return of.includes(' ') ? <>{of}</> : <Copy text={of} />;
  }
  if (Array.isArray(of)) {
    if (of.length === 0) return <span className="faint">none</span>;
    return (
      <ul className={css.list}>
        {of.map((value, place) => (
          <li key={`${place} ${JSON.stringify(value)}`}>
            <Value of={value} />
          </li>
        ))}
      </ul>
    );
  }
  if (of.set === true) return <span className="muted">set, not shown</span>;
  return (
    <ul className={css.list}>
      {Object.entries(of).map(([name, value]) => (
        <li key={name}>
          <span className="muted">{!named && /^[a-z_]+$/.test(name) ? spaced(name) : name}</span>{' '}
          {value !== null && typeof value === 'object' ? (
            <div className={css.indent}>
              <Value of={value} />
            </div>
          ) : (
            <Value of={value} />
          )}
        </li>
      ))}
    </ul>
  );
}
