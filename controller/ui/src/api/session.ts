// Logging in and out, and the person who is logged in.
import { type Schemas, ask } from './client';
import { feed } from './feed';

export type WhoAmI = Schemas['WhoAmI'];

const LOGIN = '/api/v1/login?cookie=true';

export const whoami = (): Promise<WhoAmI> => ask<WhoAmI>('/api/v1/whoami');

export const byPassword = (user: string, password: string): Promise<void> =>
  ask(LOGIN, { method: 'POST', body: { user, password } });

export const byToken = (token: string): Promise<void> => ask(LOGIN, { method: 'POST', body: { token } });

export async function logout(): Promise<void> {
  await ask('/api/v1/logout', { method: 'POST' });
  feed.stop();
}

/** Whether somebody may change objects, somewhere at least. */
export function mayWrite({ roles, scopes }: WhoAmI): boolean {
  const reads = scopes.length > 0 && scopes.every((scope) => scope.endsWith(':read'));
  return !reads && roles.some((role) => role.role !== 'viewer');
}

export function isAdmin({ roles }: WhoAmI): boolean {
  return roles.some((role) => role.role === 'admin' && !role.pools);
}

/** A session ends half an hour after its last use, so somebody who reads a page without asking anything has to say so. */
const USED = 5 * 60_000;

export function keepAlive(): () => void {
  let last = Date.now();
  const use = () => {
    if (Date.now() - last < USED) return;
    last = Date.now();
    void whoami().catch(() => undefined);
  };
  const signs = ['pointerdown', 'keydown', 'wheel'] as const;
  for (const sign of signs) addEventListener(sign, use, { passive: true });
  return () => {
    for (const sign of signs) removeEventListener(sign, use);
  };
}
