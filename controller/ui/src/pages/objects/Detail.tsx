import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import type { Schemas } from '../../api/client';
import { type Kind, useKinds } from '../../api/kinds';
import type { BasaltObject, Json, Rack } from '../../api/object';
import { isGone, useObject } from '../../api/objects';
import type { ObjectView } from '../../app/routes';
import { type Place, pageOf, placeOf, placeOfKind } from '../../app/sections';
import { useWrites } from '../../app/who';
import { Button } from '../../parts/Button';
import { Chips, Copy, Facts } from '../../parts/Facts';
import { Manager } from '../../parts/Manager';
import { Failure, Loading, Notice } from '../../parts/Notice';
import { StateLine } from '../../parts/State';
import { Time } from '../../parts/Time';
import { Plan, type Proposal } from '../../parts/plan/Plan';
import { plain, spaced, stateOf } from '../../parts/state';
import { DeclareButton } from '../DeclareButton';
import { DecisionsOf } from '../machine/Decisions';
import { Conditions } from '../machine/Overview';
import { Steps } from '../machine/Steps';
import { TimelineOf } from '../machine/Timeline';
import css from '../machine/Machine.module.css';
import parts from '../../parts/parts.module.css';
import { ConfigurationOf } from './Configuration';
import { Deliveries } from './Deliveries';
import { DeploymentScripts, ScriptUses } from './FirstBoot';
import { ImageOnRacks, RackHolds } from './Holds';
import { ImageFiles } from './ImageFiles';
import { RackServices } from './Rack';
import { Receivers } from './Receivers';
import { Rename } from './Rename';
import { ScriptContent } from './ScriptContent';
import { ScriptRun } from './ScriptRun';
import { Secondaries } from './Secondaries';
import { Addresses } from './Subnet';
import { TagPreview } from './TagPreview';
import { TokenActions } from './Token';
import { Value } from './Value';

export function Detail() {
  const { plural = '', name = '' } = useParams({ strict: false }) as { plural?: string; name?: string };
  const place = placeOf(plural);
  if (!place) return <Notice title={`There is no page ${plural}.`} />;
  return <Shown key={`${plural} ${name}`} place={place} name={name} />;
}

/** Kinds that are driven: their plan and their history are told. */
const LIVING = ['deployments'];
/** The region refuses to rename these: there is one Settings, and a VLAN is called after its fabric. */
const NAMED = ['settings', 'vlans'];

/** The parts of a kind's page, each with an address of its own. */
const TABS: Record<string, string[]> = { deployments: ['Timeline', 'Decisions'], webhooks: ['Deliveries'] };

function Shown({ place: { kind, plural }, name }: { place: Place; name: string }) {
  const { data: object, error, refetch } = useObject(kind, plural, name);
  const described = useKinds()?.find((it) => it.plural === plural);
  const { may, off } = useWrites();
  const [proposal, setProposal] = useState<Proposal>();
  const { tab: asked } = useSearch({ strict: false }) as ObjectView;
  const navigate = useNavigate();
  const failure = error && <Failure error={error} again={() => void refetch()} />;
  if (failure && (!object || isGone(error))) return failure;
  if (!object) return <Loading />;
  const tabs = ['Overview', ...(TABS[plural] ?? []), 'Configuration'];
  const tab = tabs.find((title) => title.toLowerCase() === asked) ?? 'Overview';
  const show = (title: string) => void navigate({ to: '.', search: { tab: title === 'Overview' ? undefined : title.toLowerCase() } } as never);
  return (
    <>
      {failure}
      <header className={css.head}>
        <div className={css.line}>
          <h1 className="mono">{name}</h1>
          <Manager of={object.metadata.manager} />
          {plural === 'discoveries' && <Accept status={object.status} />}
          {may && described?.declarable !== false && (
            <span className={css.actions}>
              {plural === 'api_tokens' && <TokenActions name={name} isIssued={Boolean(object.status.issued_at)} />}
              {plural === 'scripts' && <ScriptRun script={object} />}
              {!NAMED.includes(plural) && <Rename kind={kind} plural={plural} name={name} />}
              <Button danger off={off} onClick={() => setProposal({ kind: 'delete', of: kind, plural, name })}>
                Delete…
              </Button>
            </span>
          )}
        </div>
        <StateLine state={stateOf(object)} whole />
      </header>
      <div className={parts.tabs} role="tablist" aria-label={`About ${name}`}>
        {tabs.map((title) => (
          <button key={title} type="button" role="tab" className={parts.tab} aria-selected={tab === title} onClick={() => show(title)}>
            {title}
          </button>
        ))}
      </div>
      <div className={css.body} role="tabpanel" aria-label={tab}>
        {tab === 'Overview' && <Overview object={object} plural={plural} described={described} />}
        {tab === 'Timeline' && <TimelineOf kind={kind} plural={plural} name={name} />}
        {tab === 'Deliveries' && <Deliveries webhook={object} />}
        {tab === 'Decisions' && <DecisionsOf kind={kind} plural={plural} name={name} />}
        {tab === 'Configuration' && <ConfigurationOf plural={plural} object={object} />}
      </div>
      {proposal && <Plan proposal={proposal} close={() => setProposal(undefined)} />}
    </>
  );
}

