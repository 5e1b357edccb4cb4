import type { View } from '../app/routes';
import { useViews } from '../app/views';
import { Button } from '../parts/Button';
import { Menu, menu } from '../parts/Menu';
import css from './List.module.css';
import parts from '../parts/parts.module.css';

/** The views of a list that somebody keeps. */
export function Views({ plural, view, show }: { plural: string; view: View; show: (view: View) => void }) {
  const { views, keep, forget } = useViews(plural);
  return (
    <Menu title="Views">
      {(close) => (
        <div className={menu()} role="group" aria-label="Saved views">
          {views.map(({ name, view }) => (
            <span key={name} className={css.view}>
              <Button
                bare
                onClick={() => {
                  show(view);
                  close();
                }}
              >
                {name}
              </Button>
              <Button bare aria-label={`Forget ${name}`} onClick={() => forget(name)}>
                ✕
              </Button>
            </span>
          ))}
          <form
            className={css.view}
            onSubmit={(event) => {
              event.preventDefault();
              const name = String(new FormData(event.currentTarget).get('name') ?? '').trim();
              if (name) keep({ name, view });
              event.currentTarget.reset();
            }}
          >
            <input name="name" aria-label="Name of this view" placeholder="Name of this view" maxLength={60} />
            <button type="submit" className={parts.button}>
              Save
            </button>
          </form>
        </div>
      )}
    </Menu>
  );
}
