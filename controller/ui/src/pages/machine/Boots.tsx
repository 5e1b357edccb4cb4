import type { Schemas } from '../../api/client';
import { path } from '../../api/client';
import { useRead } from '../../api/objects';
import { Copy } from '../../parts/Facts';
import { Grid } from '../../parts/Grid';
import { Failure, Loading } from '../../parts/Notice';
import { Dot } from '../../parts/State';
import { Time } from '../../parts/Time';
import { capital, plain, spaced } from '../../parts/state';
import { absolute, clock } from '../../parts/time';
import { useMachine } from './Machine';
import css from './Machine.module.css';

/** While it boots, each packet shows up within this time. */
const EVERY = 1_000;

export function Boots() {
  return <BootLadders of={useMachine().metadata.name} />;
}

/** What a machine, or a MAC, asked of racks as it booted, and what they answered. */
export function BootLadders({ of }: { of: string }) {
  const { data, error, refetch } = useRead<Schemas['Boots']>(path('boots', of), EVERY);
  if (error) return <Failure error={error} again={() => void refetch()} />;
  if (!data) return <Loading inside />;
  return (
    <div className={css.ladder}>
      {data.judgement && <Verdict of={data.judgement} />}
      {data.boots.map((boot) => (
        <Ladder key={boot.mac + boot.began} boot={boot} />
      ))}
      {data.boots.length === 0 && (
        <section className={css.part} aria-labelledby="listen">
          <h2 id="listen">Who listens</h2>
          {data.racks.length === 0 && <p className="muted">No rack has ever connected to this region.</p>}
          <ul className={css.list}>
            {data.racks.map((rack) => (
              <li key={rack.rack} className={css.row}>
                <Dot tone={rack.connected ? 'ok' : 'bad'} />
                <span className="mono">{rack.rack}</span>
                <span className="muted">
                  {rack.connected ? 'connected' : 'away'} {rack.addresses.join(', ')}
                </span>
              </li>
            ))}
          </ul>
        </section>
      )}
    </div>
  );
}

function Verdict({ of }: { of: Schemas['Judgement'] }) {
  return (
    <div className={css.verdict} role="status" aria-label="Verdict" data-calm={of.to_do.startsWith('nothing') || undefined}>
      <p>
        <b>{capital(plain(of.message))}.</b>
      </p>
      <p>To do: {of.to_do}</p>
    </div>
  );
}

function Ladder({ boot }: { boot: Schemas['Boot'] }) {
  const begun = Date.parse(boot.began);
  const after = (at: string) => {
    const seconds = (Date.parse(at) - begun) / 1000;
    return seconds < 100 ? `+${seconds.toFixed(1)} s` : `+${Math.round(seconds / 60)} min`;
  };
  return (
    <section className={css.part}>
      <h2 className={css.row}>
        <span title={absolute(boot.began)}>
          Boot, <Time at={boot.began} />
        </span>
        <Copy text={boot.mac} />
      </h2>
      {boot.judgement && <Verdict of={boot.judgement} />}
      <Grid label={`Boot of ${clock(boot.began)}`} heads={['after', 'it asked', 'it was answered', 'why', 'rack']}>
        {boot.entries.map((entry, place) => (
          <tr key={`${entry.at} ${place}`}>
            <td className={css.when} title={absolute(entry.at)}>
              {after(entry.at)}
            </td>
            <td>
              <span className="muted">{[entry.service, entry.client].filter(Boolean).join(' ')}</span>{' '}
              <span className="mono">{entry.asked}</span>
              {entry.times > 1 && <span className="muted"> ×{entry.times}</span>}
            </td>
            <td>
              <span className="mono">{entry.answered}</span> {entry.address && <span className="mono muted">{entry.address}</span>}
            </td>
            <td>{entry.reason && spaced(entry.reason)}</td>
            <td className="muted">{entry.rack}</td>
          </tr>
        ))}
      </Grid>
      {(boot.lost ?? 0) > 0 && <p className="muted">{boot.lost} more were not kept.</p>}
    </section>
  );
}
