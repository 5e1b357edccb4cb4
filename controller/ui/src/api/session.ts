// Logging in and out, and the person who is logged in.
import { type Answer, answerIn, sentenceOf } from './answer';
import { Refused, type Schemas, ask } from './client';
import { feed } from './feed';

export type WhoAmI = Schemas['WhoAmI'];

const LOGIN = '/api/v1/login?cookie=true';

export const whoami = (): Promise<WhoAmI> => ask<WhoAmI>('/api/v1/whoami');

export const byPassword = (user: string, password: string): Promise<void> =>
  ask(LOGIN, { method: 'POST', body: { user, password } });

export const byToken = (token: string): Promise<void> => ask(LOGIN, { method: 'POST', body: { token } });

/** The issuer's host, where people log in by OpenID Connect. */
export const waysIn = (): Promise<Schemas['LoginWays']> => ask('/api/v1/login');

/** The page that was asked for, while the browser is at the issuer. It stays in this tab: no address names it. */
const ASKED_FOR = 'basalt-asked-for';
const BACK = '/ui/login';

/** Leaves for the issuer's page. */
export async function byOpenId(): Promise<void> {
  const { location: issuer } = await ask<Schemas['LoginBegun']>('/api/v1/login/openid');
  sessionStorage.setItem(ASKED_FOR, location.pathname + location.search);
  location.assign(issuer);
}

/** The issuer's answer, if the browser comes with one. It is in the address, and leaves it at once. */
export function answerOfIssuer(): Answer | undefined {
  if (location.pathname !== BACK) return undefined;
  const asked = sessionStorage.getItem(ASKED_FOR);
  const answer = answerIn(location.search, asked !== null);
  const before = asked ?? '';
  sessionStorage.removeItem(ASKED_FOR);
  history.replaceState(null, '', before.startsWith('/ui/') && !before.startsWith(BACK) ? before : '/ui/machines');
  return answer;
}

/** Ends a login that went by way of the issuer. */
export async function byAnswer(answer: Answer): Promise<void> {
  if ('error' in answer) throw new Refused({ detail: sentenceOf(answer.error) });
  await ask(LOGIN, { method: 'POST', body: answer });
}

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
