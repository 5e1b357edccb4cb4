import assert from 'node:assert/strict';
import { test } from 'node:test';
import { viewsOf, withView } from '../../src/app/views';

test('a view of the same name takes the place of the one before, and all are in order', () => {
  const first = withView(withView([], { name: 'waiting', view: { q: 'status:waiting' } }), { name: 'big', view: { q: 'cores>=64' } });
  assert.deepEqual(first.map(({ name }) => name), ['big', 'waiting']);
  const [big] = withView(first, { name: 'big', view: { q: 'cores>=128', sort: '-cores' } });
  assert.deepEqual(big?.view, { q: 'cores>=128', sort: '-cores' });
});

test('what cannot be read of a browser is no view', () => {
  for (const text of [null, '', '{', '{}', '7', '[1, null, {"name": 1}, {"name": "x"}, {"name": "x", "view": null}]']) assert.deepEqual(viewsOf(text), [], String(text));
  assert.equal(viewsOf('[{"name": "x", "view": {"q": "a"}}]').length, 1);
});
