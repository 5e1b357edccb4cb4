import { useMemo, useState } from 'react';
import { stringify } from 'yaml';
import type { BasaltObject, Json } from '../../api/object';
import { useKinds } from '../../api/kinds';
import type { Schemas } from '../../api/client';
import { useObject } from '../../api/objects';
import { useWrites } from '../../app/who';
import { Button } from '../../parts/Button';
import { CopyButton, Facts } from '../../parts/Facts';
import { Plan, type Proposal } from '../../parts/plan/Plan';
import { documentsOf, yamlOf } from '../../parts/plan/documents';
import { Declare } from './Declare';
import { hclOf } from './hcl';
import css from '../machine/Machine.module.css';
import parts from '../../parts/parts.module.css';

/** What is declared, as YAML: read, and edited with its plan before anything changes. */
export function ConfigurationOf({ plural, object }: { plural: string; object: BasaltObject }) {
  const { may, off } = useWrites();
  const kind = useKinds()?.find((kind) => kind.plural === plural);
  const declared = useMemo(() => yamlOf(object), [object]);
  const [text, setText] = useState<string>();
  const [base, setBase] = useState('');
  const [fault, setFault] = useState('');
  const [proposal, setProposal] = useState<Proposal>();
  const [form, setForm] = useState(false);
  const [asHcl, setAsHcl] = useState(false);
  const hcl = useMemo(() => (asHcl ? hclOf(object) : ''), [asHcl, object]);
  const editing = text !== undefined;
  const propose = () => {
    const documents = documentsOf(text ?? '');
    if (typeof documents === 'string') return setFault(documents);
    const [only] = documents;
    if (documents.length !== 1 || only?.kind !== object.kind || only.metadata.name !== object.metadata.name) {
      return setFault(`this is ${object.kind} ${object.metadata.name}: kind and metadata.name stay what they are`);
    }
    setFault('');
    setProposal({ kind: 'apply', documents });
  };
  const { manager } = object.metadata;
  return (
    <>
      {manager && (
        <p className={css.verdict}>
          <span>
            <b>{manager}</b> declared it. What is changed here is a difference to it: change it there, or take it over when the plan asks.
          </span>
        </p>
      )}
      <div className={css.columns}>
        <section className={css.edit} aria-labelledby="declared">
          <div className={css.row}>
            <h2 id="declared">Declared</h2>
            {may && kind?.declarable !== false && !editing && (
              <Button
                off={off}
                onClick={() => {
                  setAsHcl(false);
                  setText(declared);
                  setBase(declared);
                }}
              >
                Edit as YAML
              </Button>
            )}
            {kind?.declarable !== false && !editing && (
              <>
                {may && (
                  <Button off={off} onClick={() => setForm(true)}>
                    Edit in a form
                  </Button>
                )}
                <Button onClick={() => setAsHcl(!asHcl)}>{asHcl ? 'Show as YAML' : 'Show as HCL'}</Button>
                <CopyButton text={() => (asHcl ? hcl : declared)} />
              </>
            )}
            {editing && (
              <>
                <Button primary off={off || (text === base && 'nothing was changed')} onClick={propose}>
                  Show the plan
                </Button>
                <Button
                  onClick={() => {
                    setText(undefined);
                    setFault('');
                  }}
                >
                  Leave it
                </Button>
              </>
            )}
          </div>
          {editing && base !== declared && <p className={css.verdict}>It was changed meanwhile, by somebody else. The plan shows what would become of that.</p>}
          {fault && (
            <p className={parts.problem} role="alert">
              {fault}
            </p>
          )}
          {editing ? (
            <textarea aria-label="As YAML" value={text} spellCheck={false} onChange={({ target }) => setText(target.value)} />
          ) : (
            <pre className={parts.code}>{asHcl ? hcl : declared}</pre>
          )}
          {asHcl && !editing && (
            <p className="muted">
              <code>terraform plan</code> shows what the import changes. Names of objects can become references, like <code>basalt_zone.NAME.name</code>.
            </p>
          )}
        </section>
        <Effective plural={plural} object={object} />
      </div>
      {proposal && <Plan proposal={proposal} close={() => setProposal(undefined)} done={() => setText(undefined)} />}
      {form && (
        <Declare
          plural={plural}
          name={object.metadata.name}
          labels={object.metadata.labels}
          spec={object.spec}
          changes
          close={() => setForm(false)}
        />
      )}
    </>
  );
}

/** What the region adds: the meaning of what is left out, and the labels and tags of each manager. */
function Effective({ plural, object }: { plural: string; object: BasaltObject }) {
  const { data } = useObject<Schemas['Layers']>(object.kind, plural, object.metadata.name, 'layers');
  const effective = object.status.effective as Json;
  const layers = Object.entries(data?.layers ?? {});
  const known = effective && typeof effective === 'object' && Object.keys(effective).length > 0;
  if (!known && layers.length === 0) return null;
  return (
    <div className={css.part}>
      {known && (
        <>
          <h2>What it means where it says nothing</h2>
          <pre className={parts.code}>{stringify(effective, { lineWidth: 0 })}</pre>
        </>
      )}
      {layers.length > 0 && (
        <>
          <h2>Labels and tags, by who gives them</h2>
          <Facts
            of={layers.map(([manager, { labels, tags }]) => [
              manager,
              [...Object.entries(labels ?? {}).map((pair) => pair.join('=')), ...(tags ?? [])].join(', ') || 'none',
            ])}
          />
        </>
      )}
    </div>
  );
}
