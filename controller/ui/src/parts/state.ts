// The state of an object as a sentence: a tone, a word, the reason, and until when.
import type { Axes, BasaltObject, Condition } from '../api/object';

/** Running well, working, waiting for a person, failed, off or retired. */
export type Tone = 'ok' | 'busy' | 'wait' | 'bad' | 'off';

export interface State {
  tone: Tone;
  word: string;
  reason: string;
  /** What a person can do. */
  todo?: string;
  until?: string;
}

const WORDS: Record<Tone, string> = { ok: 'ok', busy: 'working', wait: 'waiting', bad: 'failed', off: 'off' };

/** The words by which a state is found: its own, its tone's, and the operation's. */
export function wordsOf(object: BasaltObject): string[] {
  const { word, tone } = stateOf(object);
  return [...new Set([word, WORDS[tone], object.status.axes?.operation ?? ''])].filter(Boolean);
}

export function stateOf(object: BasaltObject): State {
  const { status, metadata } = object;
  const conditions = new Map((status.conditions ?? []).map((it) => [it.type, it]));
  const [ready, progressing, stalled] = ['Ready', 'Progressing', 'Stalled'].map((it) => conditions.get(it));
  if (metadata.deletion_requested_at) {
    return { tone: 'busy', word: 'Leaving', ...because(progressing ?? ready) };
  }
  if (typeof status.connected === 'boolean') return ofRack(object, status.connected, holds(stalled) ? stalled : ready);
  const axes = status.axes ?? undefined;
  const word = status.phase ?? axes?.lifecycle;
  if (axes?.lifecycle && word) {
    const tone = toneOf(axes, holds(stalled));
    const why = holds(stalled) ? stalled : holds(progressing) ? progressing : undefined;
    const told = because(why);
    return { tone, word: capital(word), ...told, reason: told.reason || plain(axes.operation_detail ?? '') };
  }
  if (holds(stalled)) return { tone: 'bad', word: spaced(stalled?.reason ?? 'Stalled'), ...because(stalled) };
  if (holds(progressing)) return { tone: 'busy', word: 'Working', ...because(progressing) };
  // A webhook is ready while its deliveries fail: they are tried again.
  if (holds(ready) && ready?.reason === 'Failing') return { tone: 'wait', word: 'Failing', ...because(ready) };
  if (holds(ready)) return { tone: 'ok', word: 'Ready', reason: ready?.reason === 'Stored' ? '' : plain(ready?.message ?? '') };
  if (ready) return { tone: 'wait', word: 'Not ready', ...because(ready) };
  return { tone: 'ok', word: 'Stored', reason: '' };
}

function ofRack(object: BasaltObject, connected: boolean, why: Condition | undefined): State {
  if (!connected) return { tone: 'bad', word: 'Away', reason: plain(why?.message ?? '') };
  const services = Object.entries((object.status.services ?? {}) as Record<string, { state?: string; message?: string | null }>);
  const bad = services.filter(([, it]) => it.state !== 'running');
  const [first] = bad;
  if (!first) return { tone: 'ok', word: 'Connected', reason: '' };
  const more = bad.length > 1 ? `, and ${bad.length - 1} more` : '';
  return { tone: 'bad', word: 'Degraded', reason: `${first[0]}: ${first[1].message ?? first[1].state}${more}` };
}

function toneOf({ lifecycle, operation, health }: Axes, stalled: boolean): Tone {
  if (operation === 'failed' || lifecycle === 'broken' || health === 'critical') return 'bad';
  if (operation === 'waiting' || operation === 'held' || stalled) return 'wait';
  if (operation === 'running' || operation === 'delayed') return 'busy';
  if (lifecycle === 'retired' || lifecycle === 'new') return 'off';
  if (lifecycle === 'rescue' || health === 'degraded') return 'wait';
  return 'ok';
}

function because(condition: Condition | undefined): { reason: string; todo?: string; until?: string } {
  const [reason = '', todo] = (condition?.message ?? '').split(/\.? To do: /);
  return { reason: plain(reason), todo: todo && plain(todo), until: condition?.deadline ?? undefined };
}

function holds(condition: Condition | undefined): boolean {
  return condition?.status === 'true';
}

/** Without the full stop of a sentence that stands alone. */
export function plain(text: string): string {
  return text.replace(/\.$/, '');
}

export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** `CannotBeRead` as `Cannot be read`. */
export function spaced(word: string): string {
  const words = word.replace(/_/g, ' ').replace(/([a-z])([A-Z])/g, (_, a: string, b: string) => `${a} ${b.toLowerCase()}`);
  return capital(words.replace(SHORT, (_, it: string, many: string) => it.toUpperCase() + many));
}

/** What is said by its letters, as one and as many. */
const SHORT = /\b(bmc|cidr|cpu|dhcp|dns|gpu|ip|mac|mtu|ntp|os|ssh|tls|ttl|uid|url|vid|vlan)(s?)\b/g;
