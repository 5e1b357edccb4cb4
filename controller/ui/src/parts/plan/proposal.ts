// A proposal is tried out, shown, and then done. A write is bound to the digest of the plan that was shown, a deletion to the generation.
import { type Schemas, ask, path } from '../../api/client';
import type { BasaltObject, Json } from '../../api/object';

export type Verb = 'power_on' | 'power_off' | 'power_cycle' | 'recommission' | 'abort';

export interface Document {
  kind: string;
  metadata: { name: string; labels?: Record<string, string> };
  spec: Json;
}

export type Proposal =
  | { kind: 'apply'; documents: Document[] }
  | { kind: 'delete'; of: string; plural: string; name: string }
  | { kind: 'operation'; verb: Verb; machines: string[] };

/** What would become of one object or machine. */
export interface Outcome {
  name: string;
  of: string;
  action: string;
  plan?: Schemas['PlanReport'];
  refused?: unknown;
}

export interface Tried {
  summary: string;
  outcomes: Outcome[];
  /** Machines whose power is switched; whose disks are erased or written. */
  power: string[];
  disks: string[];
  consequences?: Schemas['Consequences'];
  advisories: Schemas['Advisory'][];
  /** What an apply is bound to. */
  digest?: string;
  /** What a deletion is bound to. */
  generation?: number;
}

/** Requests at once, where one is needed for each machine. */
const AT_ONCE = 6;

export async function tryOut(proposal: Proposal, adopt: boolean): Promise<Tried> {
  switch (proposal.kind) {
    case 'apply': {
      const said = await ask<Schemas['ApplyResponse']>('/api/v1/apply?dry_run=true', {
        method: 'POST',
        body: { documents: proposal.documents, adopt },
      });
      return {
        summary: said.summary,
        outcomes: said.results.map(({ name, kind, action, plan }) => ({ name, of: kind, action, plan })),
        power: said.blast_radius?.power ?? [],
        disks: said.blast_radius?.disks ?? [],
        consequences: said.consequences,
        advisories: said.advisories,
        digest: said.digest,
      };
    }
    case 'delete': {
      const { of, plural, name } = proposal;
      const said = await ask<Schemas['DryRun']>(`${path(plural, name)}?dry_run=true${adopt ? '&adopt=true' : ''}`, { method: 'DELETE' });
      const object = said.object as unknown as BasaltObject;
      return { ...ofPlans([{ name, of, action: 'deleted', plan: said.plan }]), consequences: said.consequences, advisories: said.advisories, generation: object.metadata.generation };
    }
    case 'operation': {
      const { verb, machines } = proposal;
      return ofPlans(
        await each(machines, async (name): Promise<Outcome> => {
          const outcome = { name, of: 'Machine', action: saidOf(verb) };
          try {
            const said = await ask<Schemas['DryRun']>(`${path('machines', name, 'operations')}?dry_run=true`, { method: 'POST', body: { verb } });
            return { ...outcome, plan: said.plan };
          } catch (refused) {
            return { ...outcome, refused };
          }
        }),
      );
    }
  }
}

function ofPlans(outcomes: Outcome[]): Tried {
  const having = (what: 'power' | 'destructive') => outcomes.filter(({ plan }) => plan?.steps.some((step) => step[what])).map(({ name }) => name);
  const [only] = outcomes;
  return {
    summary: outcomes.length === 1 ? (only?.plan?.summary ?? '') : '',
    outcomes,
    power: having('power'),
    disks: having('destructive'),
    advisories: [],
  };
}

/** Does it; the answer is what became of each. */
export async function carryOut(proposal: Proposal, tried: Tried, adopt: boolean): Promise<Outcome[]> {
  switch (proposal.kind) {
    case 'apply': {
      const said = await ask<Schemas['ApplyResponse']>('/api/v1/apply', {
        method: 'POST',
        body: { documents: proposal.documents, adopt, digest: tried.digest },
      });
      return said.results.map(({ name, kind, action }) => ({ name, of: kind, action }));
    }
    case 'delete': {
      const { of, plural, name } = proposal;
      await ask(`${path(plural, name)}${adopt ? '?adopt=true' : ''}`, { method: 'DELETE', headers: { 'if-match': `"${tried.generation}"` } });
      return [{ name, of, action: 'deleted' }];
    }
    case 'operation': {
      const { verb } = proposal;
      const able = tried.outcomes.filter(({ refused }) => !refused);
      return each(able, async (outcome): Promise<Outcome> => {
        try {
          await ask(path('machines', outcome.name, 'operations'), {
            method: 'POST',
            body: { verb },
            headers: { 'idempotency-key': crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` },
          });
          return outcome;
        } catch (refused) {
          return { ...outcome, refused };
        }
      });
    }
  }
}

/** One after the other, some at once, in their order. */
async function each<A, B>(all: readonly A[], one: (of: A) => Promise<B>): Promise<B[]> {
  const done: B[] = new Array(all.length);
  let next = 0;
  const work = async () => {
    for (let at = next++; at < all.length; at = next++) done[at] = await one(all[at] as A);
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, all.length) }, work));
  return done;
}

const SAID: Record<Verb, string> = {
  power_on: 'switched on',
  power_off: 'switched off',
  power_cycle: 'power-cycled',
  recommission: 'commissioned again',
  abort: 'aborted',
};
export const saidOf = (verb: Verb): string => SAID[verb];

const DOING: Record<Verb, string> = {
  power_on: 'Switch on',
  power_off: 'Switch off',
  power_cycle: 'Power-cycle',
  recommission: 'Recommission',
  abort: 'Abort the work on',
};
export const doingOf = (verb: Verb): string => DOING[verb];

/** The verb and the count, as the button repeats them: `Erase 2 machines`. */
export function verbOf(proposal: Proposal, tried: Tried): string {
  const machines = (count: number) => `${count} ${count === 1 ? 'machine' : 'machines'}`;
  if (proposal.kind === 'operation') return `${doingOf(proposal.verb)} ${machines(tried.outcomes.filter(({ refused }) => !refused).length)}`;
  if (tried.disks.length > 0) return `Erase ${machines(tried.disks.length)}`;
  if (proposal.kind === 'delete') return `Delete ${proposal.name}`;
  if (tried.power.length > 0) return `Apply, and switch the power of ${machines(tried.power.length)}`;
  const changed = tried.outcomes.filter(({ action }) => action !== 'unchanged').length;
  return `Apply ${changed} ${changed === 1 ? 'change' : 'changes'}`;
}
