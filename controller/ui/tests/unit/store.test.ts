import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Events } from '../../src/api/events';
import { type Page, RowStore } from '../../src/api/store';
import { grouped } from '../../src/parts/order';
import type { Told } from '../../src/api/stream';

interface Zone {
  kind: 'Zone';
  metadata: { uid: string; name: string };
  is: number;
}

const zone = (uid: string, is: number): Zone => ({ kind: 'Zone', metadata: { uid, name: uid }, is });
const put = (at: number, uid: string, is: number): Told => ({ type: 'put', position: `a:${at}`, object: zone(uid, is) });
const gone = (at: number, uid: string): Told => ({ type: 'delete', position: `a:${at}`, object: { kind: 'Zone', metadata: { uid, name: uid } } });

/** A store whose pages are answered by the test. */
function made(): { store: RowStore<Zone>; answer: (page: Page<Zone>) => Promise<void>; fail: () => Promise<void>; shown: () => string } {
  let waiting: { resolve: (page: Page<Zone>) => void; reject: (error: Error) => void } | undefined;
  const store = new RowStore<Zone>('Zone', () => new Promise((resolve, reject) => (waiting = { resolve, reject })), (flush) => flush());
  const settled = () => new Promise<void>((resolve) => setTimeout(resolve, 0));
  return {
    store,
    answer: (page) => (waiting?.resolve(page), settled()),
    fail: () => (waiting?.reject(new Error('no')), settled()),
    shown: () => store.snapshot().map((row) => `${row.metadata.uid}${row.is}`).sort().join(' '),
  };
}

test('a list comes page by page, and says so until it is whole', async () => {
  const { store, answer, shown } = made();
  void store.load();
  await answer({ items: [zone('a', 1)], continue: 'a', position: 'a:5' });
  assert.deepEqual([store.phase, shown()], ['partial', 'a1']);
  await answer({ items: [zone('b', 1)], position: 'a:6' });
  assert.equal(store.phase, 'ready');
  assert.equal(shown(), 'a1 b1');
});

test('events between two pages of a list that is shown already count', async () => {
  const { store, answer, shown } = made();
  void store.load();
  await answer({ items: [zone('a', 1), zone('b', 1)], continue: 'b', position: 'a:5' });
  store.hear(put(7, 'a', 2));
  store.hear(gone(8, 'b'));
  store.hear(put(9, 'c', 3));
  assert.equal(shown(), 'a2 c3');
  // The page was read before the event of a row in it.
  await answer({ items: [zone('c', 1), zone('d', 1)], position: 'a:6' });
  assert.equal(shown(), 'a2 c3 d1');
});

test('a list that is read again stays whole until then', async () => {
  const { store, answer, shown } = made();
  void store.load();
  await answer({ items: [zone('a', 1)], position: 'a:5' });
  void store.load();
  await answer({ items: [zone('b', 1), zone('c', 1)], continue: 'c', position: 'a:9' });
  assert.deepEqual([store.phase, shown()], ['ready', 'a1']);
  await answer({ items: [zone('d', 1)], position: 'a:9' });
  assert.equal(shown(), 'b1 c1 d1');
});

test('what is told while a list is read counts where it is newer than its page', async () => {
  const { store, answer, shown } = made();
  store.covered('a:4');
  store.hear(put(5, 'a', 0));
  store.hear(put(8, 'b', 3));
  store.hear(put(9, 'c', 1));
  store.hear(gone(10, 'd'));
  await answer({ items: [zone('a', 2), zone('b', 2), zone('d', 1)], position: 'a:7' });
  assert.equal(shown(), 'a2 b3 c1');
});

test('no row goes back', async () => {
  const { store, answer, shown } = made();
  void store.load();
  await answer({ items: [zone('a', 3)], position: 'a:9' });
  store.hear(put(8, 'a', 1));
  store.hear(gone(9, 'a'));
  assert.equal(shown(), 'a3');
  store.hear(put(10, 'a', 4));
  assert.equal(shown(), 'a4');
  store.hear({ ...put(11, 'x', 1), object: { kind: 'Pool', metadata: { uid: 'x', name: 'x' } } } as Told);
  assert.equal(shown(), 'a4', 'rows of other kinds are of other stores');
});

test('a list older than the stream is read again', async () => {
  const { store, answer, shown } = made();
  store.covered('a:9');
  await answer({ items: [zone('a', 1)], position: 'a:5' });
  assert.equal(shown(), '');
  await new Promise((resolve) => setTimeout(resolve, 200));
  await answer({ items: [zone('a', 2)], position: 'a:9' });
  assert.equal(shown(), 'a2');
  store.covered('a:8');
  store.hear(put(10, 'a', 3));
  assert.equal(shown(), 'a3', 'a stream that has gone on from before the list misses nothing');
});

test('the old list stays while a new one is read, also of another life of the database, and when that fails', async () => {
  const { store, answer, fail, shown } = made();
  void store.load();
  await answer({ items: [zone('a', 1)], position: 'a:900' });
  store.covered('b:3');
  assert.equal(shown(), 'a1');
  await fail();
  assert.equal(store.phase, 'ready');
  assert.equal(shown(), 'a1');
  void store.load();
  await answer({ items: [zone('b', 1)], position: 'b:3' });
  assert.equal(shown(), 'b1');
});

test('events that come in pieces are whole events', () => {
  const events = new Events();
  const text = 'id: a:1\nevent: put\ndata: {"a":\ndata: 1}\n\nid: a:2\nevent: bookmark\ndata: {}\n\n';
  const found = [...text].flatMap((sign) => events.take(sign));
  assert.deepEqual(found, [
    { id: 'a:1', event: 'put', data: '{"a":\n1}' },
    { id: 'a:2', event: 'bookmark', data: '{}' },
  ]);
});

test('rows are in groups by name, and keep their order in a group', () => {
  const lines = grouped(['b1', 'a2', 'b2', 'a10'], (row) => row.charAt(0));
  assert.deepEqual(lines, [{ head: 'a', count: 2 }, { row: 'a2', place: 0 }, { row: 'a10', place: 1 }, { head: 'b', count: 2 }, { row: 'b1', place: 2 }, { row: 'b2', place: 3 }]);
});

test('rows are said to be all there only once they are shown', async () => {
  const flushes: (() => void)[] = [];
  const store = new RowStore<never>('Machine', () => Promise.resolve({ items: [{ kind: 'Machine', metadata: { uid: 'a', name: 'a' } } as never], position: 'x:1' }), (flush) => flushes.push(flush));
  await store.load();
  assert.deepEqual([store.phase, store.shown, store.snapshot().length], ['ready', 'loading', 0]);
  for (const flush of flushes) flush();
  assert.deepEqual([store.shown, store.snapshot().length], ['ready', 1]);
});
