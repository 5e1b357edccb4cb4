import { useQuery } from '@tanstack/react-query';
import { type FormEvent, type ReactNode, useEffect, useRef, useState } from 'react';
import { type WhoAmI, byOpenId, byPassword, byToken, waysIn } from '../api/session';
import { Icon } from '../app/icons';
import { Button } from '../parts/Button';
import { Failure } from '../parts/Notice';
import css from './Login.module.css';
import parts from '../parts/parts.module.css';

/** Where somebody logs in. `first` is why the issuer's answer was not enough. */
export function Login({ first, done }: { first?: unknown; done: () => void }) {
  return (
    <main className={css.page}>
      <Ways
        first={first}
        done={done}
        elsewhere={byOpenId}
        head={
          <h1>
            <Icon name="mark" /> Basalt
          </h1>
        }
      />
    </main>
  );
}

/** The login over a page whose session has ended: what was typed on the page stays. */
export function LoginAgain({ who, done }: { who: WhoAmI; done: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    // A dialog that opens takes its first field, whatever its fields say of the focus.
    [...(shown?.querySelectorAll('input') ?? [])].find((field) => !field.value)?.focus();
    return () => shown?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      className={css.again}
      aria-labelledby="again"
      onKeyDown={(event) => {
        // Escape would close this dialog, and the one below it too.
        if (event.key === 'Escape') event.preventDefault();
      }}
      onCancel={(event) => event.preventDefault()}
    >
      <Ways
        user={who.by === 'session' ? who.user : undefined}
        done={done}
        // The issuer's page opens in another tab: here it would replace the form.
        elsewhere={async () => void open('/ui/machines')}
        head={
          <>
            <h1 id="again">The session has ended</h1>
            <p className="muted">Log in to go on. The page below is as you left it; another user begins anew.</p>
          </>
        }
      />
    </dialog>
  );
}

interface Props {
  user?: string;
  first?: unknown;
  done: () => void;
  /** Leaves for the issuer. */
  elsewhere: () => Promise<void>;
  head: ReactNode;
}

/** The ways to log in: a password, a token, the issuer. */
function Ways({ user, first, done, elsewhere, head }: Props) {
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
      await elsewhere();
      setBusy(false);
    } catch (error) {
      setError(error);
      setBusy(false);
    }
  };
  return (
    <form className={css.form} onSubmit={login}>
      {head}
      {withToken ? (
        <label key="token">
          Token
          <input name="token" type="password" autoComplete="off" autoFocus required />
        </label>
      ) : (
        <>
          <label>
            User
            <input name="user" autoComplete="username" autoFocus={!user} defaultValue={user} required />
          </label>
          <label>
            Password
            <input name="password" type="password" autoComplete="current-password" autoFocus={!!user} required />
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
  );
}
