// Scripts of the first boot, read from the lines of their runner.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runsOf } from '../../src/pages/objects/firstBoot';

const lines = (...texts: string[]) => texts.map((text, at) => ({ app: 'basalt-first-boot', text, at: `2026-01-01T00:00:0${at}Z` }));

test('each script has its end, its reason and its own output', () => {
  const [join, mount, tune] = runsOf(
    ['join', 'mount', 'tune'],
    lines('running script join', 'join: token is good', 'script join ended well', 'running script mount', 'mount: no route', 'script mount ended with exit status: 3; it said last: no route'),
  );
  assert.deepEqual([join?.end, join?.output, join?.at], ['ended well', ['token is good'], '2026-01-01T00:00:00Z']);
  assert.deepEqual([mount?.end, mount?.failure, mount?.output], ['failed', 'script mount ended with exit status: 3; it said last: no route', ['no route']]);
  assert.deepEqual([tune?.end, tune?.output], ['not begun', []]);
});

test('a run of a mended system takes the place of the one that failed', () => {
  const [mount] = runsOf(['mount'], lines('running script mount', 'mount: no route', 'script mount ended with exit status: 3', 'running script mount', 'mount: it is there'));
  assert.deepEqual([mount?.end, mount?.failure, mount?.output], ['running', undefined, ['it is there']]);
});

test('lines of other programs and of other scripts are no output', () => {
  const [join] = runsOf(['join'], [...lines('running script join', 'join-all: hello'), { app: 'sshd', text: 'join: no', at: '2026-01-01T00:00:02Z' }]);
  assert.deepEqual(join?.output, []);
});
