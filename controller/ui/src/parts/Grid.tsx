import type { ReactNode } from 'react';
import parts from './parts.module.css';

/** A table that scrolls sideways in its own frame. Its rows are the children. */
export function Grid({ label, heads, children }: { label: string; heads: readonly string[]; children: ReactNode }) {
  return (
    <div className={parts.scroll} role="region" aria-label={label} tabIndex={0}>
      <table className={parts.grid}>
        <thead>
          <tr>
            {heads.map((head) => (
              <th key={head}>{head}</th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
