import { type Point, figure, lineOf } from './chart';
import { absolute } from './time';
import css from './Chart.module.css';

interface Props {
  title: string;
  unit: string;
  points: readonly Point[];
}

const WIDTH = 360;
const HEIGHT = 72;
/** Room for the last point's dot. */
const EDGE = 4;

/** A trend as a line without fill. The least and the largest value stand at its left, the last one behind its title. */
export function Chart({ title, unit, points }: Props) {
  const line = lineOf(points);
  if (!line) return null;
  const places = line.points.map(({ x, y }) => [EDGE + x * (WIDTH - 2 * EDGE), EDGE + y * (HEIGHT - 2 * EDGE)] as const);
  const [lastX, lastY] = places.at(-1) ?? [0, 0];
  const [least, largest] = [figure(line.least), figure(line.largest)];
  const last = [...points].sort((a, b) => a.at.localeCompare(b.at)).at(-1);
  const value = (text: string) => (unit ? `${text} ${unit}` : text);
  const now = value(figure(last?.value ?? 0));
  return (
    <figure className={css.chart}>
      <figcaption>
        {title} <b>{now}</b>
      </figcaption>
      <div className={css.plot}>
        <div className={css.scale} aria-hidden="true">
          <span>{largest}</span>
          {least !== largest && <span>{least}</span>}
        </div>
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${title}: ${points.length} values from ${value(least)} to ${value(largest)}, the last one ${now}`}>
          <path d={`M0 ${HEIGHT - 0.5}H${WIDTH}`} className={css.base} />
          <polyline points={places.map((place) => place.join(',')).join(' ')} className={css.line} />
          <circle cx={lastX} cy={lastY} r="3" className={css.dot} />
        </svg>
      </div>
      <div className={css.times} aria-hidden="true">
        <span>{absolute(line.first).slice(0, 10)}</span>
        <span>{absolute(line.last).slice(0, 10)}</span>
      </div>
    </figure>
  );
}
