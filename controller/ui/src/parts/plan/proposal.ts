// A proposal is tried out, shown, and then done. A write is bound to the digest of the plan that was shown, a deletion to the generation.
import { Refused, type Schemas, ask, path } from '../../api/client';
import type { BasaltObject, Json } from '../../api/object';
import { type Edit, type Held, type Part, type ReleaseOf, applyEdit, release, tryEdit, tryRelease } from './many';

export type Verb = Schemas['Action']['verb'];

/** A verb, with what it needs to know. */
export type Wish = Schemas['OperationRequest'];

/** A verb that says everything. */
export const wishOf = (verb: Verb): Wish => ({ verb });

/** Machines that one request asks, at most. More are asked in several requests, one after the other. */
const MOST = 1000;

/** Told after each request: machines that have answered. */
export type Progress = (answered: number) => void;

export interface Document {
  kind: string;
  metadata: { name: string; labels?: Record<string, string> };
  spec: Json;
}

export type Proposal =
  | { kind: 'apply'; documents: Document[] }
  | { kind: 'delete'; of: string; plural: string; name: string }
  | { kind: 'operation'; wish: Wish; machines: string[] }
  | Edit
  | ReleaseOf
  | Request;

/** A POST about one object whose dry run answers a plan: a new name, a token's text, dead letters that are sent again, or deleted. */
export interface Request {
  kind: 'request';
  of: string;
  plural: string;
  name: string;
  /** The last part of its path. */
  at: 'rename' | 'issue' | 'revoke' | 'redeliver' | 'discard';
  body?: Record<string, unknown>;
  /** The words of the button. */
  verb: string;
  /** It cannot be taken back. */
  hurts?: boolean;
}

/** `unknown`: the region may have taken the request. */
export type Missed = 'unknown' | 'not asked';

/** What would become of one object or machine. */
export interface Outcome {
  name: string;
  of: string;
  action: string;
  plan?: Schemas['PlanReport'];
  refused?: unknown;
  /** The request for it failed without an answer, or was not sent after that. `refused` is the reason. */
  missed?: Missed;
  /** The region's answer to a request that was done. */
  answer?: unknown;
}

export interface Tried {
  summary: string;
  outcomes: Outcome[];
  /** Machines whose power is switched; whose disks are erased or written. */
  power: string[];
  disks: string[];
  consequences?: Schemas['Consequences'];
  advisories: Schemas['Advisory'][];
  /** The idempotency key of this plan: each try to carry it out has the same, and no machine is asked twice. */
  key: string;
  /** What an apply is bound to. */
  digest?: string;
  /** What a deletion is bound to. */
  generation?: number;
  /** What an edit of many machines is bound to. */
  parts?: Part[];
  /** What a release of many machines is bound to. */
  held?: Map<string, Held>;
}

export async function tryOut(proposal: Proposal, adopt: boolean, progress?: Progress): Promise<Tried> {
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
        key: newKey(),
        digest: said.digest,
      };
    }
    case 'delete': {
      const { of, plural, name } = proposal;
      const said = await ask<Schemas['DryRun']>(`${path(plural, name)}?dry_run=true${adopt ? '&adopt=true' : ''}`, { method: 'DELETE' });
      const object = said.object as unknown as BasaltObject;
      return { ...ofPlans([{ name, of, action: 'deleted', plan: said.plan }]), consequences: said.consequences, advisories: said.advisories, generation: object.metadata.generation };
    }
    case 'operation':
      return ofPlans(await asked(proposal.wish, proposal.machines, undefined, progress));
    case 'edit':
      return { summary: '', key: newKey(), ...(await tryEdit(proposal, adopt, progress)) };
    case 'release': {
      const { outcomes, held } = await tryRelease(proposal.machines, adopt, progress);
      return { ...ofPlans(outcomes), held };
    }
    case 'request': {
      const { name, of } = proposal;
      const said = await ask<Schemas['DryRun']>(`${requestPath(proposal)}?dry_run=true${adopt ? '&adopt=true' : ''}`, { method: 'POST', body: proposal.body });
      const tried = ofPlans([{ name, of, action: BECOMES[proposal.at], plan: said.plan }]);
      return { ...tried, consequences: said.consequences, advisories: said.advisories };
    }
  }
}

