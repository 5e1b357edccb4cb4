import { useSyncExternalStore } from 'react';
import { absolute, relative } from './time';

// One clock for the page: only what is on the screen is drawn again.
let now = Date.now();
const watchers = new Set<() => void>();
let ticking: ReturnType<typeof setInterval> | undefined;

function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  ticking ??= setInterval(() => {
    now = Date.now();
    for (const watcher of watchers) watcher();
  }, 10_000);
  return () => {
    watchers.delete(watcher);
    if (watchers.size === 0) {
      clearInterval(ticking);
      ticking = undefined;
    }
  };
}

export function useNow(): number {
  return useSyncExternalStore(watch, () => now);
}

/** How long ago, with the time itself on hover and in copies. */
export function Time({ at }: { at: string | number | null | undefined }) {
  const now = useNow();
  if (at === null || at === undefined) return <span className="faint">never</span>;
  return (
    <time dateTime={new Date(at).toISOString()} title={absolute(at)}>
      {relative(at, Math.max(now, Date.now() - 10_000))}
    </time>
  );
}