/** Makes a Machine of what was found, as the region proposes it. A Discovery of anything else has no button. */
function Accept({ status }: { status: BasaltObject['status'] }) {
  const proposal = status.proposal;
  if (!proposal || typeof proposal !== 'object' || Array.isArray(proposal)) return null;
  const { name, ...spec } = proposal;
  return <DeclareButton plural="machines" title="Accept as machine…" name={String(name)} spec={spec} />;
}

/** Fields of the spec that have a part of the page. */
const SHOWN: Record<string, string[]> = { scripts: ['content', 'parameters'], deployments: ['scripts'], images: ['files'] };
/** Said elsewhere on the page. */
const TOLD = ['conditions', 'effective', 'observed_generation', 'phase', 'axes', 'services', 'concerns', 'cache', 'leases', 'remote_syslog'];

function Overview({ object, plural, described }: { object: BasaltObject; plural: string; described: Kind | undefined }) {
  const { metadata, spec, status } = object;
  const says = (of: 'spec' | 'status', name: string) => described?.[of].find((field) => field.name === name)?.says;
  const field = (name: string) => described?.spec.find((field) => field.name === name);
  const declared = Object.entries(spec).filter(([name]) => !(SHOWN[plural] ?? []).includes(name));
  const named = (of: 'spec' | 'status', name: string) => spacedField(name, says(of, name));
  const told = Object.entries(status).filter(([name, value]) => !TOLD.includes(name) && !isEmpty(value as Json));
  return (
    <>
      {LIVING.includes(plural) && <NextSteps plural={plural} kind={object.kind} name={metadata.name} />}
      {plural === 'racks' && <RackServices rack={object} />}
      {plural === 'racks' && <RackHolds rack={object as unknown as Rack} />}
      {plural === 'tags' && <TagPreview tag={object} />}
      {plural === 'scripts' && <ScriptContent script={object} />}
      {plural === 'scripts' && <ScriptUses script={object} />}
      {plural === 'deployments' && <DeploymentScripts deployment={object} />}
      {plural === 'images' && <ImageFiles image={object} />}
      {plural === 'images' && <ImageOnRacks image={metadata.name} />}
      {plural === 'domains' && <Secondaries declared={(spec.secondaries ?? {}) as never} domain={metadata.name} />}
      {plural === 'settings' && <Secondaries declared={(spec.dns_secondaries ?? {}) as never} />}
      {plural === 'settings' && <Receivers declared={(spec.remote_syslog ?? {}) as never} state={(status.remote_syslog ?? {}) as never} />}
      {plural === 'subnets' && <Addresses subnet={metadata.name} cidr={String(spec.cidr)} />}
      <div className={css.columns}>
        <section className={css.part} aria-labelledby="spec">
          <h2 id="spec">Declared</h2>
          {declared.length === 0 && <p className="muted">Nothing beyond its name.</p>}
          <dl className={parts.facts}>
            {declared.map(([name, value]) => (
              <div key={name} style={{ display: 'contents' }}>
                <dt>{named('spec', name)}</dt>
                <dd>
                  <Reference kind={field(name)?.refersTo} value={value} named={field(name)?.isMap} />
                </dd>
              </div>
            ))}
          </dl>
        </section>
        <section className={css.part} aria-labelledby="status">
          <h2 id="status">How it is</h2>
          {told.length > 0 && (
            <dl className={parts.facts}>
              {told.map(([name, value]) => (
                <div key={name} style={{ display: 'contents' }}>
                  <dt>{named('status', name)}</dt>
                  <dd>
                    <Value of={value as Json} />
                  </dd>
                </div>
              ))}
            </dl>
          )}
          <Facts
            of={[
              ['Labels', Object.keys(metadata.labels ?? {}).length > 0 && <Chips of={Object.entries(metadata.labels ?? {}).map((pair) => pair.join('='))} />],
              ['Declared', <><Time at={metadata.created_at} />{metadata.manager && <> by {metadata.manager}</>}</>],
              ['Changed', <><Time at={metadata.updated_at} /> <span className="muted">· generation {metadata.generation}</span></>],
              ['Uid', <Copy key="uid" text={metadata.uid} />],
            ]}
          />
        </section>
      </div>
      <Conditions of={status.conditions ?? []} />
    </>
  );
}

function NextSteps({ plural, kind, name }: { plural: string; kind: string; name: string }) {
  const { data: plan, error } = useObject<Schemas['PlanReport']>(kind, plural, name, 'plan');
  return (
    <section className={css.part} aria-labelledby="next">
      <h2 id="next">Next steps</h2>
      {error ? <Failure error={error} /> : plan ? <Steps steps={plan.steps} none={plain(plan.summary)} /> : <Loading inside />}
    </section>
  );
}

function spacedField(name: string, says: string | undefined) {
  return <span title={says}>{spaced(name)}</span>;
}

function isEmpty(value: Json | undefined): boolean {
  return value === undefined || value === null || (typeof value === 'object' && Object.keys(value).length === 0);
}

/** The name of another object leads to it. */
function Reference({ kind, value, named }: { kind: string | undefined; value: Json | undefined; named?: boolean }) {
  const place = kind ? placeOfKind(kind) : undefined;
  if (place && typeof value === 'string') return <Link to={pageOf(place.plural, value)}>{value}</Link>;
  if (place && Array.isArray(value)) {
    return (
      <>
        {value.map((name) => (
          <span key={String(name)}>
            <Link to={pageOf(place.plural, String(name))}>{String(name)}</Link>{' '}
          </span>
        ))}
      </>
    );
  }
  return <Value of={value} named={named} />;
}