const BECOMES: Record<Request['at'], string> = { rename: 'renamed', issue: 'given a text', revoke: 'left without a text', redeliver: 'asked to deliver again', discard: 'left without dead letters' };

const requestPath = ({ plural, name, at }: Request): string => path(plural, name, at);

/** `randomUUID` is missing on a page without TLS. */
const newKey = (): string => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;

/** The region may have taken a request that ended so: no answer, a part of one, or an error of a server. */
const isUnanswered = (error: unknown): boolean => !(error instanceof Refused) || error.status === 0 || error.status >= 500;

/** Asks machines, and says what each of them answers. Without a key it is a dry run. After a request that failed no other is sent. */
async function asked(wish: Wish, names: string[], key: string | undefined, progress?: Progress): Promise<Outcome[]> {
  const [query, headers] = key === undefined ? ['?dry_run=true', undefined] : ['', { 'idempotency-key': key }];
  const outcomes: Outcome[] = [];
  for (let from = 0; from < names.length; from += MOST) {
    const these = names.slice(from, from + MOST);
    try {
      const { items } = await ask<Schemas['OperationsAnswer']>(`/api/v1/operations${query}`, { method: 'POST', body: { names: these, operation: wish }, headers });
      outcomes.push(...items.map(({ machine, plan, problem }) => ({ name: machine, of: 'Machine', action: saidOf(wish.verb), plan, refused: problem && new Refused(problem) })));
    } catch (error) {
      // A dry run asks for nothing, so an answer that is missing leaves no doubt.
      const isUnknown = key !== undefined && isUnanswered(error);
      if (outcomes.length === 0 && !isUnknown) throw error;
      // Earlier requests were answered: their outcomes stay.
      const missed = (names: string[], missed: Missed) => names.map((name) => ({ name, of: 'Machine', action: missed, missed, refused: error }));
      return [...outcomes, ...missed(these, isUnknown ? 'unknown' : 'not asked'), ...missed(names.slice(from + MOST), 'not asked')];
    }
    progress?.(outcomes.length);
  }
  return outcomes;
}

/** Outcomes that differ in nothing but the name. */
export interface Alike {
  first: Outcome;
  names: string[];
}

/** Groups outcomes that say the same of other objects, in the order of their first ones. */
export function alikeOf(outcomes: readonly Outcome[]): Alike[] {
  const groups = new Map<string, Alike>();
  for (const outcome of outcomes) {
    const key = saysOf(outcome);
    const known = groups.get(key);
    if (known) known.names.push(outcome.name);
    else groups.set(key, { first: outcome, names: [outcome.name] });
  }
  return [...groups.values()];
}

/** Everything that a reader is shown of an outcome, without the name. Times are left out: they differ by milliseconds. */
function saysOf(outcome: Outcome): string {
  const { name, of, action, plan, refused } = outcome;
  const told = refused
    ? [of, toldOf(outcome)]
    : [of, action, plan?.summary, plan?.interrupts, plan?.changes, plan?.notes, plan?.steps.map(({ message, power, destructive }) => [message, power, destructive]), plan?.waits.map(({ message }) => message)];
  return JSON.stringify(told).replaceAll(name, '…');
}

const wordsOf = (refused: unknown): string => (refused instanceof Error ? refused.message : String(refused));

const MISSED: Record<Missed, string> = { unknown: 'no answer: it may have been asked', 'not asked': 'not asked' };

/** The result as a reader is told it: the action, or the reason against it. */
export function toldOf({ action, missed, refused }: Outcome): string {
  if (!refused) return action;
  return missed ? `${MISSED[missed]} (${wordsOf(refused)})` : wordsOf(refused);
}

/** What is said of those that took it. */
export function doneOf(proposal: Proposal): string {
  if (proposal.kind === 'edit') return `were ${proposal.said}`;
  return proposal.kind === 'release' ? 'were released' : 'were asked';
}

/** The counts of many results, as words. */
export function countsOf(outcomes: readonly Outcome[], done = 'were asked'): string {
  const count = (of: (outcome: Outcome) => boolean) => outcomes.filter(of).length;
  const part = (many: number, words: string) => (many > 0 ? [`${many} ${words}`] : []);
  return [
    `${count(({ refused }) => !refused)} of ${outcomes.length} ${done}`,
    ...part(count(({ missed, refused }) => Boolean(refused) && !missed), 'could not take it'),
    ...part(count(({ missed }) => missed === 'unknown'), 'may have been asked'),
    ...part(count(({ missed }) => missed === 'not asked'), 'were not asked'),
  ].join('; ');
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
    key: newKey(),
  };
}

