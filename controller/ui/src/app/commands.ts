// Ctrl-K offers the pages, and commands that the shown page adds.
import { useEffect, useSyncExternalStore } from 'react';

export interface Command {
  title: string;
  says?: string;
  run: () => void;
}

let added: ReadonlyMap<object, readonly Command[]> = new Map();
const watchers = new Set<() => void>();

function change(next: Map<object, readonly Command[]>): void {
  added = next;
  for (const watcher of watchers) watcher();
}

const watch = (watcher: () => void): (() => void) => {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
};

/** Adds commands while a page is shown. */
export function useCommands(commands: readonly Command[]): void {
  useEffect(() => {
    const key = {};
    change(new Map(added).set(key, commands));
    return () => {
      const next = new Map(added);
      next.delete(key);
      change(next);
    };
  }, [commands]);
}

export function useAdded(): readonly Command[] {
  const all = useSyncExternalStore(watch, () => added);
  return [...all.values()].flat();
}
