// Images in the caches of racks, as rows.
import type { Schemas } from '../../api/client';
import type { Rack } from '../../api/object';

export interface Held {
  name: string;
  /** All files of the image are there. */
  isWhole: boolean;
  says: string;
}

const held = (name: string, { held, files }: Schemas['CachedImage']): Held => ({
  name,
  isWhole: held >= files,
  says: held >= files ? 'all files' : `${held} of ${files} files`,
});

const byName = (a: Held, b: Held): number => a.name.localeCompare(b.name);

/** The images of which a rack's cache has files. */
export function imagesOf(cache: Partial<Schemas['RackCache']> | null | undefined): Held[] {
  const images = (cache?.images ?? {}) as Record<string, Schemas['CachedImage']>;
  return Object.entries(images).map(([name, of]) => held(name, of)).sort(byName);
}

/** Racks whose caches have files of an image. */
export function racksOf(image: string, racks: readonly Rack[]): Held[] {
  return racks
    .flatMap(({ metadata, status }) => {
      const of = (status.cache?.images as Record<string, Schemas['CachedImage']> | undefined)?.[image];
      return of ? [held(metadata.name, of)] : [];
    })
    .sort(byName);
}
