// Server-sent events, read from an answer. An EventSource gives a page neither the status of a refusal nor a header of its own.

/** The region says every 15 seconds where it is. */
const SILENCE = 40_000;

export interface ServerEvent {
  id: string;
  event: string;
  data: string;
}

/** Splits a text that comes in pieces into server-sent events. */
export class Events {
  private rest = '';

  take(piece: string): ServerEvent[] {
    const blocks = (this.rest + piece).split('\n\n');
    this.rest = blocks.pop() ?? '';
    return blocks.map((block) => {
      const event: ServerEvent = { id: '', event: 'message', data: '' };
      const data: string[] = [];
      for (const line of block.split('\n')) {
        const colon = line.indexOf(':');
        const value = line.slice(colon + 1).replace(/^ /, '');
        const name = line.slice(0, colon);
        if (name === 'data') data.push(value);
        else if (name === 'id' || name === 'event') event[name] = value;
      }
      event.data = data.join('\n');
      return event;
    });
  }
}

/** The events of an answer, until it ends, or nothing has come for so long. */
export async function* eventsOf(body: ReadableStream<Uint8Array>, abort: AbortController): AsyncGenerator<ServerEvent> {
  const reader = body.pipeThrough(new TextDecoderStream() as unknown as ReadableWritablePair<string, Uint8Array>).getReader();
  const events = new Events();
  for (;;) {
    const silence = setTimeout(() => abort.abort(), SILENCE);
    const { done, value } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    yield* events.take(value);
  }
}
