import { createContext, useContext } from 'react';
import { type WhoAmI, mayWrite } from '../api/session';
import { useLiveness } from '../api/live';

export const Who = createContext<WhoAmI | undefined>(undefined);

export function useWho(): WhoAmI {
  const who = useContext(Who);
  if (!who) throw new Error('nobody is logged in');
  return who;
}

/** Whether this page shows what changes things; and why it cannot be used now. */
export function useWrites(): { may: boolean; off: string | false } {
  const who = useWho();
  const liveness = useLiveness();
  return { may: mayWrite(who), off: !liveness.live && 'the region is away' };
}
