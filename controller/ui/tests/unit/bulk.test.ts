import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Refused } from '../../src/api/client';
import type { Machine } from '../../src/api/object';
import { takenBy } from '../../src/pages/Bulk';

test('machines that took an operation are let go, and all others stay selected', () => {
  const machines = ['web1', 'web2', 'web3', 'web4'].map((name) => ({ metadata: { name, uid: name } }) as unknown as Machine);
  const said = { of: 'Machine', action: 'switched off' };
  const refused = new Refused({ detail: 'no' });
  // The plan refused web4 already, so it was not asked.
  const became = [{ ...said, name: 'web1' }, { ...said, name: 'web2', refused }, { ...said, name: 'web3', refused, missed: 'unknown' as const }];
  assert.deepEqual(takenBy(machines, became).map(({ metadata }) => metadata.name), ['web1']);
});
