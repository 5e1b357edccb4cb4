import { Link } from '@tanstack/react-router';
import { type ReactNode, useState } from 'react';
import { useList } from '../api/live';
import type { Machine, Rack } from '../api/object';
import { pageOf } from '../app/sections';
import { Button } from '../parts/Button';
import { Dot } from '../parts/State';
import { DeclareButton } from './DeclareButton';
import { JoinToken } from './objects/JoinToken';
import parts from '../parts/parts.module.css';
import css from './List.module.css';

interface Step {
  done: boolean;
  title: string;
  /** The command for it. */
  says: string;
  /** The form for it. */
  form?: ReactNode;
}

/** The rows that the steps look at. */
interface Found {
  racks: readonly Rack[];
  vlans: readonly { status: object }[];
  subnets: readonly { spec: object }[];
  images: readonly { status: object }[];
  discoveries: readonly unknown[];
  machines: readonly Machine[];
}

/** Whether the first machine is there, and has told its hardware: then nothing is missing. */
const hasBooted = (machines: readonly Machine[]): boolean => machines.some(({ status }) => Boolean(status.commissioned_at ?? status.inventory));

/** The step of the first machine, before it is declared. */
function machineOf(seen: number): string {
  if (seen === 0) return 'A machine, by the MAC that it boots by';
  return `A machine: ${seen} ${seen === 1 ? 'was' : 'were'} seen on the networks`;
}

/** The things that the first machine needs, in their order. */
export function stepsOf({ racks, vlans, subnets, images, discoveries, machines }: Found): Omit<Step, 'form'>[] {
  const [first] = machines;
  return [
    {
      done: racks.some(({ status }) => status.connected),
      title: 'A rack controller that is connected',
      says: 'basalt rack join-token rack-1    # then, in /etc/basalt/rack.toml of its host:\njoin = "TOKEN"',
    },
    {
      done: subnets.some(({ spec }) => 'cidr' in spec && Boolean(spec.cidr)) && vlans.some(({ status }) => 'serving' in status && Array.isArray(status.serving) && status.serving.length > 0),
      title: 'A fabric, a VLAN and a subnet that the rack serves',
      says: 'basalt apply -f network.yaml',
    },
    { done: images.length > 0, title: 'An image to install', says: 'basalt image build debian --output debian' },
    {
      done: Boolean(first),
      title: first ? `A machine: ${first.metadata.name}` : machineOf(discoveries.length),
      says: 'kind: Machine\nmetadata: {name: web1}\nspec:\n  boot_macs: [52:54:00:00:00:01]\n  bmc: {driver: redfish, address: 10.0.0.11, username: admin, password: …}',
    },
    {
      done: hasBooted(machines),
      title: 'Its hardware, which it tells when it has booted from the network',
      says: first ? `basalt explain boot ${first.metadata.name}` : 'basalt explain boot NAME',
    },
  ];
}

/** Whether the page of the first run is shown: from an empty fleet on, until somebody leaves it. */
export function useFirstRun(machines: readonly Machine[], isRead: boolean): [boolean, () => void] {
  const [left, setLeft] = useState(false);
  const [begun, setBegun] = useState(false);
  if (isRead && machines.length === 0 && !begun) setBegun(true);
  return [(begun && !left) || (isRead && machines.length === 0), () => setLeft(true)];
}

/** The things that the first machine needs: a list that ticks itself. */
export function FirstRun({ machines, leave }: { machines: readonly Machine[]; leave: () => void }) {
  const { objects: racks } = useList<Rack>('Rack', 'racks');
  const { objects: vlans } = useList('Vlan', 'vlans');
  const { objects: subnets } = useList('Subnet', 'subnets');
  const { objects: images } = useList('Image', 'images');
  const { objects: discoveries } = useList('Discovery', 'discoveries');
  const [first] = machines;
  const forms = [
    <JoinToken key="rack" />,
    <DeclareButton key="subnet" plural="subnets" title="Declare a subnet…" />,
    undefined,
    <DeclareButton key="machine" plural="machines" title="Declare a machine…" />,
    first && <Link to={`${pageOf('machines', first.metadata.name)}/boots`}>Why does it not boot?</Link>,
  ];
  const steps: Step[] = stepsOf({ racks, vlans, subnets, images, discoveries, machines }).map((step, at) => ({ ...step, form: forms[at] }));
  const done = steps.filter((step) => step.done).length;
  const all = done === steps.length;
  return (
    <div className={parts.notice}>
      <h1>{first ? (all ? 'The first machine has booted' : 'The first machine is declared') : 'There is no machine yet'}</h1>
      <p className="muted" role="status">
        {done} of {steps.length} things are there that the first one needs. <a href="/pages/guides.install">The guide</a> goes through them.
      </p>
      <ol className={css.steps}>
        {steps.map(({ done, title, says, form }) => (
          <li key={title}>
            <span>
              <Dot tone={done ? 'ok' : 'wait'} />
              <span className="unseen">{done ? 'done' : 'to do'}</span>
            </span>
            <b>{title}</b>
            {!done && <pre className={parts.code}>{says}</pre>}
            {!done && form && <div className={css.form}>{form}</div>}
          </li>
        ))}
      </ol>
      {discoveries.length > 0 && !first && <Link to="/discoveries">Accept one of the discoveries</Link>}
      {first && (
        <Button primary={all} onClick={leave}>
          Show the list of machines
        </Button>
      )}
    </div>
  );
}
