import type { Schemas } from '../../api/client';
import type { BasaltObject } from '../../api/object';
import { CopyButton } from '../../parts/Facts';
import { Grid } from '../../parts/Grid';
import css from '../machine/Machine.module.css';
import parts from '../../parts/parts.module.css';

/** The text of a script, and what it can be given. */
export function ScriptContent({ script: { spec } }: { script: BasaltObject }) {
  const content = String(spec.content ?? '');
  const parameters = Object.entries((spec.parameters ?? {}) as unknown as Record<string, Schemas['ScriptParameter']>);
  return (
    <>
      <section className={css.part}>
        <div className={css.row}>
          <h2>Content</h2>
          <CopyButton text={() => content} />
        </div>
        <pre className={`${parts.code} ${css.output}`} tabIndex={0} aria-label="Content">
          {content}
        </pre>
      </section>
      {parameters.length > 0 && (
        <section className={css.part}>
          <h2>Parameters</h2>
          <Grid label="Parameters" heads={['name', 'type', 'needed', 'default', 'can be', 'description']}>
            {parameters.map(([name, it]) => (
              <tr key={name}>
                <td className="mono">{name}</td>
                <td className="muted">{it.type ?? 'string'}</td>
                <td className="muted">{it.required ? 'yes' : 'no'}</td>
                <td className="mono">{it.default}</td>
                <td className="muted">{it.choices?.length ? it.choices.join(', ') : [it.min, it.max].some((bound) => bound !== null && bound !== undefined) && `${it.min ?? '…'} to ${it.max ?? '…'}`}</td>
                <td>{it.description}</td>
              </tr>
            ))}
          </Grid>
        </section>
      )}
    </>
  );
}
