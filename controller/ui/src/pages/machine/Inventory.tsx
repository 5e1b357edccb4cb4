import type { Schemas } from '../../api/client';
import { Chips, Copy, Facts } from '../../parts/Facts';
import { Grid } from '../../parts/Grid';
import { Notice } from '../../parts/Notice';
import { bytes } from '../../parts/size';
import { useMachine } from './Machine';
import { attached } from './numa';
import css from './Machine.module.css';

export function Unknown({ what }: { what: string }) {
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
      <div className={css.columns}>
        <Facts
          of={[
            ['Processor', cpu?.model],
            ['Sockets, cores, threads', cpu && [cpu.sockets, cpu.cores, cpu.threads].map((it) => it ?? '?').join(', ')],
            ['Architecture', inventory.architecture],
            ['x86-64 level', cpu?.x86_64_level && `x86-64-v${cpu.x86_64_level}`],
            ['Microcode', cpu?.microcode],
            ['Memory', memory_bytes && bytes(memory_bytes)],
          ]}
        />
        <Facts
          of={[
            ['Manufacturer', dmi?.manufacturer],
            ['Product', dmi?.product],
            ['Serial', dmi?.serial && <Copy text={dmi.serial} />],
            ['Firmware', [inventory.firmware?.toUpperCase(), dmi?.bios_version].filter(Boolean).join(', version ')],
            ['Secure boot', secure_boot === true ? 'on' : secure_boot === false ? 'off' : undefined],
            ['TPM', tpm],
            ['BMC', inventory.bmc_present === true ? 'present' : inventory.bmc_present === false ? 'none' : undefined],
          ]}
        />
      </div>
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
