// Writes for many machines: each is tried by itself as far as its refusal goes, and applied in the parts that were tried, by their digests.
import { Refused, type Schemas, ask, path } from '../../api/client';
import type { Machine } from '../../api/object';
import type { Document, Outcome, Progress, Tried } from './proposal';

/** One document for each of many machines. */
export interface Edit {
  kind: 'edit';
  /** The words of the button, before the count of machines. */
  verb: string;
  /** What became of a machine: `given its tags`. */
  said: string;
  machines: string[];
  /** The document of a machine as it is now. A text is the reason why it has none. */
  document: (machine: Machine) => Document | string;
  /** The documents make new objects: one that is there already is not changed. */
  creates?: boolean;
}

/** The deployments of many machines are given up. */
export interface ReleaseOf {
  kind: 'release';
  machines: string[];
}

/** Documents of one request, with the machine of each. */
export interface Part {
  documents: Document[];
  machines: string[];
  digest: string;
}

/** A deployment as its deletion was planned. */
export interface Held {
  deployment: string;
  generation: number;
}

/** Machines of one request. The region reads them by a filter of limited length. */
export const PART = 25;
/** Deletions that are on their way at once. */
const AT_ONCE = 4;

const FIELDS = 'kind,metadata,spec,status.deployment,status.tags,status.automatic_tags';

/** The machines as they are now. A list may lag behind, and a document has the whole spec. */
async function read(names: string[]): Promise<Map<string, Machine>> {
  const filter = `name:(${names.map((name) => `=${name}`).join(',')})`;
  const { items } = await ask<{ items: Machine[] }>(`/api/v1/machines?limit=${names.length}&fields=${FIELDS}&where=${encodeURIComponent(filter)}`);
  return new Map(items.map((machine) => [machine.metadata.name, machine]));
}

const GONE = 'there is no such machine';

export function partsOf<T>(all: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(all.length / size) }, (_, at) => all.slice(at * size, (at + 1) * size));
}

const refusedOf = (name: string, refused: unknown): Outcome => ({ name, of: 'Machine', action: 'unchanged', refused });

/** Tries the documents of all machines. */
export async function tryEdit(edit: Edit, adopt: boolean, progress?: Progress): Promise<Omit<Tried, 'key' | 'summary'> & { parts: Part[] }> {
  const parts: Part[] = [];
  const outcomes: Outcome[] = [];
  const said: Schemas['ApplyResponse'][] = [];
  for (const names of partsOf(edit.machines, PART)) {
    const machines = await read(names);
    const able: Omit<Part, 'digest'> = { documents: [], machines: [] };
    for (const name of names) {
      const machine = machines.get(name);
      const document = machine ? edit.document(machine) : GONE;
      if (typeof document === 'string') outcomes.push(refusedOf(name, new Refused({ detail: document })));
      else {
        able.documents.push(document);
        able.machines.push(name);
      }
    }
    for (const tried of await tryPart(edit, able, adopt)) {
      outcomes.push(...tried.outcomes);
      if (tried.said) {
        said.push(tried.said);
        parts.push({ documents: tried.documents, machines: tried.machines, digest: tried.said.digest });
      }
    }
    progress?.(outcomes.length);
  }
  const place = new Map(edit.machines.map((name, at) => [name, at]));
  outcomes.sort((a, b) => (place.get(a.name) ?? 0) - (place.get(b.name) ?? 0));
  const machines = new Map(said.flatMap(({ consequences }) => consequences?.machines ?? []).map((it) => [it.machine, it]));
  return {
    outcomes,
    parts,
    power: [...new Set(said.flatMap(({ blast_radius }) => blast_radius?.power ?? []))],
    disks: [...new Set(said.flatMap(({ blast_radius }) => blast_radius?.disks ?? []))],
    consequences: { machines: [...machines.values()], not_told: Math.max(0, ...said.map(({ consequences }) => consequences?.not_told ?? 0)) },
    advisories: said.flatMap(({ advisories }) => advisories),
  };
}

