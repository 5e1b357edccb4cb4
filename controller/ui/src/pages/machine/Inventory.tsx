import type { Schemas } from '../../api/client';
import { Chips, Copy, Facts } from '../../parts/Facts';
import { Grid } from '../../parts/Grid';
import { Notice } from '../../parts/Notice';
import { Dot } from '../../parts/State';
import { bytes, speed } from '../../parts/size';
import { DeclaredNetwork, DeclaredStorage } from './Declared';
import { useMachine } from './Machine';
import { attached } from './numa';
import css from './Machine.module.css';
import parts from '../../parts/parts.module.css';

function Unknown({ what }: { what: string }) {
  return (
    <Notice inside title={`${what} is not known yet.`}>
      <p className="muted">The agent reads it when the machine is commissioned: when it boots by the network for the first time, or when it is asked to recommission.</p>
    </Notice>
  );
}

export function Hardware() {
  const { inventory } = useMachine().status;
  if (!inventory) return <Unknown what="Its hardware" />;
  const { cpu, dmi, memory_bytes, memory_modules, pci, gpus, usb, tpm, secure_boot } = inventory;
  return (
    <>
      <Facts
        of={[
          ['Architecture', inventory.architecture],
          ['Firmware', inventory.firmware?.toUpperCase()],
          ['Processor', cpu?.model],
          ['Sockets, cores, threads', cpu && [cpu.sockets, cpu.cores, cpu.threads].map((it) => it ?? '?').join(', ')],
          ['x86-64 level', cpu?.x86_64_level && `x86-64-v${cpu.x86_64_level}`],
          ['Microcode', cpu?.microcode],
          ['Memory', memory_bytes && bytes(memory_bytes)],
          ['Manufacturer', dmi?.manufacturer],
          ['Product', dmi?.product],
          ['Serial', dmi?.serial && <Copy text={dmi.serial} />],
          ['BIOS', dmi?.bios_version],
          ['TPM', tpm],
          ['Secure boot', secure_boot === true ? 'on' : secure_boot === false ? 'off' : undefined],
          ['BMC', inventory.bmc_present === true ? 'present' : inventory.bmc_present === false ? 'none' : undefined],
        ]}
      />
      <Modules of={(memory_modules ?? {}) as Record<string, Schemas['MemoryModule']>} />
      <Nodes of={inventory} />
      <Devices title="GPUs" of={gpus} />
      <Devices title="PCI devices" of={pci} />
      <Devices title="USB devices" of={usb} />
      <Flags of={cpu?.flags ?? []} />
    </>
  );
}

/** Memory modules by their sockets. */
function Modules({ of }: { of: Record<string, Schemas['MemoryModule']> }) {
  const modules = Object.entries(of);
  if (modules.length === 0) return null;
  return (
    <section className={css.part}>
      <h2>Memory modules</h2>
      <Grid label="Memory modules" heads={['socket', 'size', 'technology', 'maker', 'part', 'serial']}>
        {modules.map(([socket, it]) => (
          <tr key={socket}>
            <td className="mono">{socket}</td>
            <td>{bytes(it.size_bytes)}</td>
            <td className="muted">{[it.technology, it.speed_mts && `${it.speed_mts} MT/s`].filter(Boolean).join(', ')}</td>
            <td className="muted">{it.manufacturer}</td>
            <td className="mono">{it.part_number}</td>
            <td>{it.serial && <Copy text={it.serial} />}</td>
          </tr>
        ))}
      </Grid>
    </section>
  );
}

/** NUMA nodes, each with the devices that are attached to it. */
function Nodes({ of }: { of: Schemas['Inventory'] }) {
  const nodes = Object.entries((of.numa ?? {}) as Record<string, Schemas['NumaNode']>);
  if (nodes.length === 0) return null;
  return (
    <section className={css.part}>
      <h2>NUMA nodes</h2>
      <Grid label="NUMA nodes" heads={['node', 'threads', 'memory', 'interfaces', 'disks', 'GPUs']}>
        {nodes
          .sort(([a], [b]) => Number(a) - Number(b))
          .map(([node, it]) => {
            const near = attached(of, Number(node));
            return (
              <tr key={node}>
                <td>{node}</td>
                <td className="mono">{it.cpus}</td>
                <td>{it.memory_bytes && bytes(it.memory_bytes)}</td>
                <td className="mono">{near.interfaces.join(', ')}</td>
                <td className="mono">{near.disks.join(', ')}</td>
                <td className="mono">{near.gpus.join(', ')}</td>
              </tr>
            );
          })}
      </Grid>
    </section>
  );
}

/** Features of the processors. There are some 150, so they are closed at first. */
function Flags({ of }: { of: readonly string[] }) {
  if (of.length === 0) return null;
  return (
    <details className={css.part}>
      <summary>{of.length} processor flags</summary>
      <Chips of={of} />
    </details>
  );
}

