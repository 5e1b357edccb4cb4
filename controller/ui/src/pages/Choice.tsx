import { useEffect, useRef, useState } from 'react';
import { Button } from '../parts/Button';
import css from './List.module.css';

interface Props {
  title: string;
  all: { key: string; title: string }[];
  chosen: string[];
  change: (keys: string[]) => void;
}

/** Which of some things are shown. The first one always is. */
export function Choice({ title, all, chosen, change }: Props) {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const away = (event: PointerEvent) => !box.current?.contains(event.target as Node) && setOpen(false);
    addEventListener('pointerdown', away);
    return () => removeEventListener('pointerdown', away);
  }, [open]);
  return (
    <div
      ref={box}
      className={css.choice}
      onKeyDown={(event) => {
        if (event.key === 'Escape') setOpen(false);
      }}
    >
      <Button aria-expanded={open} onClick={() => setOpen(!open)}>
        {title}
      </Button>
      {open && (
        <fieldset className={css.menu}>
          <legend className="unseen">{title}</legend>
          {all.map(({ key, title }, place) => (
            <label key={key}>
              <input
                type="checkbox"
                disabled={place === 0}
                checked={chosen.includes(key)}
                onChange={() => change(all.map((it) => it.key).filter((it) => (it === key ? !chosen.includes(it) : chosen.includes(it))))}
              />
              {title}
            </label>
          ))}
        </fieldset>
      )}
    </div>
  );
}
