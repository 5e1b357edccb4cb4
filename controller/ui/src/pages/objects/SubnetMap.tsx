import { Link } from '@tanstack/react-router';
import { type KeyboardEvent, useMemo, useState } from 'react';
import { useList } from '../../api/live';
import { pageOf } from '../../app/sections';
import { Copy } from '../../parts/Facts';
import { Time } from '../../parts/Time';
import { type Cell, type Entry, ROW, type Range, type Use, countsOf, mapOf } from './addresses';
import css from './SubnetMap.module.css';
import parts from '../../parts/parts.module.css';

/** The uses with their signs: no use is told by its colour alone. */
const USES: { use: Use; sign: string; title: string }[] = [
  { use: 'gateway', sign: 'g', title: 'gateway' },
  { use: 'rack', sign: 'r', title: 'rack' },
  { use: 'static', sign: '■', title: 'somebody’s' },
  { use: 'leased', sign: '~', title: 'leased' },
  { use: 'conflict', sign: '×', title: 'of several owners' },
  { use: 'reserved', sign: '-', title: 'kept back' },
  { use: 'dynamic', sign: '·', title: 'free, for leases' },
  { use: 'free', sign: '', title: 'free' },
];
const SIGNS = new Map(USES.map(({ use, sign }) => [use, sign]));

/** All addresses of a network at a glance; nothing for networks that are too large. */
export function SubnetMap({ subnet, cidr, entries }: { subnet: string; cidr: string; entries: readonly Entry[] }) {
  const { objects } = useList('IpRange', 'ip_ranges');
  const [at, setAt] = useState(0);
  const rows = useMemo(() => {
    const ranges = objects.filter(({ spec }) => spec.subnet === subnet);
    const of = ({ metadata: { name }, spec }: (typeof ranges)[number]): Range => ({
      name,
      start: String(spec.start),
      end: String(spec.end),
      purpose: String(spec.purpose ?? 'dynamic'),
    });
    return mapOf(cidr, entries, ranges.map(of));
  }, [objects, subnet, cidr, entries]);
  if (!rows) return null;
  const cells = rows.flat();
  const counts = countsOf(rows);
  const current = cells[Math.min(at, cells.length - 1)];
  const press = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + ROW, ArrowUp: at - ROW, Home: 0, End: cells.length - 1 };
    const step = steps[event.key];
    if (step === undefined) return;
    if (step >= 0 && step < cells.length) setAt(step);
    event.preventDefault();
  };
  return (
    <>
      <div className={css.scroll}>
        <div
          className={css.map}
          role="grid"
          aria-label={`Map of ${cidr}`}
          aria-activedescendant={current ? `address-${current.address}` : undefined}
          tabIndex={0}
          onKeyDown={press}
        >
          {rows.map((row, line) => (
            <div key={row[0]?.address} role="row" className={css.row}>
              <span role="rowheader" className="mono">
                {row[0]?.address}
              </span>
              {row.map((cell, place) => (
                <span
                  key={cell.address}
                  id={`address-${cell.address}`}
                  role="gridcell"
                  aria-label={`${cell.address}: ${sentenceOf(cell)}`}
                  aria-selected={cell === current}
                  title={`${cell.address}: ${sentenceOf(cell)}`}
                  className={[css.cell, css[cell.use], cell.range && css.ranged, cell === current && css.at].filter(Boolean).join(' ')}
                  onClick={() => setAt(line * ROW + place)}
                >
                  {SIGNS.get(cell.use)}
                </span>
              ))}
            </div>
          ))}
        </div>
      </div>
      <ul className={css.key} aria-label="Signs of the map">
        {USES.filter(({ use }) => counts.has(use)).map(({ use, sign, title }) => (
          <li key={use}>
            <span className={`${css.cell} ${css[use]}`} aria-hidden="true">
              {sign}
            </span>
            <span className="muted">
              {counts.get(use)} {title}
            </span>
          </li>
        ))}
      </ul>
      {current && <Current cell={current} />}
    </>
  );
}

function sentenceOf({ use, entries, range }: Cell): string {
  const within = range ? `, in ${range.name}` : '';
  if (use === 'none') return 'the network itself';
  if (entries.length === 0) return `${USES.find((it) => it.use === use)?.title ?? use}${within}`;
  return entries.map(ownerOf).join('; ') + within;
}

const ownerOf = ({ source, machine, device, rack, owner, hostname, mac }: Entry): string =>
  [source.replace('_', ' '), machine ?? device ?? (source === 'rack' ? rack : undefined) ?? owner ?? hostname ?? mac].filter(Boolean).join(' ');

/** The address that was chosen, with links to its owners. */
function Current({ cell }: { cell: Cell }) {
  return (
    <p role="status" className={parts.chips}>
      <Copy text={cell.address} />
      {cell.entries.length === 0 && <span className="muted">{sentenceOf(cell)}</span>}
      {cell.entries.map((entry) => (
        <span key={`${entry.source} ${entry.mac ?? entry.owner ?? ''}`}>
          <span className="muted">{entry.source.replace('_', ' ')}</span>{' '}
          {entry.machine ? <Link to={pageOf('machines', entry.machine)}>{entry.machine}</Link> : (entry.device ?? entry.owner ?? entry.rack)}{' '}
          {entry.mac && <span className="mono muted">{entry.mac}</span>}{' '}
          {entry.ends_at && (
            <span className="muted">
              ends <Time at={entry.ends_at} />
            </span>
          )}
        </span>
      ))}
      {cell.range && (
        <span className="muted">
          in <Link to={pageOf('ip_ranges', cell.range.name)}>{cell.range.name}</Link>
        </span>
      )}
    </p>
  );
}
