// A region as a process of its own, which the test kills.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';

export class Region {
  /** REGION is its program, REGION_ARGS its arguments, one a line; REGION_URL is where it answers. */
  constructor({ REGION, REGION_ARGS = '', REGION_URL }) {
    this.program = REGION;
    this.args = REGION_ARGS.split('\n').filter(Boolean);
    this.url = REGION_URL;
  }

  async start() {
    if (!this.program) return;
    this.process = spawn(this.program, this.args, { stdio: ['ignore', 'ignore', 'pipe'] });
    this.log = '';
    this.process.stderr.on('data', (bytes) => {
      this.log = (this.log + bytes).slice(-4000);
    });
    const ended = once(this.process, 'exit').then(() => {
      this.ended = true;
    });
    this.whenEnded = ended;
    for (;;) {
      const ready = await fetch(`${this.url}/readyz`).then((answer) => answer.ok, () => false);
      if (ready) return;
      if (this.ended) throw new Error(`the region ended:\n${this.log}`);
      await pause(50);
    }
  }

  async kill() {
    this.process?.kill('SIGKILL');
    await this.whenEnded;
    this.ended = false;
  }
}

/** Requests to the API, as the admin whose token TOKEN is, and as the tool `manager` if it is named. */
export function api(url, token, manager) {
  return async (method, path, body) => {
    const answer = await fetch(`${url}/api/v1/${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, ...(manager && { 'x-basalt-manager': manager }), ...(body && { 'content-type': method === 'PATCH' ? 'application/merge-patch+json' : 'application/json' }) },
      body: body && JSON.stringify(body),
    });
    const said = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${said}`);
    return said ? JSON.parse(said) : undefined;
  };
}
