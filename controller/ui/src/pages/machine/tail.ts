// A part of a log, for React: read once, or followed.
import { useCallback, useEffect, useRef, useState } from 'react';
import { type Schemas, ask, path } from '../../api/client';
import { type LogLine, Tail } from '../../api/log';
import type { LogView } from '../../app/routes';
import { PAGE, endBefore, questionOf } from './log';

/** Lines that a page keeps; of more, the first ones are let go. */
const MOST = 50_000;
/** Lines that the region tells of at once, at most. */
const MOST_AT_ONCE = 10_000;

interface Log {
  lines: readonly LogLine[];
  /** It was read; without lines there are none. */
  isRead: boolean;
  away: boolean;
  error: unknown;
  again: () => void;
  /** Reads the page before; missing where nothing is before. */
  earlier?: () => Promise<void>;
}

export function useLog(machine: string, view: LogView, follow: boolean): Log {
  const { of, grep } = view;
  const [lines, setLines] = useState<readonly LogLine[]>([]);
  const [isRead, setRead] = useState(false);
  const [away, setAway] = useState(false);
  const [more, setMore] = useState<boolean>();
  const [error, setError] = useState<unknown>();
  const [tries, setTries] = useState(0);
  // The tail of a part. When following is switched on again, the next tail goes on there.
  const kept = useRef<{ part: string; tail: Tail } | undefined>(undefined);
  const part = JSON.stringify([machine, of, grep, tries]);
  const from = path('machines', machine, 'logs');

  useEffect(() => {
    setLines([]);
    setRead(false);
    setMore(undefined);
    setError(undefined);
    setAway(false);
    kept.current = undefined;
  }, [part]);

  useEffect(() => {
    const question = questionOf({ of, grep }, Date.now());
    if (!follow) {
      if (kept.current?.part === part) return;
      const abort = new AbortController();
      ask<Schemas['Logs']>(`${from}?${question}`, { signal: abort.signal }).then(
        (read) => {
          setLines(read.lines);
          setMore(read.more ?? false);
          setRead(true);
        },
        (error: unknown) => abort.signal.aborted || setError(error),
      );
      return () => abort.abort();
    }
    const waiting: LogLine[] = [];
    let frame: ReturnType<typeof setTimeout> | undefined;
    const flush = () => {
      frame = undefined;
      const fresh = waiting.splice(0);
      setRead(true);
      if (fresh.length > 0) setLines((before) => [...before, ...fresh].slice(-MOST));
    };
    question.set('follow', 'true');
    const tail = new Tail(`${from}?${question}`, (news) => {
      if (news.type === 'line') waiting.push(news.line);
      if (news.type === 'reset') setLines([]);
      if (news.type === 'failed') setError(news.error);
      else setAway(news.type === 'away');
      frame ??= setTimeout(flush, FRAME);
    }, kept.current?.part === part ? kept.current.tail : undefined);
    kept.current = { part, tail };
    tail.start();
    return () => {
      tail.stop();
      clearTimeout(frame);
      flush();
    };
  }, [from, of, grep, follow, part]);

  const earlier = useCallback(async () => {
    const end = endBefore(lines);
    if (!end) return;
    const question = questionOf({ of, grep }, Date.now());
    question.set('until', end.until);
    question.set('limit', String(Math.min(PAGE + end.again, MOST_AT_ONCE)));
    try {
      const read = await ask<Schemas['Logs']>(`${from}?${question}`);
      const before = read.lines.slice(0, Math.max(0, read.lines.length - end.again));
      setLines((now) => [...before, ...now]);
      setMore((read.more ?? false) && before.length > 0);
    } catch (error) {
      setError(error);
    }
  }, [lines, from, of, grep]);
  // A stream does not say it: a whole page may have others before it.
  const hasMore = more ?? lines.length >= PAGE;
  return { lines, isRead, away, error, again: () => setTries(tries + 1), earlier: hasMore && lines.length < MOST ? earlier : undefined };
}

/** New lines are drawn together so often, in milliseconds. */
const FRAME = 50;
