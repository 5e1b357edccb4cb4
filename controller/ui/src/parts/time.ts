// Times as people say them.

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** `4 min ago`, `in 12 min`; a date and time beyond a day. */
export function relative(at: string | number, now: number): string {
  const time = typeof at === 'number' ? at : Date.parse(at);
  if (Number.isNaN(time)) return String(at);
  const away = Math.abs(now - time);
  if (away >= DAY) return absolute(time);
  const said = away < 10_000 ? '' : away < MINUTE ? `${Math.round(away / 1000)} s` : away < HOUR ? `${Math.round(away / MINUTE)} min` : `${Math.round(away / HOUR)} h`;
  if (!said) return 'now';
  return time > now ? `in ${said}` : `${said} ago`;
}

/** `2026-11-26 14:31:07`, in the reader's zone. */
export function absolute(at: string | number): string {
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) return String(at);
  const two = (number: number) => String(number).padStart(2, '0');
  const day = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  return `${day} ${clock(time.getTime())}`;
}

/** `14:31:07`. */
export function clock(at: string | number): string {
  const time = new Date(at);
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map((number) => String(number).padStart(2, '0')).join(':');
}

/** `14:32` today, with its date on another day. */
export function until(at: string, now: number): string {
  const time = Date.parse(at);
  const hours = clock(time).slice(0, 5);
  return new Date(time).toDateString() === new Date(now).toDateString() ? hours : `${absolute(time).slice(0, 16)}`;
}