function Devices({ title, of }: { title: string; of: object | null | undefined }) {
  const devices = Object.entries((of ?? {}) as Record<string, Record<string, unknown>>);
  if (devices.length === 0) return null;
  return (
    <section className={css.part}>
      <h2>{title}</h2>
      <ul className={css.list}>
        {devices.map(([address, device]) => (
          <li key={address} className={css.row}>
            <span className="mono">{address}</span>
            <span className="muted">{Object.values(device).flat().filter((it) => it !== null && typeof it !== 'object').join(' · ')}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

export function Network() {
  const { spec, status } = useMachine();
  const interfaces = Object.entries((status.inventory?.interfaces ?? {}) as Record<string, Schemas['Interface']>);
  const others = Object.entries((status.inventory?.other_interfaces ?? {}) as Record<string, Schemas['OtherInterface']>);
  const addresses = Object.entries((status.addresses ?? {}) as Record<string, string>);
  if (interfaces.length + others.length === 0) {
    return (
      <>
        <Unknown what="Its network" />
        <DeclaredNetwork />
      </>
    );
  }
  const boots = (mac: string) => (spec.boot_macs ?? []).some((it) => it.toLowerCase() === mac.toLowerCase());
  return (
    <>
      <Grid label="Interfaces" heads={['interface', 'link', 'MAC', 'addresses', 'neighbour', 'driver, firmware']}>
        {interfaces.map(([name, it]) => (
          <tr key={name}>
            <td className="mono">{name}</td>
            <td>
              <Link up={it.link} mbps={it.speed_mbps} />
            </td>
            <td>
              <Copy text={it.mac} /> {boots(it.mac) && <span className={parts.chip}>boots</span>}
            </td>
            <td>
              {addresses
                .filter(([of]) => of === name || of.startsWith(`${name}/`))
                .map(([of, address]) => (
                  <Copy key={of} text={address} />
                ))}
            </td>
            <td>
              <Neighbours of={Object.values((it.neighbours ?? {}) as Record<string, Schemas['Neighbour']>)} />
            </td>
            <td className="muted">{[it.driver, it.firmware].filter(Boolean).join(' · ')}</td>
          </tr>
        ))}
        {others.map(([name, it]) => (
          <tr key={name}>
            <td className="mono">{name}</td>
            <td>
              <Link up={it.link} mbps={it.speed_mbps} />
            </td>
            <td>{it.hardware_address && <Copy text={it.hardware_address} />}</td>
            <td className="muted">{it.technology}</td>
            <td />
            <td className="muted">{[it.driver, it.firmware].filter(Boolean).join(' · ')}</td>
          </tr>
        ))}
      </Grid>
      <DeclaredNetwork />
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
    <span className={css.row}>
      <Dot tone={up ? 'ok' : 'off'} /> {up ? (mbps ? speed(mbps) : 'up') : 'down'}
    </span>
  );
}

const HEALTH: Record<string, 'ok' | 'wait' | 'bad'> = { passed: 'ok', degraded: 'wait', failed: 'bad' };

export function Storage() {
  const { status } = useMachine();
  const disks = Object.entries((status.inventory?.disks ?? {}) as Record<string, Schemas['Disk']>);
  if (disks.length === 0) {
    return (
      <>
        <Unknown what="Its storage" />
        <DeclaredStorage />
      </>
    );
  }
  const largest = Math.max(...disks.map(([, disk]) => disk.size_bytes));
  return (
    <>
      <ul className={css.disks}>
        {disks.map(([name, disk]) => (
          <li key={name} className={css.disk}>
            <p className={css.diskname}>
              <b className="mono">{name}</b>
              <span>{bytes(disk.size_bytes)}</span>
              <span className="muted">{[disk.model, disk.transport, disk.rotational === true && 'rotational', disk.rotational === false && 'flash', disk.firmware && `firmware ${disk.firmware}`].filter(Boolean).join(' · ')}</span>
              {disk.health && (
                <span className={css.row} title="The disk's report of its own health (SMART)">
                  <Dot tone={HEALTH[disk.health] ?? 'off'} /> {disk.health === 'passed' ? 'healthy' : disk.health}
                </span>
              )}
              {disk.serial && <Copy text={disk.serial} />}
            </p>
            <div className={css.bar} style={{ width: `${Math.max(4, (100 * disk.size_bytes) / largest)}%` }} />
            <p className="muted">
              {disk.marker
                ? `Basalt's marker: ${disk.marker.state}, attempt ${disk.marker.attempt}`
                : "No marker of Basalt's: what is on it is not ours, and is not erased without a word"}
              {disk.marker && <Copy text={disk.marker.machine} shown={` of machine ${disk.marker.machine}`} />}
            </p>
          </li>
        ))}
      </ul>
      <DeclaredStorage />
    </>
  );
}
