import { type ReactNode, useEffect, useId, useRef } from 'react';
import { Button } from './Button';
import css from './Sheet.module.css';

interface Props {
  title: string;
  /** From the right, or in the middle. */
  middle?: boolean;
  close: () => void;
  foot?: ReactNode;
  children: ReactNode;
}

/** An overlay. The browser keeps the focus in it, gives it back, and closes it with Escape. What is marked `data-first` has the focus first. */
export function Sheet({ title, middle, close, foot, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    shown?.querySelector<HTMLElement>('[data-first]')?.focus();
    return () => shown?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      className={middle ? css.middle : css.sheet}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
    >
      <header className={css.head}>
        <h1 id={id}>{title}</h1>
        <Button bare onClick={close} aria-label="Close" title="Close (Esc)">
          ✕
        </Button>
      </header>
      {/* A plan may be longer than the screen and have nothing to press: the keyboard scrolls it. */}
      <div className={css.body} tabIndex={0}>
        {children}
      </div>
      {foot && <footer className={css.foot}>{foot}</footer>}
    </dialog>
  );
}
