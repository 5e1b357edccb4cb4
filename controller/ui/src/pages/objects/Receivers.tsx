import type { Schemas } from '../../api/client';
import { Grid } from '../../parts/Grid';
import { Dot } from '../../parts/State';
import { bytes } from '../../parts/size';
import css from '../machine/Machine.module.css';
import parts from '../../parts/parts.module.css';

interface Props {
  declared: Record<string, Pick<Schemas['RemoteSyslog'], 'address' | 'protocol'>>;
  state: Record<string, Schemas['RemoteSyslogStatus']>;
}

/** Syslog receivers that logs are forwarded to: lines that they took, lines that wait, lines that were lost. */
export function Receivers({ declared, state }: Props) {
  const targets = Object.entries(declared);
  if (targets.length === 0) return null;
  return (
    <section className={css.part}>
      <h2>Syslog receivers</h2>
      <Grid label="Syslog receivers" heads={['name', 'address', 'state', 'taken', 'waiting', 'lost']}>
        {targets.map(([name, { address, protocol }]) => {
          const it = state[name];
          return (
            <tr key={name}>
              <td className="mono">{name}</td>
              <td className="mono">
                {address} <span className="muted">{protocol ?? 'tcp'}</span>
              </td>
              <td>
                <Dot tone={it ? (it.connected ? 'ok' : 'bad') : 'off'} /> {it ? (it.connected ? 'takes lines' : (it.message ?? 'takes no lines')) : <span className="muted">no region forwards to it yet</span>}
              </td>
              <td>{it?.forwarded}</td>
              <td>{it && bytes(it.waiting_bytes)}</td>
              <td className={it && it.lost > 0 ? parts.bad : undefined}>{it?.lost}</td>
            </tr>
          );
        })}
      </Grid>
    </section>
  );
}
