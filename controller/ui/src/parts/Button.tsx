import type { ButtonHTMLAttributes, ReactNode } from 'react';
import css from './parts.module.css';

interface Props extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, 'disabled'> {
  primary?: boolean;
  danger?: boolean;
  bare?: boolean;
  /** Why it cannot be pressed now. It stays where it is, and says so. */
  off?: string | false;
  children: ReactNode;
}

export function Button({ primary, danger, bare, off, onClick, children, title, ...rest }: Props) {
  const style = [css.button, primary && css.primary, danger && css.danger, bare && css.bare].filter(Boolean).join(' ');
  return (
    <button
      type="button"
      {...rest}
      className={style}
      aria-disabled={off ? true : undefined}
      title={off || title}
      onClick={off ? (event) => event.preventDefault() : onClick}
    >
      {children}
    </button>
  );
}
