// The machines that a filter names as the target of an action. A list shows more when a term cannot be read; an action must not.
import type { Machine } from '../../api/object';
import { type Term, fault, matcher, parse } from '../../filter/language';
import { MACHINES } from '../../filter/machines';

/** The list of machines as `useList` returns it. */
export interface Fleet {
  objects: readonly Machine[];
  phase: string;
  error: unknown;
}

export interface Targets {
  machines: Machine[];
  /** The reason why the filter names no target. No action may be sent then. */
  refusal?: string;
}

/** Refuses (1) a list that is not complete, (2) an empty filter, (3) a filter with a term that is wrong or has no value. */
export function targetsOf(filter: string, { objects, phase, error }: Fleet): Targets {
  const refusal = incomplete(objects, phase, error) ?? unclear(filter);
  if (refusal) return { machines: [], refusal };
  const machines = objects.filter(matcher(parse(filter), MACHINES));
  return machines.length > 0 ? { machines } : { machines, refusal: `No machine of ${objects.length} matches.` };
}

/** A list that was read again without success lacks the latest machines. */
function incomplete(objects: readonly Machine[], phase: string, error: unknown): string | undefined {
  if (phase === 'failed' || error !== undefined) return `The machines could not be read: ${error instanceof Error ? error.message : String(error)}`;
  if (phase !== 'ready') return `Machines are still being read: ${objects.length} so far.`;
  return undefined;
}

function unclear(filter: string): string | undefined {
  const terms = parse(filter);
  if (terms.length === 0) return 'The filter names the machines: name:web1, zone:row-1, tags:gpu';
  const wrong = (term: Term) => fault(MACHINES, term) ?? (term.values.length === 0 ? 'a value is missing' : undefined);
  const term = terms.find(wrong);
  return term && `The filter names no machines: in ${filter.slice(term.start, term.end)}, ${wrong(term)}.`;
}
