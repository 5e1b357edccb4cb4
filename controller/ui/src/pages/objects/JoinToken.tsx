import { type FormEvent, useState } from 'react';
import { type Schemas, ask } from '../../api/client';
import { isAdmin } from '../../api/session';
import { useWho, useWrites } from '../../app/who';
import { Button } from '../../parts/Button';
import { Failure } from '../../parts/Notice';
import { Sheet } from '../../parts/Sheet';
import { Once } from './Token';
import css from './Form.module.css';
import parts from '../../parts/parts.module.css';

/** Makes a token with which one rack enrols. It changes no object; only an admin of everything may. */
export function JoinToken() {
  const { off } = useWrites();
  const may = isAdmin(useWho());
  const [open, setOpen] = useState(false);
  const [error, setError] = useState<unknown>();
  const [token, setToken] = useState<string>();
  if (!may) return null;
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const given = ['rack', 'lifetime'].map((name) => [name, String(form.get(name) ?? '').trim()] as const).filter(([, value]) => value);
    setError(undefined);
    try {
      const made = await ask<Schemas['JoinAnswer']>('/api/v1/join_tokens', { method: 'POST', body: Object.fromEntries(given) });
      setToken(made.token);
      setOpen(false);
    } catch (error) {
      setError(error);
    }
  };
  return (
    <>
      <Button off={off} onClick={() => setOpen(true)}>
        Join token…
      </Button>
      {open && (
        <Sheet
          title="Token for a rack"
          close={() => setOpen(false)}
          foot={
            <>
              <button type="submit" form="join-token" className={`${parts.button} ${parts.primary}`}>
                Make a token
              </button>
              <Button onClick={() => setOpen(false)}>Leave it</Button>
            </>
          }
        >
          <p>A rack that has the token enrols once with it, and gets a certificate of its own.</p>
          {error !== undefined && <Failure error={error} />}
          <form id="join-token" className={css.form} onSubmit={(event) => void submit(event)}>
            <div className={css.field}>
              <label htmlFor="join-rack">Rack</label>
              <input id="join-rack" name="rack" className="mono" autoComplete="off" spellCheck={false} data-first aria-describedby="join-rack-says" />
              <p id="join-rack-says" className={css.says}>
                The name that a rack may enrol with. Empty: any.
              </p>
            </div>
            <div className={css.field}>
              <label htmlFor="join-lifetime">Lifetime</label>
              <input id="join-lifetime" name="lifetime" placeholder="1h" aria-describedby="join-lifetime-says" />
              <p id="join-lifetime-says" className={css.says}>
                Like 30m. After that nobody enrols with it.
              </p>
            </div>
          </form>
        </Sheet>
      )}
      {token !== undefined && (
        <Once
          title="Token for a rack"
          text={token}
          says="It is shown this once. In /etc/basalt/rack.toml of the rack's host: join = &quot;TOKEN&quot;"
          close={() => setToken(undefined)}
        />
      )}
    </>
  );
}
