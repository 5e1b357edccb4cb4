// Views that somebody keeps, in this browser: a name, and what the address of a list has.
import { useSyncExternalStore } from 'react';
import type { View } from './routes';

export interface Kept {
  name: string;
  view: View;
}

/** Views of one list, at most. */
export const MOST_VIEWS = 50;

const watchers = new Set<() => void>();
const cache = new Map<string, { text: string; views: readonly Kept[] }>();

const keyOf = (plural: string): string => `basalt-views-${plural}`;

/** What is stored, as far as it can be read. */
export function viewsOf(text: string | null): readonly Kept[] {
  try {
    const all: unknown = JSON.parse(text ?? '[]');
    if (!Array.isArray(all)) return [];
    return all.filter((it): it is Kept => typeof it?.name === 'string' && typeof it?.view === 'object' && it.view !== null).slice(0, MOST_VIEWS);
  } catch {
    return [];
  }
}

function read(plural: string): readonly Kept[] {
  const text = localStorage.getItem(keyOf(plural)) ?? '[]';
  const known = cache.get(plural);
  if (known?.text === text) return known.views;
  const views = viewsOf(text);
  cache.set(plural, { text, views });
  return views;
}

/** The views with this one: one of the same name is another now. */
export function withView(views: readonly Kept[], { name, view }: Kept): readonly Kept[] {
  const others = views.filter((it) => it.name !== name);
  return [...others, { name, view }].sort((a, b) => a.name.localeCompare(b.name)).slice(0, MOST_VIEWS);
}

function write(plural: string, views: readonly Kept[]): void {
  localStorage.setItem(keyOf(plural), JSON.stringify(views));
  for (const watcher of watchers) watcher();
}

function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  // Another tab may change them.
  addEventListener('storage', watcher);
  return () => {
    watchers.delete(watcher);
    removeEventListener('storage', watcher);
  };
}

export function useViews(plural: string) {
  const views = useSyncExternalStore(watch, () => read(plural));
  return {
    views,
    keep: (kept: Kept) => write(plural, withView(views, kept)),
    forget: (name: string) =>
      write(
        plural,
        views.filter((it) => it.name !== name),
      ),
  };
}
