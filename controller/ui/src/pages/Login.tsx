import { useQuery } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { byOpenId, byPassword, byToken, waysIn } from '../api/session';
import { Icon } from '../app/icons';
import { Button } from '../parts/Button';
import { Failure } from '../parts/Notice';
import css from './Login.module.css';
import parts from '../parts/parts.module.css';

/** Where somebody logs in. `first` is why the issuer's answer was not enough. */
export function Login({ ended, first, done }: { ended: boolean; first?: unknown; done: () => void }) {
  const [withToken, setWithToken] = useState(false);
  const [busy, setBusy] = useState(false);
  const [tried, setTried] = useState<{ error: unknown }>();
  const error = tried ? tried.error : first;
  const setError = (error: unknown) => setTried({ error });
  const { data: ways } = useQuery({ queryKey: ['ways in'], queryFn: waysIn });
  const login = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget);
    const text = (name: string) => String(given.get(name) ?? '');
    setBusy(true);
    setError(undefined);
    try {
      await (withToken ? byToken(text('token').trim()) : byPassword(text('user').trim(), text('password')));
      done();
    } catch (error) {
      setError(error);
      setBusy(false);
    }
  };
  const leave = async () => {
    setBusy(true);
    setError(undefined);
    try {
      await byOpenId();
    } catch (error) {
      setError(error);
      setBusy(false);
    }
  };
  return (
    <main className={css.page}>
      <form className={css.form} onSubmit={login}>
        <h1>
          <Icon name="mark" /> Basalt
        </h1>
        {ended && <p className="muted">The session has ended. Log in to go on where you were.</p>}
        {withToken ? (
          <label key="token">
            Token
            <input name="token" type="password" autoComplete="off" autoFocus required />
          </label>
        ) : (
          <>
            <label>
              User
              <input name="user" autoComplete="username" autoFocus required />
            </label>
            <label>
              Password
              <input name="password" type="password" autoComplete="current-password" required />
            </label>
          </>
        )}
        {error !== undefined && <Failure error={error} />}
        <button type="submit" className={`${parts.button} ${parts.primary}`} aria-disabled={busy || undefined}>
          {busy ? 'Logging in…' : 'Log in'}
        </button>
        {ways?.openid && (
          <Button off={busy && 'a login is under way'} onClick={() => void leave()}>
            Log in at {ways.openid}
          </Button>
        )}
        <button
          type="button"
          className={css.other}
          onClick={() => {
            setWithToken(!withToken);
            setError(undefined);
          }}
        >
          {withToken ? 'Log in with a password' : 'Log in with a token'}
        </button>
        {withToken && (
          <p className="muted">
            The first one is in <code>DIR/admin-token</code> on the region's host; <code>basalt token issue NAME</code> makes others.
          </p>
        )}
      </form>
    </main>
  );
}
