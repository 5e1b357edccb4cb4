// The stream of all tabs of a browser: six connections are all that a browser opens to one host over HTTP/1.
import { Stream, type Told } from './stream';

/** What TypeScript knows of pages alone, said for a shared worker. */
declare const self: { onconnect: (event: MessageEvent) => void };

export type Command = 'start' | 'stop' | 'bye';

const ports = new Set<MessagePort>();
const stream = new Stream((told: Told) => {
  for (const port of ports) port.postMessage(told);
});

self.onconnect = ({ ports: [port] }) => {
  if (!port) return;
  port.onmessage = ({ data }: MessageEvent<Command>) => {
    if (data === 'bye') ports.delete(port);
    else if (data === 'stop') stream.stop();
    else {
      ports.add(port);
      const state = stream.state;
      if (state) port.postMessage(state);
      stream.start();
    }
  };
  port.start();
};