/** Does it; the answer is what became of each. */
export async function carryOut(proposal: Proposal, tried: Tried, adopt: boolean, progress?: Progress): Promise<Outcome[]> {
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
      const able = tried.outcomes.filter(({ refused }) => !refused).map(({ name }) => name);
      return asked(proposal.wish, able, tried.key, progress);
    }
    case 'edit':
      return applyEdit(proposal, tried.parts ?? [], adopt, progress);
    case 'release':
      return release(tried.held ?? new Map(), adopt, progress);
    case 'request': {
      const { name, of, at } = proposal;
      const answer = await ask(`${requestPath(proposal)}${adopt ? '?adopt=true' : ''}`, { method: 'POST', body: proposal.body });
      return [{ name, of, action: BECOMES[at], answer }];
    }
  }
}

/** Carries out the part of a plan that was missed, under the same key. Other outcomes stay. */
export async function retry(proposal: Proposal, tried: Tried, became: readonly Outcome[], adopt: boolean, progress?: Progress): Promise<Outcome[]> {
  const missed = new Set(became.filter(({ missed }) => missed).map(({ name }) => name));
  const part = {
    ...tried,
    outcomes: tried.outcomes.filter(({ name }) => missed.has(name)),
    held: tried.held && new Map([...tried.held].filter(([name]) => missed.has(name))),
  };
  const settled = became.length - missed.size;
  const told = progress && ((answered: number) => progress(settled + answered));
  const parts = tried.parts?.filter(({ machines }) => machines.some((name) => missed.has(name)));
  const again = await (proposal.kind === 'edit' ? applyEdit(proposal, parts ?? [], adopt, told, true) : carryOut(proposal, part, adopt, told));
  const latest = new Map(again.map((outcome) => [outcome.name, outcome]));
  return became.map((outcome) => latest.get(outcome.name) ?? outcome);
}

const SAID: Record<Verb, string> = {
  power_on: 'switched on',
  power_off: 'switched off',
  power_cycle: 'power-cycled',
  recommission: 'commissioned again',
  abort: 'aborted',
  run_script: 'given a script to run',
  rescue: 'booted for rescue',
  test: 'booted for its tests',
  override_tests: 'used although tests failed',
  reset_bmc: 'given a reset of its BMC',
};
export const saidOf = (verb: Verb): string => SAID[verb];

const DOING: Record<Verb, string> = {
  power_on: 'Switch on',
  power_off: 'Switch off',
  power_cycle: 'Power-cycle',
  recommission: 'Recommission',
  abort: 'Abort the work on',
  run_script: 'Run a script on',
  rescue: 'Rescue',
  test: 'Test',
  override_tests: 'Override the tests of',
  reset_bmc: 'Reset the BMC of',
};
export const doingOf = (verb: Verb): string => DOING[verb];

/** The verb and the count, as the button repeats them: `Erase 2 machines`. */
export function verbOf(proposal: Proposal, tried: Tried): string {
  const machines = (count: number) => `${count} ${count === 1 ? 'machine' : 'machines'}`;
  if (proposal.kind === 'operation') return `${doingOf(proposal.wish.verb)} ${machines(tried.outcomes.filter(({ refused }) => !refused).length)}`;
  const able = () => machines(tried.outcomes.filter(({ action, refused }) => !refused && action !== 'unchanged').length);
  if (proposal.kind === 'edit') return `${proposal.verb} ${able()}`;
  if (proposal.kind === 'release') return `Release ${able()}`;
  if (proposal.kind === 'request') return proposal.verb;
  if (tried.disks.length > 0) return `Erase ${machines(tried.disks.length)}`;
  if (proposal.kind === 'delete') return `Delete ${proposal.name}`;
  if (tried.power.length > 0) return `Apply, and switch the power of ${machines(tried.power.length)}`;
  const changed = tried.outcomes.filter(({ action }) => action !== 'unchanged').length;
  return `Apply ${changed} ${changed === 1 ? 'change' : 'changes'}`;
}
