import { Link } from '@tanstack/react-router';
import { useList } from '../../api/live';
import type { Rack } from '../../api/object';
import { pageOf } from '../../app/sections';
import { Grid } from '../../parts/Grid';
import { Dot } from '../../parts/State';
import { TONES } from './Rack';
import { copiesOf } from './secondaries';
import css from '../machine/Machine.module.css';

interface Props {
  declared: Parameters<typeof copiesOf>[0];
  /** The domain whose zone they copy; without it they copy all zones. */
  domain?: string;
}

/** Servers that hold copies of zones. Each rack gives copies by itself, and has its own word about each server. */
export function Secondaries({ declared, domain }: Props) {
  const { objects: racks } = useList<Rack>('Rack', 'racks');
  const copies = copiesOf(declared, racks, domain);
  if (copies.length === 0) return null;
  return (
    <section className={css.part}>
      <h2>{domain ? 'Secondaries' : 'Secondaries of all zones'}</h2>
      <Grid label="Secondaries" heads={['name', 'address', 'by rack']}>
        {copies.map(({ name, address, racks }) => (
          <tr key={name}>
            <td className="mono">{name}</td>
            <td className="mono">{address}</td>
            <td>
              {racks.length === 0 && <span className="muted">no rack has told yet</span>}
              {racks.map(({ rack, state, message }) => (
                <p key={rack}>
                  <Dot tone={TONES[state] ?? 'off'} /> <Link to={pageOf('racks', rack)}>{rack}</Link> <span className="muted">{message || state}</span>
                </p>
              ))}
            </td>
          </tr>
        ))}
      </Grid>
    </section>
  );
}
