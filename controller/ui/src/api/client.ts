// Requests to the region. The cookie says who asks; a refusal is a Problem (RFC 9457) with its words.
import type { components } from './schema';

export type Schemas = components['schemas'];
export type ProblemBody = Schemas['Problem'];

/** An answer that is no success, or none at all. */
export class Refused extends Error {
  readonly problem: Partial<ProblemBody>;

  constructor(problem: Partial<ProblemBody>) {
    super(problem.detail ?? problem.title ?? 'the region did not answer');
    this.problem = problem;
  }

  get status(): number {
    return this.problem.status ?? 0;
  }

  get code(): string {
    return this.problem.code ?? 'unavailable';
  }
}

type Listener = (loggedOut: boolean) => void;
const ended = new Set<Listener>();

/** Calls back when the region knows the session no more; a logout, in any tab, says so. */
export function onEnded(listener: Listener): () => void {
  ended.add(listener);
  return () => ended.delete(listener);
}

export function tellEnded(loggedOut = false): void {
  for (const listener of ended) listener(loggedOut);
}

export interface Ask {
  method?: string;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** The answer as JSON; undefined where there is none. */
export async function ask<T>(path: string, { method = 'GET', body, headers, signal }: Ask = {}): Promise<T> {
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      signal,
      headers: body === undefined ? headers : { 'content-type': 'application/json', ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused({ detail: `the region does not answer ${method} ${path}; check the network, and that it runs` });
  }
  if (response.ok) return (response.status === 204 ? undefined : await response.json()) as T;
  const refused = new Refused(await problem(response));
  if (refused.status === 401 && !path.startsWith('/api/v1/login')) tellEnded();
  throw refused;
}

export async function problem(response: Response): Promise<Partial<ProblemBody>> {
  const body = (await response.json().catch(() => ({}))) as Partial<ProblemBody>;
  return { ...body, status: response.status, title: body.title ?? `HTTP ${response.status}` };
}

/** A path of parts, each quoted. */
export function path(...parts: string[]): string {
  return `/api/v1/${parts.map(encodeURIComponent).join('/')}`;
}
