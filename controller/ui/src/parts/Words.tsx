/** A sentence of the region. Its commands stand between backticks, and are shown as code. */
export function Words({ of }: { of: string }) {
  return of.split('`').map((part, place) => (place % 2 === 1 ? <code key={`${place} ${part}`}>{part}</code> : part));
}
