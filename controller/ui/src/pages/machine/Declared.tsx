import { Link } from '@tanstack/react-router';
import { pageOf } from '../../app/sections';
import { Grid } from '../../parts/Grid';
import { useMachine } from './Machine';
import { interfacesOf } from './declared';
import css from './Machine.module.css';

/** Where the address is from. `link_up` has none. */
const ADDRESSING: Record<string, string> = { auto: 'of the subnet', dhcp: 'DHCP', dhcp6: 'DHCPv6', slaac: 'SLAAC', link_up: 'none' };

/** The network that the next install of the machine gets, unless its deployment declares another one. */
export function DeclaredNetwork() {
  const { metadata, spec } = useMachine();
  const links = interfacesOf(spec.network ?? {});
  return (
    <section className={css.part} aria-labelledby="declared-network">
      <h2 id="declared-network">At the next install</h2>
      {links.length === 0 ? (
        <p className="muted">
          No network is declared: the deployment's own, else DHCP. <Configure name={metadata.name} />
        </p>
      ) : (
        <Grid label="Declared network" heads={['interface', 'is', 'of', 'address', 'subnet']}>
          {links.map((link) => (
            <tr key={`${link.is} ${link.name}`}>
              <td className="mono">{link.name}</td>
              <td>{link.is}</td>
              <td className="mono">{link.of.join(', ')}</td>
              <td>
                {ADDRESSING[link.addressing] ?? link.addressing} <span className="mono">{link.address}</span>
              </td>
              <td>{link.subnet && <Link to={pageOf('subnets', link.subnet)}>{link.subnet}</Link>}</td>
            </tr>
          ))}
        </Grid>
      )}
    </section>
  );
}

export function Configure({ name }: { name: string }) {
  return <Link to={`${pageOf('machines', name)}/configuration`}>Declare it</Link>;
}