interface TriedPart {
  documents: Document[];
  machines: string[];
  outcomes: Outcome[];
  said?: Schemas['ApplyResponse'];
}

/** One refused document refuses all of its request. So those that are to blame are left out, and the others are tried again. */
async function tryPart(edit: Edit, { documents, machines }: Omit<Part, 'digest'>, adopt: boolean): Promise<TriedPart[]> {
  if (documents.length === 0) return [];
  const only = (places: number[]) => ({ documents: places.map((at) => documents[at] as Document), machines: places.map((at) => machines[at] as string) });
  try {
    const said = await ask<Schemas['ApplyResponse']>('/api/v1/apply?dry_run=true', { method: 'POST', body: { documents, adopt } });
    const taken = edit.creates ? said.results.flatMap(({ action }, at) => (action === 'created' ? [] : [at])) : [];
    if (taken.length > 0) {
      const [first] = taken;
      const name = documents[first as number]?.metadata.name;
      return without(edit, documents, machines, new Map(taken.map((at) => [at, `${documents[at]?.kind} ${documents[at]?.metadata.name ?? name} is there already`])), adopt);
    }
    const outcomes = machines.map((name, at): Outcome => {
      const result = said.results[at];
      return { name, of: 'Machine', action: result?.action === 'unchanged' ? 'unchanged' : edit.said, plan: result?.plan };
    });
    return [{ documents, machines, outcomes, said }];
  } catch (error) {
    if (!isRefusal(error)) throw error;
    if (documents.length === 1) return [{ documents, machines, outcomes: [refusedOf(machines[0] as string, error)] }];
    const blamed = blamedOf(error.problem.errors ?? [], documents.length);
    if (blamed.size > 0) return without(edit, documents, machines, blamed, adopt);
    if (error.status === 401 || error.status === 403) throw error;
    const half = Math.ceil(documents.length / 2);
    const places = documents.map((_, at) => at);
    return [...(await tryPart(edit, only(places.slice(0, half)), adopt)), ...(await tryPart(edit, only(places.slice(half)), adopt))];
  }
}

async function without(edit: Edit, documents: Document[], machines: string[], blamed: ReadonlyMap<number, string>, adopt: boolean): Promise<TriedPart[]> {
  const outcomes = [...blamed].map(([at, why]) => refusedOf(machines[at] as string, new Refused({ detail: why })));
  const rest = documents.map((_, at) => at).filter((at) => !blamed.has(at));
  const others = { documents: rest.map((at) => documents[at] as Document), machines: rest.map((at) => machines[at] as string) };
  return [{ documents: [], machines: [], outcomes }, ...(await tryPart(edit, others, adopt))];
}

/** A refusal that an answer has, and not the lack of an answer. */
const isRefusal = (error: unknown): error is Refused => error instanceof Refused && error.status >= 400 && error.status < 500;

/** The documents that errors name by their pointers, each with its reasons. */
export function blamedOf(errors: readonly Schemas['FieldError'][], documents: number): Map<number, string> {
  const blamed = new Map<number, string>();
  for (const { pointer, message } of errors) {
    const at = Number(/^\/documents\/(\d+)(?:\/|$)/.exec(pointer)?.[1] ?? NaN);
    if (!(at < documents)) continue;
    const before = blamed.get(at);
    blamed.set(at, before === undefined ? message : `${before}; ${message}`);
  }
  return blamed;
}

