import { type ReactNode, useState } from 'react';
import type { Schemas } from '../../api/client';
import { useList } from '../../api/live';
import { type Verb, type Wish, doingOf } from '../../parts/plan/proposal';
import { FormSheet } from '../FormSheet';
import { ParameterFields, parametersOf } from '../objects/ParameterFields';
import css from '../objects/Form.module.css';

/** Verbs that need more than themselves. */
export const needsWords = (verb: Verb): boolean => verb === 'run_script' || verb === 'rescue' || verb === 'test' || verb === 'override_tests';

interface Props {
  verb: Verb;
  close: () => void;
  wish: (wish: Wish) => void;
}

const lines = (text: string): string[] =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean);

/** The fields of a verb that needs more than a machine, before its plan is made. */
export function WishSheet({ verb, close, wish }: Props) {
  const submit = (form: FormData) => {
    const text = (name: string) => String(form.get(name) ?? '').trim();
    if (verb === 'run_script') {
      if (!text('script')) return 'there is no script: declare a Script first';
      return void wish({ verb, script: text('script'), parameters: parametersOf(form) });
    }
    if (verb === 'test') {
      const tests = form.getAll('tests').map(String);
      return void wish({ verb, ...(tests.length > 0 && { tests }) });
    }
    if (verb === 'override_tests') {
      if (!text('reason')) return 'the audit log wants a reason';
      return void wish({ verb, reason: text('reason') });
    }
    const keys = [...new Set(lines(text('keys')))];
    if (keys.length === 0) return 'nobody could come in: give an SSH key';
    wish({ verb, ssh_keys: keys, ...(text('duration') && { duration: text('duration') }) });
  };
  return (
    <FormSheet title={doingOf(verb)} close={close} submit={submit}>
      {FIELDS[verb]?.()}
    </FormSheet>
  );
}

function ScriptFields() {
  const { objects } = useList('Script', 'scripts');
  const [chosen, choose] = useState<string>();
  const script = objects.find(({ metadata }) => metadata.name === chosen) ?? objects[0];
  return (
    <>
      <div className={css.field}>
        <label htmlFor="wish-script">Script</label>
        <select id="wish-script" name="script" data-first value={script?.metadata.name ?? ''} onChange={({ target }) => choose(target.value)}>
          {objects.map(({ metadata: { name } }) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </div>
      {script && <ParameterFields key={script.metadata.name} of={(script.spec.parameters ?? {}) as unknown as Record<string, Schemas['ScriptParameter']>} />}
    </>
  );
}

function RescueFields() {
  return (
    <>
      <div className={css.field}>
        <label htmlFor="wish-keys">SSH keys</label>
        <textarea id="wish-keys" name="keys" data-first aria-describedby="wish-keys-says" />
        <p id="wish-keys-says" className={css.says}>
          Public keys of those who may come in, one a line: ssh-ed25519 AAAA…
        </p>
      </div>
      <div className={css.field}>
        <label htmlFor="wish-duration">Duration</label>
        <input id="wish-duration" name="duration" placeholder="4h" aria-describedby="wish-duration-says" />
        <p id="wish-duration-says" className={css.says}>
          How long it lasts at most, like 90m.
        </p>
      </div>
    </>
  );
}

function TestFields() {
  const { objects } = useList('Script', 'scripts');
  const tests = objects.filter(({ spec }) => (spec as { type?: string }).type === 'testing');
  return (
    <div className={css.field}>
      <label htmlFor="wish-tests">Tests</label>
      <select id="wish-tests" name="tests" multiple size={Math.min(Math.max(tests.length, 2), 8)} data-first aria-describedby="wish-tests-says">
        {tests.map(({ metadata: { name } }) => (
          <option key={name}>{name}</option>
        ))}
      </select>
      <p id="wish-tests-says" className={css.says}>
        None chosen: those of commissioning.testing.
      </p>
    </div>
  );
}

function ReasonField() {
  return (
    <div className={css.field}>
      <label htmlFor="wish-reason">Reason</label>
      <input id="wish-reason" name="reason" maxLength={1000} data-first aria-describedby="wish-reason-says" />
      <p id="wish-reason-says" className={css.says}>
        The audit log keeps it. Tests that fail later count again.
      </p>
    </div>
  );
}

const FIELDS: Partial<Record<Verb, () => ReactNode>> = {
  run_script: () => <ScriptFields />,
  rescue: () => <RescueFields />,
  test: () => <TestFields />,
  override_tests: () => <ReasonField />,
};
