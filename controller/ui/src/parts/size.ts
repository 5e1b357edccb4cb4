// Sizes, as the region writes them.

const STEPS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** `64 GiB`. */
export function bytes(size: number): string {
  let [value, step] = [size, 0];
  while (value >= 1024 && step < STEPS.length - 1) {
    value /= 1024;
    step += 1;
  }
  const shown = value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1);
  return `${shown} ${STEPS[step]}`;
}

/** `32`, `1.5`. */
export function plainNumber(text: string): number | undefined {
  return /^-?[0-9]+(?:\.[0-9]+)?$/.test(text.trim()) ? Number(text) : undefined;
}

/** The bytes of `64`, `64GiB`, `512 M`; without a unit they are GiB. */
export function bytesOf(text: string): number | undefined {
  return sizeOf(text, 'g');
}

/** A plain number, or the bytes of a size with its unit. */
export function plainOrBytes(text: string): number | undefined {
  return plainNumber(text) ?? sizeOf(text, '');
}

function sizeOf(text: string, usual: string): number | undefined {
  const match = /^([0-9]+(?:\.[0-9]+)?)\s*([kmgtp]?)(?:i?b)?$/i.exec(text.trim());
  if (!match) return undefined;
  const unit = (match[2] || usual).toLowerCase();
  return Number(match[1]) * 1024 ** (unit ? 'kmgtp'.indexOf(unit) + 1 : 0);
}

/** `25 Gbit/s`. */
export function speed(mbps: number): string {
  return mbps >= 1000 ? `${mbps / 1000} Gbit/s` : `${mbps} Mbit/s`;
}
