import { Link } from '@tanstack/react-router';
import type { Schemas } from '../../api/client';
import { pageOf } from '../../app/sections';
import { Chips } from '../../parts/Facts';
import { Grid } from '../../parts/Grid';
import { useMachine } from './Machine';
import { type Link as NetLink, interfacesOf, usesOf } from './declared';
import css from './Machine.module.css';

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
        <Grid label="Declared network" heads={['interface', 'is', 'of', 'address']}>
          {links.map((link) => (
            <tr key={`${link.is} ${link.name}`}>
              <td className="mono">{link.name}</td>
              <td>{link.is}</td>
              <td className="mono">{link.of.join(', ')}</td>
              <td>
                <Address of={link} />
              </td>
            </tr>
          ))}
        </Grid>
      )}
    </section>
  );
}

function Address({ of: { addressing, address, subnet } }: { of: NetLink }) {
  return (
    <>
      {addressing} {address && <span className="mono">{address}</span>} {subnet && <Link to={pageOf('subnets', subnet)}>{subnet}</Link>}
    </>
  );
}

/** The disks of the next install, unless its deployment declares others. */
export function DeclaredStorage() {
  const { metadata, spec } = useMachine();
  const storage: Partial<Schemas['StorageConfig']> = spec.storage ?? {};
  const uses = usesOf(storage);
  return (
    <section className={css.part} aria-labelledby="declared-storage">
      <h2 id="declared-storage">At the next install</h2>
      <p className="muted">
        {spec.storage ? `Layout ${storage.layout ?? 'flat'}.` : "No disks are declared: the deployment's own, else the layout flat."} {!spec.storage && <Configure name={metadata.name} />}
      </p>
      {uses.length > 0 && (
        <Grid label="Declared disks" heads={['name', 'is', 'on', 'size', 'mounted at']}>
          {uses.map(({ name, is, on, size, mount }) => (
            <tr key={`${is} ${name}`}>
              <td className="mono">{name}</td>
              <td>{is}</td>
              <td>
                <Chips of={on} />
              </td>
              <td className="muted">{size}</td>
              <td className="mono">{mount}</td>
            </tr>
          ))}
        </Grid>
      )}
    </section>
  );
}

function Configure({ name }: { name: string }) {
  return <Link to={`${pageOf('machines', name)}/configuration`}>Declare it</Link>;
}
