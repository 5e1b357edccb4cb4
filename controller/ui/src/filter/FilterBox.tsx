import { useId, useMemo, useRef, useState } from 'react';
import { complete } from './complete';
import { type Rows, fault, parse } from './language';
import css from './FilterBox.module.css';

interface Props<Row> {
  text: string;
  change: (text: string) => void;
  rows: Rows<Row>;
  all: readonly Row[];
}

/** One line; below it what can stand there. */
export function FilterBox<Row>({ text, change, rows, all }: Props<Row>) {
  const input = useRef<HTMLInputElement>(null);
  const list = useId();
  const [caret, setCaret] = useState(text.length);
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const choices = useMemo(() => (open ? complete(text, caret, rows, all) : []), [open, text, caret, rows, all]);
  const faults = useMemo(() => parse(text).flatMap((term) => fault(rows, term) ?? []), [text, rows]);
  const take = (place: number) => {
    const choice = choices[place];
    if (!choice) return;
    change(choice.text);
    setCaret(choice.caret);
    setAt(-1);
    requestAnimationFrame(() => input.current?.setSelectionRange(choice.caret, choice.caret));
  };
  const shown = choices.length > 0;
  return (
    <div className={css.box}>
      <input
        ref={input}
        id="filter"
        type="text"
        role="combobox"
        aria-label="Filter"
        aria-expanded={shown}
        aria-controls={list}
        aria-autocomplete="list"
        aria-activedescendant={shown && at >= 0 ? `${list}-${at}` : undefined}
        aria-invalid={faults.length > 0 || undefined}
        autoComplete="off"
        spellCheck={false}
        placeholder={`Filter: ${['words', rows.example ?? 'name:a'].join(', ')} …`}
        className={css.input}
        value={text}
        onChange={({ target }) => {
          change(target.value);
          setCaret(target.selectionStart ?? target.value.length);
          setOpen(true);
          setAt(-1);
        }}
        onSelect={({ currentTarget }) => setCaret(currentTarget.selectionStart ?? 0)}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onKeyDown={(event) => {
          const { key } = event;
          if (key === 'ArrowDown' || key === 'ArrowUp') {
            event.preventDefault();
            setOpen(true);
            const step = key === 'ArrowDown' ? 1 : -1;
            setAt(choices.length ? (at + step + choices.length + (at < 0 && step < 0 ? 1 : 0)) % choices.length : -1);
          } else if ((key === 'Enter' || key === 'Tab') && shown && at >= 0) {
            event.preventDefault();
            take(at);
          } else if (key === 'Enter') {
            setOpen(false);
          } else if (key === 'Escape') {
            // A sheet around the filter stays open while there is something to close in here.
            if (shown || text) event.preventDefault();
            if (shown) setOpen(false);
            else if (text) change('');
            else input.current?.blur();
          }
        }}
      />
      {!text && (
        <kbd className={css.key} aria-hidden="true">
          /
        </kbd>
      )}
      {faults.length > 0 && (
        <p className={css.fault} role="status">
          {faults.join('; ')}
        </p>
      )}
      <ul id={list} role="listbox" aria-label="What can stand here" className={css.list} hidden={!shown}>
        {choices.map((choice, place) => (
          <li
            key={choice.label}
            id={`${list}-${place}`}
            role="option"
            aria-selected={place === at}
            className={place === at ? css.at : undefined}
            onPointerDown={(event) => {
              event.preventDefault();
              take(place);
            }}
          >
            <span className="mono">{choice.label}</span>
            <span className="muted">{choice.says}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}
