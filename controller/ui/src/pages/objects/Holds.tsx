import { Link } from '@tanstack/react-router';
import type { Schemas } from '../../api/client';
import { useList } from '../../api/live';
import type { Rack } from '../../api/object';
import { pageOf } from '../../app/sections';
import { Grid } from '../../parts/Grid';
import { Dot } from '../../parts/State';
import { Time } from '../../parts/Time';
import { bytes } from '../../parts/size';
import { type Held, imagesOf, racksOf } from './holds';
import css from '../machine/Machine.module.css';

/** The leases of a rack, and its cache of image files. */
export function RackHolds({ rack: { status } }: { rack: Rack }) {
  const leases = Object.entries((status.leases ?? {}) as Record<string, Schemas['RackLeases']>);
  const { cache } = status;
  return (
    <div className={css.columns}>
      <section className={css.part} aria-labelledby="leases">
        <h2 id="leases">Leases</h2>
        {leases.length === 0 ? (
          <p className="muted">It has no dynamic addresses to lease.</p>
        ) : (
          <Grid label="Leases" heads={['subnet', 'running', 'of its addresses']}>
            {leases.map(([subnet, { running, addresses }]) => (
              <tr key={subnet}>
                <td>
                  <Link to={pageOf('subnets', subnet)}>{subnet}</Link>
                </td>
                <td>{running}</td>
                <td className="muted">{addresses}</td>
              </tr>
            ))}
          </Grid>
        )}
      </section>
      <section className={css.part} aria-labelledby="cache">
        <h2 id="cache">Image cache</h2>
        {cache ? (
          <>
            <p className="muted">
              {cache.files === 1 ? '1 file' : `${cache.files} files`}, {bytes(cache.bytes ?? 0)} of {bytes(cache.limit_bytes ?? 0)}, told <Time at={cache.reported_at} />.
              {Boolean(cache.unnamed) && ` ${cache.unnamed} more files of images are not listed below.`}
            </p>
            <Rows label="Images in the cache" head="image" plural="images" of={imagesOf(cache)} />
          </>
        ) : (
          <p className="muted">The rack has not told yet what it holds.</p>
        )}
      </section>
    </div>
  );
}

/** The racks that hold files of an image. Others fetch them when a machine asks. */
export function ImageOnRacks({ image }: { image: string }) {
  const { objects: racks } = useList<Rack>('Rack', 'racks');
  const rows = racksOf(image, racks);
  const whole = rows.filter(({ isWhole }) => isWhole).length;
  return (
    <section className={css.part} aria-labelledby="on-racks">
      <h2 id="on-racks">On racks</h2>
      <p className="muted">
        {whole} of {racks.length} {racks.length === 1 ? 'rack holds' : 'racks hold'} all of its files. A rack fetches what it lacks when a machine asks for it.
      </p>
      <Rows label="Racks with the image" head="rack" plural="racks" of={rows} />
    </section>
  );
}

function Rows({ label, head, plural, of }: { label: string; head: string; plural: string; of: readonly Held[] }) {
  if (of.length === 0) return null;
  return (
    <Grid label={label} heads={[head, 'holds']}>
      {of.map(({ name, isWhole, says }) => (
        <tr key={name}>
          <td>
            <Link to={pageOf(plural, name)}>{name}</Link>
          </td>
          <td>
            <Dot tone={isWhole ? 'ok' : 'busy'} /> {says}
          </td>
        </tr>
      ))}
    </Grid>
  );
}
