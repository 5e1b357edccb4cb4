// One watch of everything that the reader may see. It resumes where it was cut; it never gives up but where the session has ended.

import { type ServerEvent, eventsOf } from './events';

const EVERYWHERE = 'conditions axes phase';
/** An inventory is large, and is read with its machine alone. */
const OF_MACHINES =
  'deployment tags automatic_tags power addresses commissioned_at ' +
  'inventory.cpu inventory.memory_bytes inventory.dmi inventory.architecture inventory.firmware';
const OF_OTHERS =
  'machine hostname address stage progress connected last_seen version services concerns cache leases ' +
  'sort mac vlan racks serving first_seen_at last_seen_at used free';

const members = (...words: string[]): string =>
  ['kind', 'metadata', 'spec', ...words.flatMap((some) => some.split(' ').map((word) => `status.${word}`))].join(',');

/** What the list of machines shows. */
export const MACHINE_FIELDS = members(EVERYWHERE, OF_MACHINES);
/** What all lists show. */
const FIELDS = members(EVERYWHERE, OF_MACHINES, OF_OTHERS);

export type Told =
  /** The stream stands. All that happened since `from` was told, up to the position. */
  | { type: 'live'; from: string; position: string }
  | { type: 'put' | 'delete'; position: string; object: unknown }
  /** Nothing comes since then. */
  | { type: 'away'; since: number }
  /** What was told before is not enough: read lists again. */
  | { type: 'reset' }
  /** The session has ended: by a logout, or by itself. */
  | { type: 'ended'; loggedOut?: boolean };

const FIRST_PAUSE = 300;
const LONGEST_PAUSE = 5_000;

export class Stream {
  private from = '';
  private at: string | undefined;
  private heardAt = Date.now();
  private abort: AbortController | undefined;
  private running = false;
  private last: Told | undefined;

  constructor(private readonly tell: (told: Told) => void) {}

  /** What somebody has to know who joins now. */
  get state(): Told | undefined {
    return this.last?.type === 'live' && this.at ? { type: 'live', from: this.at, position: this.at } : this.last;
  }

  start(): void {
    if (this.running) return;
    this.running = true;
    this.at = undefined;
    this.last = undefined;
    void this.run();
  }

  stop(): void {
    this.running = false;
    this.abort?.abort();
    this.say({ type: 'ended', loggedOut: true });
  }

  private say(told: Told): void {
    if (told.type !== 'put' && told.type !== 'delete') this.last = told;
    this.tell(told);
  }

  private async run(): Promise<void> {
    let pause = FIRST_PAUSE;
    while (this.running) {
      const before = this.heardAt;
      const why = await this.read().catch(() => 'away' as const);
      if (!this.running) return;
      if (why === 'ended') {
        this.running = false;
        this.say({ type: 'ended' });
        return;
      }
      if (why === 'reset') {
        this.at = undefined;
        this.say({ type: 'reset' });
      }
      if (why === 'again') continue;
      if (this.heardAt !== before) pause = FIRST_PAUSE;
      if (this.last?.type !== 'away') this.say({ type: 'away', since: this.heardAt });
      await new Promise((resolve) => setTimeout(resolve, pause * (0.5 + Math.random())));
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
  }

  /** One connection, to its end. */
  private async read(): Promise<'away' | 'again' | 'reset' | 'ended'> {
    const abort = new AbortController();
    this.abort = abort;
    try {
      const since = this.at ? `&since=${encodeURIComponent(this.at)}` : '';
      const response = await fetch(`/api/v1/watch?fields=${FIELDS}${since}`, { signal: abort.signal });
      if (response.status === 401) return 'ended';
      if (response.status === 410) return 'reset';
      if (!response.ok || !response.body) return 'away';
      for await (const event of eventsOf(response.body, abort)) {
        this.heardAt = Date.now();
        const cut = this.hear(event);
        if (cut) return cut;
      }
      return 'away';
    } finally {
      abort.abort();
    }
  }

  private hear({ id, event, data }: ServerEvent): 'again' | 'away' | 'reset' | undefined {
    if (event === 'cut') {
      const { reason } = JSON.parse(data) as { reason?: string };
      if (reason === 'compacted' || reason === 'rights') return 'reset';
      return reason === 'stopping' || reason === 'unavailable' ? 'away' : 'again';
    }
    if (!this.at) this.from = id;
    this.at = id;
    if (event === 'put' || event === 'delete') this.say({ type: event, position: id, object: JSON.parse(data) });
    else if (event === 'bookmark' && this.last?.type !== 'live') this.say({ type: 'live', from: this.from, position: id });
    return undefined;
  }
}
