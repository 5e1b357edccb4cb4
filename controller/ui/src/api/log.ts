// Streams of lines that were, and lines as they come: the log of a machine, and the events of the region.
import { Refused, type Schemas, problem, tellEnded } from './client';
import { eventsOf } from './events';

export type LogLine = Schemas['LogLine'];

export type LogNews<Line = LogLine> =
  | { type: 'line'; line: Line }
  /** The region answers. */
  | { type: 'live' }
  /** The region is away; the tail goes on when it is back. */
  | { type: 'away' }
  /** Another region answers, which counts lines in its own way: begin again. */
  | { type: 'reset' }
  | { type: 'failed'; error: unknown };

const FIRST_PAUSE = 300;
const LONGEST_PAUSE = 5_000;

/** Follows a log. After a cut it goes on with the line after the last one. */
export class Tail<Line = LogLine> {
  private at: string | undefined;
  private abort: AbortController | undefined;
  private running = false;

  constructor(
    private readonly from: string,
    private readonly tell: (news: LogNews<Line>) => void,
    /** It goes on where this one was stopped. */
    before?: Tail<Line>,
    /** The name of an event that has a line. */
    private readonly named = 'line',
  ) {
    this.at = before?.at;
  }

  start(): void {
    if (this.running) return;
    this.running = true;
    void this.run();
  }

  stop(): void {
    this.running = false;
    this.abort?.abort();
  }

  private async run(): Promise<void> {
    let pause = FIRST_PAUSE;
    while (this.running) {
      const before = this.at;
      const why = await this.read().catch(() => 'away' as const);
      if (!this.running) return;
      if (why instanceof Refused) {
        this.running = false;
        if (why.status === 401) tellEnded();
        this.tell({ type: 'failed', error: why });
        return;
      }
      if (this.at !== before) pause = FIRST_PAUSE;
      if (why === 'away') this.tell({ type: 'away' });
      await new Promise((resolve) => setTimeout(resolve, pause * (0.5 + Math.random())));
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
  }

  /** One connection, to its end. */
  private async read(): Promise<'away' | 'again' | Refused> {
    const abort = new AbortController();
    this.abort = abort;
    try {
      const headers: Record<string, string> = this.at ? { 'last-event-id': this.at } : {};
      const response = await fetch(this.from, { headers, signal: abort.signal });
      if (!response.ok || !response.body) {
        const refused = new Refused(await problem(response));
        if (this.at && refused.status === 422) {
          this.at = undefined;
          this.tell({ type: 'reset' });
          return 'again';
        }
        // A region that stops, or a proxy before it, is not the last word.
        return refused.status === 502 || refused.status === 504 ? 'away' : refused;
      }
      this.tell({ type: 'live' });
      for await (const { id, event, data } of eventsOf(response.body, abort)) {
        if (id) this.at = id;
        if (event === this.named) this.tell({ type: 'line', line: JSON.parse(data) as Line });
        if (event === 'cut') return 'again';
      }
      return 'away';
    } finally {
      abort.abort();
    }
  }
}
