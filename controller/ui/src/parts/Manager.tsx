import { Icon } from '../app/icons';
import css from './parts.module.css';

/** The tool that declared an object, behind a lock: a change by somebody else is asked about first. */
export function Manager({ of }: { of: string | undefined }) {
  if (!of) return null;
  return (
    <span className={`muted ${css.manager}`} title={`${of} declared it. A change here is a difference to it, and is asked about first`}>
      <Icon name="lock" />
      managed by {of}
    </span>
  );
}
