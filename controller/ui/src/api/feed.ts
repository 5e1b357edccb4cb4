// The stream for this tab. It comes out of the worker that all tabs share. A browser without shared workers has a stream in each tab.
import { tellEnded } from './client';
import { Stream, type Told } from './stream';
import type { Command } from './worker';

type Listener = (told: Told) => void;

/** Whether data is live, and since when it is not. */
export type Liveness = { live: true } | { live: false; since: number };

class Feed {
  private readonly listeners = new Set<Listener>();
  private readonly watchers = new Set<() => void>();
  private send: ((command: Command) => void) | undefined;
  liveness: Liveness = { live: true };
  /** The position of the last word of the stream; none before it stands. */
  at: string | undefined;

  start(): void {
    this.send ??= this.connect();
    this.send('start');
  }

  stop(): void {
    this.send?.('stop');
  }

  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** For React: calls back when the liveness changes. */
  watch = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };

  private connect(): (command: Command) => void {
    if (typeof SharedWorker === 'undefined') {
      const stream = new Stream((told) => this.hear(told));
      return (command) => (command === 'start' ? stream.start() : stream.stop());
    }
    const { port } = new SharedWorker(new URL('./worker.ts', import.meta.url), { type: 'module', name: 'basalt' });
    port.onmessage = ({ data }: MessageEvent<Told>) => this.hear(data);
    port.start();
    addEventListener('pagehide', () => port.postMessage('bye'));
    addEventListener('pageshow', (event) => event.persisted && port.postMessage('start'));
    return (command) => port.postMessage(command);
  }

  private hear(told: Told): void {
    if ('position' in told) this.at = told.position;
    if (told.type === 'live') this.live({ live: true });
    if (told.type === 'away') this.live({ live: false, since: told.since });
    if (told.type === 'reset' || told.type === 'ended') this.at = undefined;
    if (told.type === 'ended') tellEnded(told.loggedOut);
    for (const listener of this.listeners) listener(told);
  }

  private live(next: Liveness): void {
    this.liveness = next;
    for (const watcher of this.watchers) watcher();
  }
}

export const feed = new Feed();
