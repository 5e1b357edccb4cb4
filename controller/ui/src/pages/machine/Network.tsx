import type { Schemas } from '../../api/client';
import { Copy } from '../../parts/Facts';
import { Dot } from '../../parts/State';
import { speed } from '../../parts/size';
import { DeclaredNetwork } from './Declared';
import { Unknown } from './Inventory';
import { useMachine } from './Machine';
import { type Arranged, type Bracket, arrange } from './brackets';
import css from './Network.module.css';
import parts from '../../parts/parts.module.css';

type Reported = Schemas['Interface'] | Schemas['OtherInterface'];

/** Interfaces as rows, with bonds and bridges of the next install as brackets at their left. */
export function Network() {
  const { spec, status } = useMachine();
  const interfaces = (status.inventory?.interfaces ?? {}) as Record<string, Schemas['Interface']>;
  const others = (status.inventory?.other_interfaces ?? {}) as Record<string, Schemas['OtherInterface']>;
  const all: Record<string, Reported> = { ...interfaces, ...others };
  const isKnown = Object.keys(all).length > 0;
  const macs = Object.fromEntries(Object.keys(all).map((name) => [name, interfaces[name]?.mac]));
  const arranged = arrange(macs, spec.network ?? {});
  return (
    <>
      {!isKnown && <Unknown what="Its network" />}
      {arranged.rows.length > 0 && (
        <div className={parts.scroll} role="region" aria-label="Interfaces" tabIndex={0}>
          <table className={parts.grid}>
            <thead>
              <tr>
                {arranged.columns > 0 && <th colSpan={arranged.columns}>at the next install</th>}
                {['interface', 'link', 'MAC', 'addresses', 'neighbour', 'driver, firmware'].map((head) => (
                  <th key={head}>{head}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {arranged.rows.map((name, row) => (
                <tr key={name}>
                  <Over of={arranged} row={row} />
                  <td className="mono">{name}</td>
                  {all[name] ? <Facts name={name} of={all[name]} /> : <Missing isKnown={isKnown} />}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <DeclaredNetwork />
    </>
  );
}

/** The brackets that begin at a row, the outermost first. */
function Over({ of: { brackets, columns }, row }: { of: Arranged; row: number }) {
  return Array.from({ length: columns }, (_, at) => columns - 1 - at).map((column) => {
    const over = brackets.find((it) => it.column === column && it.from <= row && row < it.from + it.rows);
    if (over && over.from !== row) return null;
    return over ? <Piece key={column} of={over} /> : <td key={column} />;
  });
}

function Piece({ of: { name, is, rows } }: { of: Bracket }) {
  return (
    <td rowSpan={rows} className={css.bracket}>
      <span className="mono">{name}</span> <span className="muted">{is}</span>
    </td>
  );
}

function Missing({ isKnown }: { isKnown: boolean }) {
  return (
    <td colSpan={5} className="muted">
      {isKnown ? 'declared; the machine does not report it' : 'declared'}
    </td>
  );
}

function Facts({ name, of }: { name: string; of: Reported }) {
  const { spec, status } = useMachine();
  const addresses = Object.entries((status.addresses ?? {}) as Record<string, string>);
  const driver = <td className="muted">{[of.driver, of.firmware].filter(Boolean).join(' · ')}</td>;
  const link = (
    <td className={css.whole}>
      <Link up={of.link} mbps={of.speed_mbps} />
    </td>
  );
  if (!('mac' in of)) {
    return (
      <>
        {link}
        <td className={css.whole}>{of.hardware_address && <Copy text={of.hardware_address} />}</td>
        <td className="muted">{of.technology}</td>
        <td />
        {driver}
      </>
    );
  }
  const boots = (spec.boot_macs ?? []).some((it) => it.toLowerCase() === of.mac.toLowerCase());
  return (
    <>
      {link}
      <td className={css.whole}>
        <Copy text={of.mac} /> {boots && <span className={parts.chip}>boots</span>}
      </td>
      <td className={css.whole}>
        {addresses
          .filter(([on]) => on === name || on.startsWith(`${name}/`))
          .map(([on, address]) => (
            <Copy key={on} text={address} />
          ))}
      </td>
      <td>
        <Neighbours of={Object.values((of.neighbours ?? {}) as Record<string, Schemas['Neighbour']>)} />
      </td>
      {driver}
    </>
  );
}

/** Devices at the other end of a link, as they announce themselves by LLDP or CDP: name and port, the untagged VLAN. */
function Neighbours({ of }: { of: Schemas['Neighbour'][] }) {
  return (
    <ul>
      {of.map(({ protocol, chassis_id, port_id, system_name, port_description, native_vlan }) => (
        <li key={`${protocol} ${chassis_id} ${port_id}`} title={[protocol.toUpperCase(), chassis_id, port_description].filter(Boolean).join(' · ')}>
          <span className="mono">
            {system_name || chassis_id} {port_id}
          </span>
          {native_vlan && <span className="muted"> · VLAN {native_vlan}</span>}
        </li>
      ))}
    </ul>
  );
}

function Link({ up, mbps }: { up?: boolean | null; mbps?: number | null }) {
  if (up === null || up === undefined) return <span className="faint">unknown</span>;
  return (
    <>
      <Dot tone={up ? 'ok' : 'off'} /> {up ? (mbps ? speed(mbps) : 'up') : 'down'}
    </>
  );
}
