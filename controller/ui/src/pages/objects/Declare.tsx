import { useState } from 'react';
import { useKinds } from '../../api/kinds';
import { useWrites } from '../../app/who';
import { Button } from '../../parts/Button';
import { Loading } from '../../parts/Notice';
import { Sheet } from '../../parts/Sheet';
import { Plan, type Proposal } from '../../parts/plan/Plan';
import { documentsOf, yamlOf } from '../../parts/plan/documents';
import css from '../machine/Machine.module.css';
import parts from '../../parts/parts.module.css';

interface Props {
  plural: string;
  /** What it begins with; an example of the kind otherwise. */
  name?: string;
  spec?: unknown;
  close: () => void;
}

/** New objects, as YAML: any number, of any kind. Their plan comes before anything is stored. */
export function Declare(props: Props) {
  const kind = useKinds()?.find((it) => it.plural === props.plural);
  if (!kind) {
    return (
      <Sheet title="Declare" close={props.close}>
        <Loading inside />
      </Sheet>
    );
  }
  const { name = 'NAME', spec = kind.example ?? {} } = props;
  return <Form title={`Declare: ${kind.name}`} first={yamlOf({ kind: kind.name, metadata: { name }, spec })} close={props.close} />;
}

function Form({ title, first, close }: { title: string; first: string; close: () => void }) {
  const { off } = useWrites();
  const [text, setText] = useState(first);
  const [fault, setFault] = useState('');
  const [proposal, setProposal] = useState<Proposal>();
  const propose = () => {
    const documents = documentsOf(text);
    if (typeof documents === 'string') return setFault(documents);
    setFault('');
    setProposal({ kind: 'apply', documents });
  };
  if (proposal) return <Plan proposal={proposal} close={() => setProposal(undefined)} done={close} />;
  return (
    <Sheet
      title={title}
      close={close}
      foot={
        <>
          <Button primary off={off} onClick={propose}>
            Show the plan
          </Button>
          <Button onClick={close}>Leave it</Button>
        </>
      }
    >
      <p className="muted">Several documents are separated by ---. The API's page shows every field of each kind: <a href="/docs">API</a>.</p>
      {fault && (
        <p className={parts.problem} role="alert">
          {fault}
        </p>
      )}
      <div className={css.edit}>
        <textarea aria-label="As YAML" data-first value={text} spellCheck={false} onChange={({ target }) => setText(target.value)} />
      </div>
    </Sheet>
  );
}
