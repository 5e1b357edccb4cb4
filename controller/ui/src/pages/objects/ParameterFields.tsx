import type { Schemas } from '../../api/client';
import css from './Form.module.css';

type Parameter = Schemas['ScriptParameter'];

/** Names of inputs that hold parameters begin so. */
const PREFIX = 'parameter ';

/** The parameters that a form holds. An empty input gives none: the script's default applies. */
export function parametersOf(form: FormData): Record<string, string> {
  const all = [...form].flatMap(([name, value]) => (name.startsWith(PREFIX) && String(value).trim() ? [[name.slice(PREFIX.length), String(value).trim()] as const] : []));
  return Object.fromEntries(all);
}

/** An input for each parameter of a script, with its default and its bounds. */
export function ParameterFields({ of }: { of: Record<string, Parameter> }) {
  return Object.entries(of).map(([name, it]) => {
    const id = `parameter-${name}`;
    const bounds = [it.min !== null && it.min !== undefined && `at least ${it.min}`, it.max !== null && it.max !== undefined && `at most ${it.max}`].filter(Boolean).join(', ');
    const says = [it.description, bounds].filter(Boolean).join(' · ');
    const choices = it.type === 'boolean' ? ['true', 'false'] : it.type === 'choice' ? (it.choices ?? []) : undefined;
    const given = { id, name: `${PREFIX}${name}`, required: it.required ?? false, 'aria-describedby': says ? `${id}-says` : undefined };
    return (
      <div key={name} className={css.field}>
        <label htmlFor={id}>
          <span className="mono">{name}</span> {it.required && <span className={css.needed}>needed</span>}
        </label>
        {choices ? (
          <select {...given} defaultValue="">
            <option value="">{it.default ? `as usual: ${it.default}` : 'not given'}</option>
            {choices.map((choice) => (
              <option key={choice}>{choice}</option>
            ))}
          </select>
        ) : (
          <input {...given} placeholder={it.default ?? undefined} autoComplete="off" spellCheck={false} />
        )}
        {says && (
          <p id={`${id}-says`} className={css.says}>
            {says}
          </p>
        )}
      </div>
    );
  });
}
