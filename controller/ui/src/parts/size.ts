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

/** The bytes of `64`, `64GiB`, `512 M`; without a unit they are GiB. */
export function bytesOf(text: string): number | undefined {
  const match = /^([0-9]+(?:\.[0-9]+)?)\s*([kmgtp]?)(?:i?b)?$/i.exec(text.trim());
  if (!match) return undefined;
  const unit = (match[2] || 'g').toLowerCase();
  return Number(match[1]) * 1024 ** ('kmgtp'.indexOf(unit) + 1);
}

/** `25 Gbit/s`. */
export function speed(mbps: number): string {
  return mbps >= 1000 ? `${mbps / 1000} Gbit/s` : `${mbps} Mbit/s`;
}
