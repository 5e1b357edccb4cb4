import { useId, useState } from 'react';
import { useList } from '../../api/live';
import type { FieldOf } from '../../api/kinds';
import type { Json } from '../../api/object';
import { placeOfKind } from '../../app/sections';
import { spaced } from '../../parts/state';
import { type Faults, type Spec, changed, groupOf, keptOf, shownOf, typedOf } from './values';
import css from './Form.module.css';

interface Props {
  fields: readonly FieldOf[];
  spec: Spec;
  /** The spec before all changes. */
  first: Spec;
  change: (spec: Spec) => void;
  faults: Faults;
  /** A field that cannot be changed any more is only shown. */
  isNew: boolean;
}

/** The fields of a spec, with the help and the limits that the region describes. */
export function Fields({ fields, spec, first, change, faults, isNew }: Props) {
  const one = (field: FieldOf, value: Json | undefined, before: Json | undefined, path: string[]) => (
    <Field
      key={path.join('/')}
      field={field}
      value={value}
      first={before}
      fault={faults.get(`/${path.join('/')}`)}
      fixed={field.immutable && !isNew}
      change={(value) => change(changed(spec, path, value))}
    />
  );
  return (
    <>
      {ordered(fields).map((field) => {
        const value = spec[field.name];
        const before = first[field.name];
        if (field.shape.is !== 'group') return one(field, value, before, [field.name]);
        return (
          <fieldset key={field.name} className={css.group}>
            <legend>{spaced(field.name)}</legend>
            <p className={css.says}>
              <Help says={field.says} />
            </p>
            {faults.has(`/${field.name}`) && <p className={css.fault}>{faults.get(`/${field.name}`)}</p>}
            {field.shape.fields.map((inner) => one(inner, groupOf(value)[inner.name], groupOf(before)[inner.name], [field.name, inner.name]))}
          </fieldset>
        );
      })}
    </>
  );
}

/** Help with its words of code. */
function Help({ says }: { says: string }) {
  return says.split('`').map((words, place) => (place % 2 === 1 ? <code key={place}>{words}</code> : words));
}

/** What has to be there comes first, groups come last. */
const ordered = (fields: readonly FieldOf[]): FieldOf[] => {
  const rank = ({ required, shape }: FieldOf) => (required ? 0 : shape.is === 'group' ? 2 : 1);
  return [...fields].sort((a, b) => rank(a) - rank(b));
};

interface FieldProps {
  field: FieldOf;
  value: Json | undefined;
  first: Json | undefined;
  fault?: string;
  fixed: boolean;
  change: (value: Json | undefined) => void;
}

function Field({ field, value, first, fault, fixed, change }: FieldProps) {
  const id = useId();
  const { name, says, required, shape } = field;
  return (
    <div className={css.field}>
      <label htmlFor={id}>
        {spaced(name)} {required && <span className={css.needed}>needed</span>}
      </label>
      {shape.is === 'other' ? (
        <p id={id} className="muted">
          {value === undefined ? 'Not set; it is written as YAML.' : 'Set; it is changed as YAML.'}
        </p>
      ) : (
        <Input id={id} field={field} value={value} first={first} fault={fault} fixed={fixed} change={change} />
      )}
      {fault && (
        <p id={`${id}-fault`} className={css.fault}>
          {fault}
        </p>
      )}
      <p id={`${id}-says`} className={css.says}>
        <Help says={says} />
        {fixed && ' It stays as it is: another one is another object.'}
      </p>
    </div>
  );
}

function Input({ id, field, value, first, fault, fixed, change }: FieldProps & { id: string }) {
  const { shape, refersTo, usual, example } = field;
  const choices = useNames(refersTo);
  const of = shape.is === 'choice' ? shape.of : shape.is === 'yes-no' ? ['true', 'false'] : undefined;
  const [kept] = useState(() => (shape.is === 'secret' ? keptOf(value, first) : undefined));
  const shared = {
    id,
    'aria-invalid': fault ? true : undefined,
    'aria-describedby': [fault && `${id}-fault`, `${id}-says`].filter(Boolean).join(' '),
    disabled: fixed,
  };
  if (of) {
    const words: Record<string, string> = shape.is === 'yes-no' ? { true: 'yes', false: 'no' } : {};
    const left = usual === undefined || typeof usual === 'object' ? 'not set' : `not set: ${words[String(usual)] ?? String(usual)}`;
    return (
      <select {...shared} value={shownOf(field, value)} onChange={({ target }) => change(typedOf(field, target.value))}>
        <option value="">{left}</option>
        {of.map((it) => (
          <option key={it} value={it}>
            {words[it] ?? it}
          </option>
        ))}
      </select>
    );
  }
  if (shape.is === 'lines' || shape.is === 'texts' || shape.is === 'items') {
    const hints: Partial<Record<typeof shape.is, string>> = { texts: 'NAME=TEXT, one a line', items: ['one a line', example].filter(Boolean).join(': ') };
    return <Typed {...shared} as="textarea" value={value} field={field} change={change} placeholder={hints[shape.is]} />;
  }
  const hint = kept !== undefined ? 'set; typed anew, it is replaced; left empty, it stays' : typeof usual === 'string' || typeof usual === 'number' ? `not set: ${usual}` : (example ?? (shape.is === 'list' ? 'with commas between them' : undefined));
  return (
    <>
      <Typed
        {...shared}
        as="input"
        type={shape.is === 'secret' ? 'password' : 'text'}
        autoComplete="off"
        value={kept !== undefined && typeof value === 'object' ? undefined : value}
        field={field}
        change={(next) => change(next ?? kept)}
        placeholder={hint}
        list={choices.length > 0 ? `${id}-names` : undefined}
      />
      {choices.length > 0 && (
        <datalist id={`${id}-names`}>
          {choices.map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
      )}
    </>
  );
}

interface TypedProps {
  as: 'input' | 'textarea';
  field: FieldOf;
  value: Json | undefined;
  change: (value: Json | undefined) => void;
  [attribute: string]: unknown;
}

/** Keeps the letters as they are typed; the value follows. */
function Typed({ as: Tag, field, value, change, ...rest }: TypedProps) {
  return (
    <Tag
      {...rest}
      className={['text', 'lines'].includes(field.shape.is) && field.name === 'description' ? undefined : 'mono'}
      spellCheck={false}
      defaultValue={shownOf(field, value)}
      onChange={({ target }: { target: HTMLInputElement | HTMLTextAreaElement }) => change(typedOf(field, target.value))}
    />
  );
}

/** Names of the objects that a field may name. */
function useNames(kind: string | undefined): string[] {
  const place = kind ? placeOfKind(kind) : undefined;
  // Without a kind to name, zones: their list is short, and read anyway.
  const { objects } = useList(place?.kind ?? 'Zone', place?.plural ?? 'zones');
  return place ? objects.map(({ metadata }) => metadata.name) : [];
}
