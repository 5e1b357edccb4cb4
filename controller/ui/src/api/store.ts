// The rows of one kind, outside of React: read once page by page, then kept by what the stream tells.
import { position } from './object';
import type { Told } from './stream';

interface Named {
  kind: string;
  metadata: { uid: string; name: string };
}

interface Row<T> {
  object: T;
  /** Everything up to here is in it. */
  at: number;
}

export interface Page<T> {
  items: T[];
  continue?: string;
  position: string;
}

/** `partial`: some pages are shown, and the others are being read. */
export type Phase = 'loading' | 'partial' | 'ready' | 'failed';

/** Reads the page behind a place. */
export type Read<T> = (after: string | undefined) => Promise<Page<T>>;

/** A list older than what the stream has told is read again so soon. */
const AGAIN = 150;

export class RowStore<T extends Named> {
  private rows = new Map<string, Row<T>>();
  /** What was told while a list is read; nothing while none is. */
  private waiting: Told[] | undefined;
  private readonly watchers = new Set<() => void>();
  private scheduled = false;
  private reading = 0;
  /** Where the list was read, and where what the stream has told since begins: with a list from before that, something is missing. */
  private readAt: string | undefined;
  private toldFrom: string | undefined;
  private objects: readonly T[] = [];
  phase: Phase = 'loading';
  /** The phase of the rows that are shown: new rows come with the next frame. */
  shown: Phase = 'loading';
  error: unknown;

  constructor(
    private readonly kind: string,
    private readonly read: Read<T>,
    private readonly schedule: (flush: () => void) => void,
  ) {}

  /** For React: a list that is another one after each change. */
  snapshot = (): readonly T[] => this.objects;

  watch = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };

  hear(told: Told): void {
    if (told.type !== 'put' && told.type !== 'delete') return;
    if ((told.object as Named).kind !== this.kind) return;
    this.waiting?.push(told);
    this.apply(this.rows, told);
    this.flush();
  }

  /** The stream stands, and has told all since this position. */
  covered(from: string): void {
    this.toldFrom = from;
    if (!this.waiting && (this.readAt === undefined || isOlder(this.readAt, from))) void this.load();
  }

  /** Reads the whole list. What was shown stays until then. */
  async load(): Promise<void> {
    const turn = ++this.reading;
    this.waiting = [];
    try {
      for (;;) {
        const rows = new Map<string, Row<T>>();
        let after: string | undefined;
        let first: string | undefined;
        do {
          const page = await this.read(after);
          if (turn !== this.reading) return;
          first ??= page.position;
          const at = position(page.position).number;
          for (const object of page.items) rows.set(object.metadata.uid, { object, at });
          after = page.continue;
          // A reader sees the first rows of a long list while the others are read. A list that is read again stays whole until then.
          if (after && this.phase !== 'ready' && rows.size > this.rows.size) {
            this.rows = rows;
            this.phase = 'partial';
            this.flush();
          }
        } while (after);
        if (this.toldFrom && first && isOlder(first, this.toldFrom)) {
          await new Promise((resolve) => setTimeout(resolve, AGAIN));
          continue;
        }
        for (const told of this.waiting) this.apply(rows, told);
        this.rows = rows;
        this.readAt = first;
        this.phase = 'ready';
        this.error = undefined;
        break;
      }
    } catch (error) {
      if (turn !== this.reading) return;
      this.phase = this.phase === 'ready' ? 'ready' : 'failed';
      this.error = error;
    }
    this.waiting = undefined;
    this.flush();
  }

  private apply(rows: Map<string, Row<T>>, told: Told): void {
    if (told.type !== 'put' && told.type !== 'delete') return;
    const object = told.object as T;
    const at = position(told.position).number;
    const row = rows.get(object.metadata.uid);
    // The list was read later than this happened.
    if (row && row.at >= at) return;
    if (told.type === 'delete') rows.delete(object.metadata.uid);
    else rows.set(object.metadata.uid, { object, at });
  }

  /** Once in a frame, however many events came. */
  private flush(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    this.schedule(() => {
      this.scheduled = false;
      this.objects = Array.from(this.rows.values(), (row) => row.object);
      this.shown = this.phase;
      for (const watcher of this.watchers) watcher();
    });
  }
}

/** Of another life of the database, it is no continuation either. */
function isOlder(list: string, told: string): boolean {
  const [a, b] = [position(list), position(told)];
  return a.life !== b.life || a.number < b.number;
}
