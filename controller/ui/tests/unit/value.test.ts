// The value of a field in a plan.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { written } from '../../src/parts/plan/value';

test('a text is itself, and what is not there a dash', () => {
  assert.equal(written('by the door'), 'by the door');
  assert.equal(written(0), '0');
  assert.equal(written(undefined), '—');
  assert.equal(written({}), 'none');
});

test('a field with fields has a line for each, and so has each of a list', () => {
  const value = { bonds: { bond0: { members: ['a', 'b'], mtu: null, search: [] } }, routes: [{ to: 'default', via: '10.0.0.1' }, {}] };
  assert.equal(
    written(value),
    ['bonds:', '  bond0:', '    members:', '      - a', '      - b', '    mtu: —', '    search: none', 'routes:', '  - to: default', '    via: 10.0.0.1', '  - none'].join('\n'),
  );
});
