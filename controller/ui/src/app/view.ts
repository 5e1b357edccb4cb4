// The view of a list is its address: it can be kept, sent, and gone back to.
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useCallback, useEffect, useRef, useState } from 'react';
import type { View } from './routes';

const PAUSE = 150;

export function useView(): { view: View; text: string; setText: (text: string) => void; change: (more: View) => void } {
  const view: View = useSearch({ strict: false });
  const navigate = useNavigate();
  const change = useCallback(
    (more: View) => void navigate({ to: '.', search: (before: View) => ({ ...before, ...more }), replace: true } as never),
    [navigate],
  );
  // A typed letter is shown at once. The address follows when the typing pauses.
  const [text, show] = useState(view.q ?? '');
  const pushed = useRef(view.q ?? '');
  useEffect(() => {
    const q = view.q ?? '';
    if (q === pushed.current) return;
    pushed.current = q;
    show(q);
  }, [view.q]);
  useEffect(() => {
    if (text === pushed.current) return;
    const timer = setTimeout(() => {
      pushed.current = text;
      change({ q: text || undefined });
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [text, change]);
  return { view, text, setText: show, change };
}
