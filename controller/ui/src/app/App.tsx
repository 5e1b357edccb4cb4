import { useQueryClient } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { useCallback, useEffect, useState } from 'react';
import { Refused, onEnded } from '../api/client';
import { feed } from '../api/feed';
import { type WhoAmI, answerOfIssuer, byAnswer, whoami } from '../api/session';
import { Login } from '../pages/Login';
import { Failure, Loading } from '../parts/Notice';
import { router } from './routes';
import { Who } from './who';

type Known = { is: 'asked' } | { is: 'nobody'; ended: boolean; error?: unknown } | { is: 'somebody'; who: WhoAmI } | { is: 'unknown'; error: unknown };

/** Who asks comes first: without a session there is a login, on the page that was asked for. */
export function App() {
  const queries = useQueryClient();
  const [known, setKnown] = useState<Known>({ is: 'asked' });
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
      feed.start();
      setKnown({ is: 'somebody', who });
    } catch (error) {
      const nobody = error instanceof Refused && error.status === 401;
      setKnown(nobody ? { is: 'nobody', ended: false, error: refused } : { is: 'unknown', error });
    }
  }, []);
  useEffect(() => {
    void look();
    return onEnded(() => {
      queries.clear();
      setKnown((before) => (before.is === 'nobody' ? before : { is: 'nobody', ended: before.is === 'somebody' }));
    });
  }, [look, queries]);
  if (known.is === 'asked') return <Loading />;
  if (known.is === 'unknown') return <Failure error={known.error} again={() => void look()} />;
  if (known.is === 'nobody') return <Login ended={known.ended} first={known.error} done={() => void look()} />;
  return (
    <Who value={known.who}>
      <RouterProvider router={router} />
    </Who>
  );
}
