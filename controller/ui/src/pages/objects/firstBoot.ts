// Scripts of the first boot, as the log of their machine tells of them.
import type { LogLine } from '../../api/log';

/** The program that runs them: their lines have its name. */
export const RUNNER = 'basalt-first-boot';

export type End = 'not begun' | 'running' | 'ended well' | 'failed';

export interface Run {
  name: string;
  end: End;
  /** The sentence about its failure. */
  failure?: string;
  /** When it began. */
  at?: string;
  output: string[];
}

/** The latest run of each script, from lines in the order of time. */
export function runsOf(names: readonly string[], lines: readonly Pick<LogLine, 'app' | 'text' | 'at'>[]): Run[] {
  const runs = new Map<string, Run>(names.map((name) => [name, { name, end: 'not begun', output: [] }]));
  for (const { app, text, at } of lines) {
    if (app !== RUNNER) continue;
    const begun = /^running script (\S+)$/.exec(text)?.[1];
    if (begun && runs.has(begun)) {
      runs.set(begun, { name: begun, end: 'running', at, output: [] });
      continue;
    }
    for (const run of runs.values()) {
      if (run.end === 'not begun') continue;
      if (text === `script ${run.name} ended well`) run.end = 'ended well';
      else if (run.end === 'running' && text.startsWith(`script ${run.name} `)) Object.assign(run, { end: 'failed', failure: text });
      else if (text.startsWith(`${run.name}: `)) run.output.push(text.slice(run.name.length + 2));
      else if (text.startsWith(`${run.name} (packages `)) run.output.push(text.slice(run.name.length + 1));
    }
  }
  return [...runs.values()];
}
