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
