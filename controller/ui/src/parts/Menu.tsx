import { type ReactNode, useEffect, useRef, useState } from 'react';
import { Button } from './Button';
import css from './Menu.module.css';

interface Props {
  title: string;
  /** Why it cannot be opened now. */
  off?: string | false;
  /** The content, with a function that closes it. */
  children: (close: () => void) => ReactNode;
}

/** A button with content below or above it. A press outside, or Escape, closes it. */
export function Menu({ title, off, children }: Props) {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const close = () => setOpen(false);
  useEffect(() => {
    if (!open) return;
    const away = (event: PointerEvent) => !box.current?.contains(event.target as Node) && close();
    addEventListener('pointerdown', away);
    return () => removeEventListener('pointerdown', away);
  }, [open]);
  return (
    <div
      ref={box}
      className={css.box}
      onKeyDown={(event) => {
        if (event.key !== 'Escape' || !open) return;
        close();
        box.current?.querySelector('button')?.focus();
      }}
    >
      <Button off={off} aria-expanded={open} onClick={() => setOpen(!open)}>
        {title}
      </Button>
      {open && children(close)}
    </div>
  );
}

/** The frame of such content: below the button, at its right; or above it, at its left. */
export const menu = (up = false): string => (up ? `${css.menu} ${css.up}` : css.menu) ?? '';