/** Applies the parts that were tried. A part whose plan has changed is not applied. With `again` some of the parts may have been applied. */
export async function applyEdit(edit: Edit, parts: readonly Part[], adopt: boolean, progress?: Progress, again = false): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  for (const [number, { documents, machines, digest }] of parts.entries()) {
    const each = (of: (name: string) => Outcome) => outcomes.push(...machines.map(of));
    try {
      const done = again && (await isDone(documents, adopt));
      if (!done) await ask<Schemas['ApplyResponse']>('/api/v1/apply', { method: 'POST', body: { documents, adopt, digest } });
      each((name) => ({ name, of: 'Machine', action: edit.said }));
    } catch (error) {
      if (isRefusal(error)) {
        // Nothing was done: the plan is made and shown again.
        if (number === 0 && error.code === 'stale_plan' && !again) throw error;
        each((name) => refusedOf(name, error));
      } else {
        each((name) => ({ ...refusedOf(name, error), action: 'unknown', missed: 'unknown' }));
        const rest = parts.slice(number + 1).flatMap(({ machines }) => machines);
        return [...outcomes, ...rest.map((name): Outcome => ({ ...refusedOf(name, error), action: 'not asked', missed: 'not asked' }))];
      }
    }
    progress?.(outcomes.length);
  }
  return outcomes;
}

/** The documents were applied by a request whose answer did not come. */
async function isDone(documents: Document[], adopt: boolean): Promise<boolean> {
  const { results } = await ask<Schemas['ApplyResponse']>('/api/v1/apply?dry_run=true', { method: 'POST', body: { documents, adopt } });
  return results.every(({ action }) => action === 'unchanged');
}

/** Plans the release of all machines. */
export async function tryRelease(machines: string[], adopt: boolean, progress?: Progress): Promise<{ outcomes: Outcome[]; held: Map<string, Held> }> {
  const held = new Map<string, Held>();
  const outcomes: Outcome[] = [];
  for (const names of partsOf(machines, PART)) {
    const known = await read(names);
    outcomes.push(
      ...(await some(names, async (name): Promise<Outcome> => {
        const machine = known.get(name);
        const deployment = machine?.status.deployment;
        if (!deployment) return refusedOf(name, new Refused({ detail: machine ? 'it has no deployment' : GONE }));
        try {
          const { plan, object } = await ask<Schemas['DryRun']>(deletion(deployment, true, adopt), { method: 'DELETE' });
          held.set(name, { deployment, generation: (object as { metadata: { generation: number } }).metadata.generation });
          return { name, of: 'Machine', action: 'released', plan };
        } catch (error) {
          if (!isRefusal(error) || error.status === 401) throw error;
          return refusedOf(name, error);
        }
      })),
    );
    progress?.(outcomes.length);
  }
  return { outcomes, held };
}

/** Deletes the deployments that were planned. One that is gone was released. */
export async function release(held: ReadonlyMap<string, Held>, adopt: boolean, progress?: Progress): Promise<Outcome[]> {
  let failed: unknown;
  let answered = 0;
  return some([...held], async ([name, { deployment, generation }]): Promise<Outcome> => {
    if (failed !== undefined) return { ...refusedOf(name, failed), action: 'not asked', missed: 'not asked' };
    try {
      await ask(deletion(deployment, false, adopt), { method: 'DELETE', headers: { 'if-match': `"${generation}"` } });
    } catch (error) {
      if (!isRefusal(error)) {
        failed = error;
        return { ...refusedOf(name, error), action: 'unknown', missed: 'unknown' };
      }
      if (error.status !== 404) return refusedOf(name, error);
    }
    progress?.((answered += 1));
    return { name, of: 'Machine', action: 'released' };
  });
}

const deletion = (deployment: string, dry: boolean, adopt: boolean): string => {
  const query = [dry && 'dry_run=true', adopt && 'adopt=true'].filter(Boolean).join('&');
  return `${path('deployments', deployment)}${query && `?${query}`}`;
};

/** Does it for each, some at a time. The results are in order. */
async function some<T, R>(all: readonly T[], each: (one: T) => Promise<R>): Promise<R[]> {
  const results = new Array<R>(all.length);
  let next = 0;
  const work = async () => {
    while (next < all.length) {
      const at = next++;
      results[at] = await each(all[at] as T);
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, all.length) }, work));
  return results;
}
