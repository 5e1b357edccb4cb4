import { Link } from '@tanstack/react-router';
import type { Schemas } from '../../api/client';
import { useObject } from '../../api/objects';
import { pageOf } from '../../app/sections';
import { addresses } from '../../filter/machines';
import { Chips, Copy, Facts } from '../../parts/Facts';
import { Failure, Loading } from '../../parts/Notice';
import { Dot } from '../../parts/State';
import { Words } from '../../parts/Words';
import { Time } from '../../parts/Time';
import { bytes } from '../../parts/size';
import { capital, plain, spaced } from '../../parts/state';
import { until } from '../../parts/time';
import { Steps } from './Steps';
import { ManagementController } from './ManagementController';
import { useMachine } from './Machine';
import css from './Machine.module.css';

export function Overview() {
  const machine = useMachine();
  const { metadata, spec, status } = machine;
  const { data: plan, error } = useObject<Schemas['PlanReport']>('Machine', 'machines', metadata.name, 'plan');
  const { inventory, axes, power } = status;
  return (
    <>
      <section className={css.part} aria-labelledby="next">
        <h2 id="next">Next steps</h2>
        {error ? <Failure error={error} /> : plan ? <Steps steps={plan.steps} none={plain(plan.summary)} /> : <Loading inside />}
      </section>
      <div className={css.columns}>
        <section className={css.part} aria-labelledby="what">
          <h2 id="what">What it is</h2>
          <Facts
            of={[
              ['Zone', <Link key="zone" to={pageOf('zones', spec.zone ?? 'default')}>{spec.zone ?? 'default'}</Link>],
              ['Pool', <Link key="pool" to={pageOf('pools', spec.pool ?? 'default')}>{spec.pool ?? 'default'}</Link>],
              ['Deployment', status.deployment && <Link to={pageOf('deployments', status.deployment)}>{status.deployment}</Link>],
              ['Addresses', addresses(machine).length > 0 && addresses(machine).map((it) => <Copy key={it} text={it} />)],
              ['Boots by', (spec.boot_macs ?? []).map((mac) => <Copy key={mac} text={mac} />)],
              ['Processors', inventory?.cpu && [inventory.cpu.model, inventory.cpu.cores && `${inventory.cpu.cores} cores`].filter(Boolean).join(', ')],
              ['Memory', inventory?.memory_bytes && bytes(inventory.memory_bytes)],
              ['Model', inventory?.dmi && [inventory.dmi.manufacturer, inventory.dmi.product].filter(Boolean).join(' ')],
              ['Serial', inventory?.dmi?.serial && <Copy text={inventory.dmi.serial} />],
              ['Tags', (status.tags?.length ?? 0) > 0 && <Chips of={status.tags ?? []} />],
              ['Labels', Object.keys(metadata.labels ?? {}).length > 0 && <Chips of={Object.entries(metadata.labels ?? {}).map((pair) => pair.join('='))} />],
              ['Description', spec.description],
            ]}
          />
        </section>
        <section className={css.part} aria-labelledby="how">
          <h2 id="how">How it is</h2>
          <Facts
            of={[
              ['Lifecycle', axes?.lifecycle && spaced(axes.lifecycle)],
              ['Operation', axes?.operation && <>{spaced(axes.operation)} {axes.operation_detail && <span className="muted">· {axes.operation_detail}</span>}</>],
              ['Health', axes?.health && spaced(axes.health)],
              ['Sync', axes?.sync && spaced(axes.sync)],
              ['Power', power && <>{capital(power.state)}, seen <Time at={power.observed_at} />{power.error && <span className="muted"> · {power.error}</span>}</>],
              ['Boot', status.boot && <>{status.boot.step} · <Time at={status.boot.at} /></>],
              ['Commissioned', <Time key="commissioned" at={status.commissioned_at} />],
              ['Declared', <><Time at={metadata.created_at} />{metadata.manager && <> by {metadata.manager}</>}</>],
              ['Changed', <><Time key="changed" at={metadata.updated_at} /> <span className="muted">· generation {metadata.generation}</span></>],
              ['Uid', <Copy key="uid" text={metadata.uid} />],
            ]}
          />
        </section>
      </div>
      <ManagementController machine={machine} />
      <Conditions of={status.conditions ?? []} />
    </>
  );
}

export function Conditions({ of }: { of: Schemas['Condition'][] }) {
  if (of.length === 0) return null;
  const good = (it: Schemas['Condition']) => (it.type === 'Stalled' ? it.status === 'false' : it.status === 'true');
  return (
    <section className={css.part} aria-labelledby="conditions">
      <h2 id="conditions">Conditions</h2>
      <ul className={css.conditions}>
        {of.map((it, place) => (
          <li key={it.type}>
            <span className={css.row}>
              <Dot tone={it.type === 'Stalled' && !good(it) ? 'bad' : it.type === 'Progressing' && good(it) ? 'busy' : good(it) ? 'ok' : 'off'} />
              <b>{it.type}</b>
            </span>
            <span>{it.status}</span>
            <span className="muted">
              since <Time at={it.since} />
              {it.deadline && <> · until {until(it.deadline, Date.now())}</>}
            </span>
            {/* What several conditions say is said once. */}
            <span className="muted">{of.findIndex(({ message }) => message === it.message) === place ? <Words of={plain(it.message)} /> : 'the same'}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
