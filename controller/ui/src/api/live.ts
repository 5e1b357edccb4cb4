// Lists that stay true, for React.
import { useEffect, useSyncExternalStore } from 'react';
import { ask } from './client';
import { feed } from './feed';
import type { BasaltObject } from './object';
import { type Page, RowStore } from './store';
import { MACHINE_FIELDS } from './stream';

/** Rows of the first page, which are shown at once, and of each other page. */
const [FIRST, PAGE] = [200, 1000];
const stores = new Map<string, RowStore<BasaltObject>>();

export function store(kind: string, plural: string): RowStore<BasaltObject> {
  const known = stores.get(plural);
  if (known) return known;
  // A list of machines is read without their inventories.
  const fields = plural === 'machines' ? `&fields=${MACHINE_FIELDS}` : '';
  const read = (after: string | undefined) =>
    ask<Page<BasaltObject>>(
      `/api/v1/${plural}?limit=${after ? PAGE : FIRST}${fields}${after ? `&continue=${encodeURIComponent(after)}` : ''}`,
    );
  const made = new RowStore<BasaltObject>(kind, read, (flush) => {
    // A hidden tab draws no frames.
    if (document.hidden) setTimeout(flush, 200);
    else requestAnimationFrame(flush);
  });
  stores.set(plural, made);
  if (feed.at) made.covered(feed.at);
  else void made.load();
  return made;
}

feed.listen((told) => {
  // After a session that ended by itself the page stays, with its rows: the next stream makes them whole.
  if (told.type === 'ended' && told.loggedOut) stores.clear();
  for (const store of stores.values()) {
    if (told.type === 'live') store.covered(told.from);
    else store.hear(told);
  }
});

/** Lets go of all rows: the next reader may see others. */
export function forgetLists(): void {
  stores.clear();
}

/** Once more, after a refusal. */
export function reload(kind: string, plural: string): void {
  void store(kind, plural).load();
}

export function useList<T = BasaltObject>(kind: string, plural: string): { objects: readonly T[]; phase: string; error: unknown } {
  const of = store(kind, plural);
  const objects = useSyncExternalStore(of.watch, of.snapshot);
  return { objects: objects as readonly T[], phase: of.shown, error: of.error };
}

/** Calls back when the stream tells of one object, at most once in a second. */
export function useTold(kind: string, name: string, then: () => void): void {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = feed.listen((told) => {
      if (told.type === 'live') {
        timer ??= setTimeout(fire, 50);
      } else if (told.type === 'put' || told.type === 'delete') {
        const object = told.object as BasaltObject;
        if (object.kind === kind && object.metadata.name === name) timer ??= setTimeout(fire, 400);
      }
    });
    const fire = () => {
      timer = undefined;
      then();
    };
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [kind, name, then]);
}

export function useLiveness() {
  return useSyncExternalStore(feed.watch, () => feed.liveness);
}
