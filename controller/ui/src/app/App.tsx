import { useQueryClient } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { useCallback, useEffect, useRef, useState } from 'react';
import { Refused, onEnded } from '../api/client';
import { feed } from '../api/feed';
import { forgetLists } from '../api/live';
import { type WhoAmI, answerOfIssuer, byAnswer, whoami } from '../api/session';
import { Login, LoginAgain } from '../pages/Login';
import { Failure, Loading } from '../parts/Notice';
import { router } from './routes';
import { Who } from './who';

type Known =
  | { is: 'asked' }
  | { is: 'nobody'; error?: unknown }
  /** The page of a session that has ended stays below the login: somebody may have typed on it. */
  | { is: 'somebody'; who: WhoAmI; ended: boolean }
  | { is: 'unknown'; error: unknown };

const idOf = ({ actor, uid }: WhoAmI): string => `${actor} ${uid ?? ''}`;

/** Who asks comes first: without a session there is a login, on the page that was asked for. */
export function App() {
  const queries = useQueryClient();
  const [known, setKnown] = useState<Known>({ is: 'asked' });
  const before = useRef<string>(undefined);
  const look = useCallback(async () => {
    const answer = answerOfIssuer();
    let refused: unknown;
    try {
      if (answer) await byAnswer(answer);
    } catch (error) {
      // A session that is there stays.
      refused = error;
    }
    try {
      const who = await whoami();
      if (before.current !== idOf(who)) {
        queries.clear();
        forgetLists();
      }
      before.current = idOf(who);
      feed.start();
      setKnown({ is: 'somebody', who, ended: false });
      // Reads that failed without a session are repeated.
      void queries.invalidateQueries();
    } catch (error) {
      const nobody = error instanceof Refused && error.status === 401;
      setKnown((known) => {
        if (known.is === 'somebody') return { ...known, ended: known.ended || nobody };
        return nobody ? { is: 'nobody', error: refused } : { is: 'unknown', error };
      });
    }
  }, [queries]);
  useEffect(() => {
    void look();
    return onEnded((loggedOut) => {
      if (loggedOut) {
        before.current = undefined;
        queries.clear();
        setKnown({ is: 'nobody' });
      } else setKnown((known) => (known.is === 'somebody' ? { ...known, ended: true } : known));
    });
  }, [look, queries]);
  const ended = known.is === 'somebody' && known.ended;
  useEffect(() => {
    if (!ended) return;
    // A login in another tab is one for this tab too: its stream is the same.
    return feed.listen((told) => {
      if (told.type === 'live') void look();
    });
  }, [ended, look]);
  if (known.is === 'asked') return <Loading />;
  if (known.is === 'unknown') return <Failure error={known.error} again={() => void look()} />;
  if (known.is === 'nobody') return <Login first={known.error} done={() => void look()} />;
  return (
    <Who value={known.who}>
      <RouterProvider key={idOf(known.who)} router={router} />
      {known.ended && <LoginAgain who={known.who} done={() => void look()} />}
    </Who>
  );
}
