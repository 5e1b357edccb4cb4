import { useState } from 'react';
import { Refused, ask } from '../../api/client';
import { type Kind, useKinds } from '../../api/kinds';
import { useWrites } from '../../app/who';
import { Button } from '../../parts/Button';
import { Failure, Loading } from '../../parts/Notice';
import { Sheet } from '../../parts/Sheet';
import { Plan, type Proposal } from '../../parts/plan/Plan';
import { documentsOf, yamlOf } from '../../parts/plan/documents';
import type { Document } from '../../parts/plan/proposal';
import { Fields } from './Form';
import { type Faults, type Spec, faultsOf } from './values';
import css from '../machine/Machine.module.css';
import form from './Form.module.css';
import parts from '../../parts/parts.module.css';

interface Props {
  plural: string;
  /** What it begins with. */
  name?: string;
  labels?: Record<string, string>;
  spec?: unknown;
  /** The object is there, and keeps its name. */
  changes?: boolean;
  close: () => void;
}

/** An object in a form, or any number of objects as YAML. Their plan comes before anything is stored. */
export function Declare(props: Props) {
  const kind = useKinds()?.find((it) => it.plural === props.plural);
  if (!kind) {
    return (
      <Sheet title="Declare" close={props.close}>
        <Loading inside />
      </Sheet>
    );
  }
  return <Draft {...props} kind={kind} />;
}

function Draft({ kind, changes = false, close, ...first }: Props & { kind: Kind }) {
  const { off } = useWrites();
  const [name, setName] = useState(first.name ?? '');
  const [labels, setLabels] = useState(first.labels);
  const [spec, setSpec] = useState<Spec>((first.spec ?? {}) as Spec);
  const [text, setText] = useState<string>();
  const [fault, setFault] = useState('');
  const [faults, setFaults] = useState<Faults>(new Map());
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const [proposal, setProposal] = useState<Proposal>();
  const forget = () => {
    setFault('');
    setFaults(new Map());
    setError(undefined);
  };
  const asYaml = () => {
    forget();
    const isEmpty = Object.keys(spec).length === 0;
    setText(yamlOf({ kind: kind.name, metadata: { name: name || 'NAME', labels }, spec: isEmpty ? (kind.example ?? {}) : spec }));
  };
  const asForm = () => {
    const documents = documentsOf(text ?? '');
    const [only] = documents;
    if (typeof documents === 'string' || typeof only !== 'object') return setFault(String(documents));
    if (documents.length > 1 || only.kind !== kind.name) return setFault(`a form holds one ${kind.name}`);
    forget();
    setName(only.metadata.name);
    setLabels(only.metadata.labels);
    setSpec((only.spec ?? {}) as Spec);
    setText(undefined);
  };
  /** What is wrong with a field is told at that field. */
  const tried = async (document: Document) => {
    forget();
    if (document.metadata.name === '') return setFaults(new Map([['name', 'it needs a name']]));
    setBusy(true);
    try {
      await ask('/api/v1/apply?dry_run=true', { method: 'POST', body: { documents: [document] } });
      setProposal({ kind: 'apply', documents: [document] });
    } catch (error) {
      const errors = error instanceof Refused ? (error.problem.errors ?? []) : [];
      const { faults, others } = faultsOf(errors, kind.spec);
      setFaults(faults);
      // The plan's own page asks whether it is taken over from another manager.
      if (faults.size > 0 && error instanceof Refused) setError(others.length > 0 ? new Refused({ ...error.problem, errors: others }) : undefined);
      else setProposal({ kind: 'apply', documents: [document] });
    } finally {
      setBusy(false);
    }
  };
  const propose = () => {
    if (text === undefined) return void tried({ kind: kind.name, metadata: { name, labels }, spec });
    const documents = documentsOf(text);
    if (typeof documents === 'string') return setFault(documents);
    forget();
    setProposal({ kind: 'apply', documents });
  };
  if (proposal) return <Plan proposal={proposal} close={() => setProposal(undefined)} done={close} />;
  return (
    <Sheet
      title={changes ? `Change: ${kind.name} ${name}` : `Declare: ${kind.name}`}
      close={close}
      foot={
        <>
          <Button primary off={off || (busy && 'the region is being asked')} onClick={propose}>
            Show the plan
          </Button>
          <Button onClick={text === undefined ? asYaml : asForm}>{text === undefined ? 'Write YAML' : 'Fill in a form'}</Button>
          <Button onClick={close}>Leave it</Button>
        </>
      }
    >
      {(fault || error !== undefined) && (fault ? <p className={parts.problem} role="alert">{fault}</p> : <Failure error={error} />)}
      {text !== undefined ? (
        <>
          <p className="muted">
            Several documents are separated by ---. The API's page shows every field of each kind: <a href="/docs">API</a>.
          </p>
          <div className={css.edit}>
            <textarea aria-label="As YAML" data-first value={text} spellCheck={false} onChange={({ target }) => setText(target.value)} />
          </div>
        </>
      ) : (
        <form
          className={form.form}
          onSubmit={(event) => {
            event.preventDefault();
            propose();
          }}
        >
          <p className="muted">{kind.says}</p>
          {!changes && <Name value={name} fault={faults.get('name')} change={setName} />}
          <Fields fields={kind.spec} spec={spec} first={(first.spec ?? {}) as Spec} change={setSpec} faults={faults} isNew={!changes} />
          <button type="submit" hidden />
        </form>
      )}
    </Sheet>
  );
}

function Name({ value, fault, change }: { value: string; fault?: string; change: (name: string) => void }) {
  return (
    <div className={form.field}>
      <label htmlFor="its-name">
        Name <span className={form.needed}>needed</span>
      </label>
      <input
        id="its-name"
        data-first
        className="mono"
        autoComplete="off"
        spellCheck={false}
        value={value}
        aria-invalid={fault ? true : undefined}
        aria-describedby={fault ? 'its-name-fault' : undefined}
        onChange={({ target }) => change(target.value.trim())}
      />
      {fault && (
        <p id="its-name-fault" className={form.fault}>
          {fault}
        </p>
      )}
    </div>
  );
}
