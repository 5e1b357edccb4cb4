// Images in the caches of racks, as rows.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { imagesOf, racksOf } from '../../src/pages/objects/holds';

const rack = (name: string, images?: Record<string, { held: number; files: number }>) => ({ metadata: { name }, status: images ? { cache: { images } } : {} }) as never;

test('a rack with all files of an image holds it; one with some says how many', () => {
  const racks = [rack('r3', { debian: { held: 1, files: 3 } }), rack('r1', { debian: { held: 3, files: 3 } }), rack('r2', { other: { held: 1, files: 1 } }), rack('new')];
  assert.deepEqual(racksOf('debian', racks), [
    { name: 'r1', isWhole: true, says: 'all files' },
    { name: 'r3', isWhole: false, says: '1 of 3 files' },
  ]);
});

test('a rack that has told nothing has no images', () => {
  assert.deepEqual(imagesOf(undefined), []);
  assert.deepEqual(imagesOf({ images: { b: { held: 1, files: 1 }, a: { held: 1, files: 2 } } } as never).map(({ name }) => name), ['a', 'b']);
});
