import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BasaltObject } from '../../src/api/object';
import { withExpression } from '../../src/pages/objects/tag';

test('another expression leaves the other fields of a tag, and none is left out', () => {
  const tag = { kind: 'Tag', metadata: { name: 'big' }, spec: { expression: 'cpu.cores > 8', comment: 'many cores' }, status: {} } as unknown as BasaltObject;
  assert.deepEqual(withExpression(tag, 'cpu.cores > 16'), { kind: 'Tag', metadata: { name: 'big' }, spec: { comment: 'many cores', expression: 'cpu.cores > 16' } });
  assert.deepEqual(withExpression(tag, '').spec, { comment: 'many cores' });
});
