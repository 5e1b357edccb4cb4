// Light, dark, or as the system is.

export type Theme = 'system' | 'light' | 'dark';

const KEY = 'theme';
const dark = matchMedia('(prefers-color-scheme: dark)');

export function theme(): Theme {
  const kept = localStorage.getItem(KEY);
  return kept === 'light' || kept === 'dark' ? kept : 'system';
}

export function setTheme(theme: Theme): void {
  localStorage.setItem(KEY, theme);
  show();
}

export function show(): void {
  const chosen = theme();
  const shown = chosen === 'system' ? (dark.matches ? 'dark' : 'light') : chosen;
  document.documentElement.dataset.theme = shown;
}

/** The other one of light and dark. */
export function turn(): void {
  setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
}

dark.addEventListener('change', show);

/** Rows of 28 pixels in place of 32. */
const DENSE = 'compact';
const watchers = new Set<() => void>();

export const isCompact = (): boolean => localStorage.getItem(DENSE) === 'yes';

export function turnDensity(): void {
  localStorage.setItem(DENSE, isCompact() ? 'no' : 'yes');
  showDensity();
}

export function showDensity(): void {
  document.documentElement.dataset.density = isCompact() ? 'compact' : 'usual';
  for (const watcher of watchers) watcher();
}

export function onDensity(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}
