import { useMemo } from 'react';
import { type Rows, parse, strictest, without } from '../filter/language';
import { Button } from '../parts/Button';
import { Notice } from '../parts/Notice';

/** Names the part of the filter that excludes most, and takes it out. */
export function NoMatch<Row>({ text, rows, all, change }: { text: string; rows: Rows<Row>; all: readonly Row[]; change: (text: string) => void }) {
  const worst = useMemo(() => strictest(parse(text), rows, all), [text, rows, all]);
  return (
    <Notice title="Nothing matches.">
      {worst && worst.matches > 0 && (
        <p>
          Without <code>{text.slice(worst.term.start, worst.term.end)}</code> {worst.matches === 1 ? 'one does' : `${worst.matches} do`}.{' '}
          <Button onClick={() => change(without(text, worst.term))}>Take it out</Button>
        </p>
      )}
      <Button onClick={() => change('')}>Show all {all.length}</Button>
    </Notice>
  );
}
