import { useInfiniteQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useMemo, useState } from 'react';
import { type Schemas, ask, path } from '../../api/client';
import { isAdmin } from '../../api/session';
import type { BasaltObject } from '../../api/object';
import type { ObjectView } from '../../app/routes';
import { pageOf, placeOfKind } from '../../app/sections';
import { useWho, useWrites } from '../../app/who';
import { Button } from '../../parts/Button';
import { Failure, Loading, Notice } from '../../parts/Notice';
import { Dot } from '../../parts/State';
import { Time } from '../../parts/Time';
import { Plan } from '../../parts/plan/Plan';
import type { Tone } from '../../parts/state';
import css from '../machine/Machine.module.css';
import parts from '../../parts/parts.module.css';

type Delivery = Schemas['DeliveryInfo'];

const TONES: Record<Delivery['state'], Tone> = { pending: 'busy', delivered: 'ok', dead: 'bad' };
const STATES: Record<Delivery['state'], string> = { dead: 'Dead letters', pending: 'Waiting', delivered: 'Delivered' };
/** Deliveries change without a change of their webhook. */
const EVERY = 10_000;
const PAGE = 100;

/** What a dead letter is asked for: the one with this id, or all. */
interface Asked {
  at: 'redeliver' | 'discard';
  body: { id?: string };
}

const ACTIONS: { at: Asked['at']; title: string }[] = [
  { at: 'redeliver', title: 'Send again…' },
  { at: 'discard', title: 'Delete…' },
];

function verbOf({ at, body }: Asked, dead: number): string {
  const count = body.id ? 1 : dead;
  if (at === 'discard') return `Delete ${count === 1 ? '1 dead letter' : `${count} dead letters`}`;
  return `Send ${count === 1 ? '1 delivery' : `${count} deliveries`} again`;
}

/** Deliveries of a webhook, the newest event first; dead letters say why they failed, and can be sent again or deleted. */
export function Deliveries({ webhook: { metadata, status } }: { webhook: BasaltObject }) {
  const { name } = metadata;
  const { state } = useSearch({ strict: false }) as ObjectView;
  const navigate = useNavigate();
  const { off } = useWrites();
  const may = isAdmin(useWho());
  const [asked, setAsked] = useState<Asked>();
  const { data, error, refetch, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery({
    queryKey: ['webhooks', name, 'deliveries', state],
    initialPageParam: '',
    queryFn: ({ pageParam }) =>
      ask<Schemas['DeliveryPage']>(
        `${path('webhooks', name, 'deliveries')}?limit=${PAGE}${state ? `&state=${encodeURIComponent(state)}` : ''}${pageParam ? `&continue=${pageParam}` : ''}`,
      ),
    getNextPageParam: (page) => page.continue,
    refetchInterval: EVERY,
  });
  const dead = Number(status.failed ?? 0);
  const proposal = useMemo(
    () =>
      asked && {
        kind: 'request' as const,
        of: 'Webhook',
        plural: 'webhooks',
        name,
        at: asked.at,
        body: asked.body,
        verb: verbOf(asked, dead),
        hurts: asked.at === 'discard',
      },
    [asked, name, dead],
  );
  const items = data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <>
      <div className={css.row}>
        <select
          aria-label="State"
          value={state ?? ''}
          onChange={({ target }) => void navigate({ to: '.', search: (before: ObjectView) => ({ ...before, state: target.value || undefined }), replace: true } as never)}
        >
          <option value="">All deliveries</option>
          {Object.entries(STATES).map(([key, title]) => (
            <option key={key} value={key}>
              {title}
            </option>
          ))}
        </select>
        {may && (
          <>
            <Button off={off || (dead === 0 && 'there is no dead letter')} onClick={() => setAsked({ at: 'redeliver', body: {} })}>
              Send dead letters again…
            </Button>
            <Button danger off={off || (dead === 0 && 'there is no dead letter')} onClick={() => setAsked({ at: 'discard', body: {} })}>
              Delete dead letters…
            </Button>
          </>
        )}
        <span className="muted">{dead === 0 ? 'No dead letters.' : `${dead} ${dead === 1 ? 'delivery was' : 'deliveries were'} given up.`}</span>
      </div>
      {error && <Failure error={error} again={() => void refetch()} />}
      {!data && !error && <Loading inside />}
      {data && items.length === 0 && (
        <Notice inside title={state ? 'No delivery is in this state.' : 'Nothing was delivered yet.'}>
          <p className="muted">{state ? 'Other states may have some.' : 'The next event that the webhook asks for is delivered at once, and stands here.'}</p>
        </Notice>
      )}
      {items.length > 0 && (
        <div className={parts.scroll} role="region" aria-label="Deliveries" tabIndex={0}>
          <table className={parts.grid}>
            <thead>
              <tr>
                <th>happened</th>
                <th>event</th>
                <th>object</th>
                <th>delivery</th>
                <th>attempts</th>
                {may && (
                  <th>
                    <span className="unseen">action</span>
                  </th>
                )}
              </tr>
            </thead>
            <tbody>
              {items.map((it) => (
                <tr key={it.id}>
                  <td className={css.when}>
                    <Time at={it.at} />
                  </td>
                  <td>{it.event}</td>
                  <td>
                    <span className="muted">{it.kind}</span> <Name of={it} />
                  </td>
                  <td>
                    <Dot tone={TONES[it.state]} /> {it.state} <Became of={it} />
                    {it.error && <p className={it.state === 'dead' ? parts.bad : 'muted'}>{it.error}</p>}
                  </td>
                  <td className="muted">{it.attempts}</td>
                  {may && (
                    <td>
                      {it.state === 'dead' && (
                        <span className={css.row}>
                          {ACTIONS.map(({ at, title }) => (
                            <Button key={at} danger={at === 'discard'} off={off} onClick={() => setAsked({ at, body: { id: it.id } })}>
                              {title}
                              <span className="unseen">
                                {it.kind} {it.name}
                              </span>
                            </Button>
                          ))}
                        </span>
                      )}
                    </td>
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {hasNextPage && (
        <Button onClick={() => void fetchNextPage()} off={isFetchingNextPage && 'it is being read'}>
          Earlier
        </Button>
      )}
      {proposal && <Plan proposal={proposal} close={() => setAsked(undefined)} />}
    </>
  );
}

/** The time of the end, or of the next attempt. */
function Became({ of: { state, due, ended_at } }: { of: Delivery }) {
  if (state === 'pending') return due ? <span className="muted">· next attempt <Time at={due} /></span> : null;
  return ended_at ? <span className="muted">· <Time at={ended_at} /></span> : null;
}

function Name({ of: { kind, name, event } }: { of: Delivery }) {
  const place = event === 'deleted' ? undefined : placeOfKind(kind);
  return place ? (
    <Link to={pageOf(place.plural, name)} className="mono">
      {name}
    </Link>
  ) : (
    <span className="mono">{name}</span>
  );
}
