import type { Schemas } from '../../api/client';
import { Copy } from '../../parts/Facts';
import { Dot } from '../../parts/State';
import { bytes } from '../../parts/size';
import { Configure } from './Declared';
import { Unknown } from './Inventory';
import { useMachine } from './Machine';
import { type Layer, type Stack, stacksOf } from './layers';
import css from './Storage.module.css';
import machine from './Machine.module.css';

const HEALTH: Record<string, 'ok' | 'wait' | 'bad'> = { passed: 'ok', degraded: 'wait', failed: 'bad' };

/** The disks that the machine reports, each with the layers that the next install makes on it. */
export function Storage() {
  const { metadata, spec, status } = useMachine();
  const disks = (status.inventory?.disks ?? {}) as Record<string, Schemas['Disk']>;
  const stacks = spec.storage ? stacksOf(spec.storage, disks) : [];
  const found = Object.entries(disks);
  const largest = Math.max(0, ...found.map(([, disk]) => disk.size_bytes));
  const open = stacks.filter(({ disk }) => !disk);
  return (
    <>
      {found.length === 0 && <Unknown what="Its storage" />}
      <div className={machine.part}>
        {found.length > 0 && <p>{summary(found.map(([, disk]) => disk))}</p>}
        <p className="muted">
          {spec.storage
            ? `At the next install: layout ${spec.storage.layout ?? 'flat'}. Below a disk stands what is made on it; boot partitions are not drawn.`
            : "No disks are declared: the next install takes the deployment's own, else the layout flat."}{' '}
          {!spec.storage && <Configure name={metadata.name} />}
        </p>
      </div>
      {found.length + open.length > 0 && (
        <ul className={css.disks} aria-label="Disks">
          {found.map(([name, disk]) => (
            <Reported key={name} name={name} disk={disk} part={disk.size_bytes / largest} uid={metadata.uid} stacks={stacks.filter((it) => it.disk === name)} />
          ))}
          {open.map((stack) => (
            <Chosen key={stack.name} stack={stack} isKnown={found.length > 0} />
          ))}
        </ul>
      )}
    </>
  );
}

function summary(disks: Schemas['Disk'][]): string {
  const marked = disks.filter(({ marker }) => marker).length;
  const all = bytes(disks.reduce((sum, { size_bytes }) => sum + size_bytes, 0));
  const marks = marked === 0 ? "Basalt's marker is on none" : marked === disks.length ? "Basalt's marker is on each" : `Basalt's marker is on ${marked}`;
  return `${disks.length} ${disks.length === 1 ? 'disk' : 'disks'}, ${all}. ${marks}.`;
}

interface ReportedProps {
  name: string;
  disk: Schemas['Disk'];
  /** Its part of the largest disk. */
  part: number;
  /** The machine. */
  uid: string;
  stacks: Stack[];
}

function Reported({ name, disk, part, uid, stacks }: ReportedProps) {
  return (
    <li className={css.disk} aria-label={name}>
      <p className={css.diskname}>
        <b className="mono">{name}</b>
        <span>{bytes(disk.size_bytes)}</span>
        <span className="muted">{[disk.model, disk.transport, disk.rotational === true && 'rotational', disk.rotational === false && 'flash', disk.firmware && `firmware ${disk.firmware}`].filter(Boolean).join(' · ')}</span>
        {disk.health && (
          <span className={machine.row} title="The disk's report of its own health (SMART)">
            <Dot tone={HEALTH[disk.health] ?? 'off'} /> {disk.health === 'passed' ? 'healthy' : disk.health}
          </span>
        )}
        {disk.serial && <Copy text={disk.serial} />}
        {stacks.map((stack) => (
          <span key={stack.name} className="muted">
            declared as <span className="mono">{stack.name}</span>
          </span>
        ))}
      </p>
      <Bar label={`Layers of ${name}`} part={part} layers={stacks.flatMap(({ layers }) => layers)} />
      <p className="muted">
        {disk.marker
          ? `Basalt's marker: ${disk.marker.state}, attempt ${disk.marker.attempt}`
          : "No marker of Basalt's: what is on it is not ours, and is not erased without a word"}
        {disk.marker && (disk.marker.machine === uid ? ' of this machine' : <Copy text={disk.marker.machine} shown={` of machine ${disk.marker.machine}`} />)}
      </p>
    </li>
  );
}

/** A declared disk without a reported one. */
function Chosen({ stack: { name, id, least, layers }, isKnown }: { stack: Stack; isKnown: boolean }) {
  return (
    <li className={css.disk} aria-label={name}>
      <p className={css.diskname}>
        <b className="mono">{name}</b>
        <span className="muted">
          {id ? (
            <>
              the disk <span className="mono">{id}</span>
              {isKnown && ', which the machine does not report'}
            </>
          ) : (
            `a disk that the install chooses: the smallest one that fits${least ? `, of at least ${least}` : ''}`
          )}
        </span>
      </p>
      <Bar label={`Layers of ${name}`} part={1} layers={layers} isOpen />
    </li>
  );
}

/** A disk as a bar, and the layers on it below each other. */
function Bar({ label, part, layers, isOpen = false }: { label: string; part: number; layers: Layer[]; isOpen?: boolean }) {
  const bar = <div className={css.bar} data-open={isOpen || undefined} />;
  const style = { width: `${Math.max(4, 100 * part)}%` };
  if (layers.length === 0) return <div style={style}>{bar}</div>;
  return (
    <div className={css.scroll} role="region" aria-label={label} tabIndex={0}>
      <div className={css.stack} style={style}>
        {bar}
        <Layers of={layers} />
      </div>
    </div>
  );
}

/** A part that is smaller is no gap that somebody sees. */
const GAP = 0.005;

function Layers({ of }: { of: Layer[] }) {
  const free = 1 - of.reduce((sum, { share }) => sum + share, 0);
  return (
    <ul className={css.layers}>
      {of.map((layer) => (
        <li key={`${layer.is} ${layer.name}`} style={{ flexGrow: layer.share * 1000 }}>
          <p className={css.layer} data-end={layer.mount ? true : undefined} title={said(layer)}>
            {layer.mount && <b className="mono">{layer.mount}</b>} <span className={layer.mount ? 'mono muted' : 'mono'}>{layer.name}</span> <span className="muted">{said(layer)}</span>
          </p>
          {layer.above.length > 0 && <Layers of={layer.above} />}
        </li>
      ))}
      {free > GAP && <li aria-hidden="true" className={css.free} style={{ flexGrow: free * 1000 }} />}
    </ul>
  );
}

/** `partition · 100 GiB`. */
function said({ is, bytes: size, isRest, others }: Layer): string {
  const room = size !== undefined ? bytes(size) : isRest ? 'the rest' : undefined;
  return [is, room, others.length > 0 && `with ${others.join(', ')}`].filter(Boolean).join(' · ');
}
