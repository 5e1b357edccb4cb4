// Single objects, kept fresh by the stream.
import { type UseQueryResult, useQuery, useQueryClient } from '@tanstack/react-query';
import { useCallback } from 'react';
import { Refused, ask, path } from './client';
import { useTold } from './live';
import type { BasaltObject } from './object';

/** What is said of an object below its path: `waits`, `timeline`, …; of the object itself without one. */
export function useObject<T = BasaltObject>(kind: string, plural: string, name: string, ...below: string[]): UseQueryResult<T> {
  const queries = useQueryClient();
  const told = useCallback(() => void queries.invalidateQueries({ queryKey: [plural, name] }), [queries, plural, name]);
  useTold(kind, name, told);
  return useQuery({ queryKey: [plural, name, ...below], queryFn: () => ask<T>(path(plural, name, ...below)) });
}

/** Anything else that is read, again every so many milliseconds while it is shown. */
export function useRead<T>(from: string, every?: number): UseQueryResult<T> {
  return useQuery({ queryKey: ['read', from], queryFn: () => ask<T>(from), refetchInterval: every });
}

/** The object is gone, so its page ends. After any other failure a page that has the object stays: a text that is shown once may be on it. */
export const isGone = (error: unknown): boolean => error instanceof Refused && error.status === 404;
