import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { type Schemas, ask } from '../../api/client';
import { pageOf } from '../../app/sections';
import { Copy } from '../../parts/Facts';
import { Grid } from '../../parts/Grid';
import { Failure, Loading } from '../../parts/Notice';
import { Time } from '../../parts/Time';
import { spaced } from '../../parts/state';
import { SubnetMap } from './SubnetMap';
import { PAGE, boundsOf, entriesOf } from './addresses';
import css from '../machine/Machine.module.css';

const EVERY = 10_000;

/** Addresses of a subnet with their owners, from every source. */
export function Addresses({ subnet, cidr }: { subnet: string; cidr: string }) {
  const from = `/api/v1/addresses?subnet=${encodeURIComponent(subnet)}&limit=${PAGE}`;
  const page = (after: string | undefined) => ask<Schemas['AddressPage']>(after === undefined ? from : `${from}&continue=${encodeURIComponent(after)}`);
  const { data, error } = useQuery({ queryKey: ['addresses', subnet, cidr], queryFn: () => entriesOf(cidr, page), refetchInterval: EVERY });
  const rows = data?.items.slice(0, PAGE);
  const isCut = data && (data.more || data.items.length > PAGE);
  return (
    <section className={css.part} aria-labelledby="addresses">
      <h2 id="addresses">Addresses in use</h2>
      {error ? <Failure error={error} /> : !data && <Loading inside />}
      {data && !data.more && <SubnetMap subnet={subnet} cidr={cidr} entries={data.items} />}
      {data?.more && boundsOf(cidr) && <p className="muted">The map is left out: there are more than {data.items.length} entries, and an address that was not read would look free.</p>}
      {rows?.length === 0 && <p className="muted">Nobody has one.</p>}
      {rows && rows.length > 0 && (
        <Grid label="Table of addresses" heads={['address', 'from', 'owner', 'MAC', 'host name', 'ends']}>
          {rows.map((it) => (
            <tr key={`${it.address} ${it.source} ${it.owner ?? it.mac ?? ''}`}>
              <td>
                <Copy text={it.address} />
              </td>
              <td className="muted">{spaced(it.source)}</td>
              <td>{it.machine ? <Link to={pageOf('machines', it.machine)}>{it.machine}</Link> : (it.device ?? it.owner ?? it.rack)}</td>
              <td className="mono">{it.mac}</td>
              <td>{it.hostname}</td>
              <td className="muted">{it.ends_at && <Time at={it.ends_at} />}</td>
            </tr>
          ))}
        </Grid>
      )}
      {isCut && <p className="muted">These are the first {PAGE}.</p>}
    </section>
  );
}
