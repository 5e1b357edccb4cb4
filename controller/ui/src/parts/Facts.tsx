import { Fragment, type ReactNode, useState } from 'react';
import { Button } from './Button';
import css from './parts.module.css';

/** What is so: a name and a value each. What is not known is left out. */
export function Facts({ of }: { of: [name: string, value: ReactNode][] }) {
  const known = of.filter(([, value]) => value !== undefined && value !== null && value !== '' && value !== false);
  return (
    <dl className={css.facts}>
      {known.map(([name, value]) => (
        <Fragment key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </Fragment>
      ))}
    </dl>
  );
}

/** Copies, and says for a moment that it did. */
function useCopy(): [copied: boolean, copy: (text: string) => void] {
  const [copied, setCopied] = useState(false);
  const copy = async (text: string) => {
    await navigator.clipboard?.writeText(text).catch(() => undefined);
    setCopied(true);
    setTimeout(() => setCopied(false), 1200);
  };
  return [copied, (text) => void copy(text)];
}

/** Copies a long text. */
export function CopyButton({ text, off }: { text: () => string; off?: string | false }) {
  const [copied, copy] = useCopy();
  return (
    <Button off={off} onClick={() => copy(text())}>
      {copied ? 'Copied' : 'Copy'}
    </Button>
  );
}

/** A text that a click copies. */
export function Copy({ text, shown = text }: { text: string; shown?: ReactNode }) {
  const [copied, copy] = useCopy();
  return (
    <button type="button" className={css.copy} title={copied ? 'copied' : 'copy'} onClick={() => copy(text)}>
      {shown}
      <span className="unseen" role="status">
        {copied ? 'copied' : ''}
      </span>
    </button>
  );
}

export function Chips({ of }: { of: readonly string[] }) {
  if (of.length === 0) return null;
  return (
    <span className={css.chips}>
      {of.map((word) => (
        <span key={word} className={css.chip}>
          {word}
        </span>
      ))}
    </span>
  );
}
