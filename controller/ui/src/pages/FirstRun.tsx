import { useList } from '../api/live';
import type { Rack } from '../api/object';
import { Dot } from '../parts/State';
import { DeclareButton } from './DeclareButton';
import parts from '../parts/parts.module.css';
import css from './List.module.css';

/** What is missing to boot the first machine: a list that ticks itself. */
export function FirstRun() {
  const { objects: racks } = useList<Rack>('Rack', 'racks');
  const { objects: subnets } = useList('Subnet', 'subnets');
  const { objects: images } = useList('Image', 'images');
  const { objects: discoveries } = useList('Discovery', 'discoveries');
  const steps = [
    {
      done: racks.some((rack) => rack.status.connected),
      title: 'A rack controller that is connected',
      says: 'basalt rack join-token rack-1    # then, in /etc/basalt/rack.toml of its host:\njoin = "TOKEN"',
    },
    {
      done: subnets.some(({ spec }) => Boolean(spec.cidr)),
      title: 'A fabric, a VLAN and a subnet that the rack serves',
      says: 'basalt apply -f network.yaml',
    },
    { done: images.length > 0, title: 'An image to install', says: 'basalt image build debian --output debian' },
    {
      done: false,
      title: discoveries.length > 0 ? `A machine: ${discoveries.length} were seen on the networks` : 'A machine, by the MAC that it boots by',
      says: 'kind: Machine\nmetadata: {name: web1}\nspec:\n  boot_macs: [52:54:00:00:00:01]\n  bmc: {driver: redfish, address: 10.0.0.11, username: admin, password: …}',
    },
  ];
  const done = steps.filter((step) => step.done).length;
  return (
    <div className={parts.notice}>
      <h1>There is no machine yet</h1>
      <p className="muted">
        {done} of {steps.length} things are there that the first one needs. <a href="/pages/guides.install">The guide</a> goes through them.
      </p>
      <ol className={css.steps}>
        {steps.map(({ done, title, says }) => (
          <li key={title}>
            <span>
              <Dot tone={done ? 'ok' : 'wait'} />
              <span className="unseen">{done ? 'done' : 'to do'}</span>
            </span>
            <b>{title}</b>
            {!done && <pre className={parts.code}>{says}</pre>}
          </li>
        ))}
      </ol>
      <DeclareButton plural="machines" title="Declare a machine…" />
    </div>
  );
}
