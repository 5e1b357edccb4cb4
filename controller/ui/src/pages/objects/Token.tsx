import { useMemo, useState } from 'react';
import type { Schemas } from '../../api/client';
import { isAdmin } from '../../api/session';
import { useWho, useWrites } from '../../app/who';
import { Button } from '../../parts/Button';
import { CopyButton } from '../../parts/Facts';
import { Sheet } from '../../parts/Sheet';
import { Plan } from '../../parts/plan/Plan';
import parts from '../../parts/parts.module.css';

/** A text that the region shows this once. */
export function Once({ title, text, says, close }: { title: string; text: string; says: string; close: () => void }) {
  return (
    <Sheet
      title={title}
      close={close}
      foot={
        <>
          <CopyButton text={() => text} />
          <Button onClick={close}>Close</Button>
        </>
      }
    >
      <p>{says}</p>
      <pre className={parts.code} tabIndex={0} aria-label="Token" data-first>
        {text}
      </pre>
    </Sheet>
  );
}

/** Makes the text of an API token, or makes it good no more. Only an admin of everything may. */
export function TokenActions({ name, isIssued }: { name: string; isIssued: boolean }) {
  const { off } = useWrites();
  const may = isAdmin(useWho());
  const [at, setAt] = useState<'issue' | 'revoke'>();
  const [text, setText] = useState<string>();
  const proposal = useMemo(
    () =>
      at && {
        kind: 'request' as const,
        of: 'ApiToken',
        plural: 'api_tokens',
        name,
        at,
        verb: at === 'issue' ? 'Issue a text' : 'Revoke its text',
        // The program that has the text is refused from then on.
        hurts: isIssued,
      },
    [at, name, isIssued],
  );
  if (!may) return null;
  return (
    <>
      <Button off={off} onClick={() => setAt('issue')}>
        Issue…
      </Button>
      <Button danger off={off || (!isIssued && 'it has no text')} onClick={() => setAt('revoke')}>
        Revoke…
      </Button>
      {proposal && (
        <Plan proposal={proposal} close={() => setAt(undefined)} done={([became]) => at === 'issue' && setText((became?.answer as Schemas['TokenIssued']).token)} />
      )}
      {text !== undefined && !at && (
        <Once title={`Text of ${name}`} text={text} says="It is shown this once: the region keeps a hash of it. Put it where the program reads it." close={() => setText(undefined)} />
      )}
    </>
  );
}
