import { useInfiniteQuery } from '@tanstack/react-query';
import { Link, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { Refused, type Schemas, ask } from '../api/client';
import { pageOf, placeOfKind } from '../app/sections';
import { Button } from '../parts/Button';
import { Grid } from '../parts/Grid';
import { Failure, Loading, Notice } from '../parts/Notice';
import { Time } from '../parts/Time';
import machine from './machine/Machine.module.css';
import parts from '../parts/parts.module.css';

/** Who changed what, the latest first. */
export function Audit() {
  const [actor, setActor] = useState('');
  const [asked, setAsked] = useState('');
  const { object } = useSearch({ strict: false }) as { object?: string };
  const { data, error, refetch, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery({
    queryKey: ['audit', asked, object],
    initialPageParam: '',
    queryFn: ({ pageParam }) =>
      ask<Schemas['AuditPage']>(
        `/api/v1/audit?limit=100${asked ? `&actor=${encodeURIComponent(asked)}` : ''}${object ? `&object=${encodeURIComponent(object)}` : ''}${pageParam ? `&continue=${encodeURIComponent(pageParam)}` : ''}`,
      ),
    getNextPageParam: (page) => page.continue,
  });
  if (error instanceof Refused && error.status === 403) {
    return (
      <Notice title="The audit log is not yours to see.">
        <p>{error.message}. An admin can give the role: Access, Users.</p>
      </Notice>
    );
  }
  return (
    <div className={machine.body}>
      <h1 className="unseen">Audit</h1>
      <form
        className={machine.row}
        onSubmit={(event) => {
          event.preventDefault();
          setAsked(actor.trim());
        }}
      >
        <input aria-label="Actor" placeholder="user ann" value={actor} onChange={({ target }) => setActor(target.value)} />
        <button type="submit" className={parts.button}>
          Show
        </button>
        <span className="muted">of an actor: user NAME, token NAME</span>
        {object && (
          <span>
            Only of <span className="mono">{object}</span>. <Link to="/audit">Show all</Link>
          </span>
        )}
      </form>
      {error && <Failure error={error} again={() => void refetch()} />}
      {!data && !error && <Loading />}
      {data && (
        <Grid label="Audit log" heads={['when', 'who', 'request', 'object', 'from']}>
          {data.pages
            .flatMap((page) => page.items)
            .map((entry, place) => (
              <tr key={`${entry.at} ${entry.kind} ${entry.name} ${place}`}>
                <td className={machine.when}>
                  <Time at={entry.at} />
                </td>
                <td>{entry.actor}</td>
                <td className="mono muted">{entry.request}</td>
                <td>
                  <span className="muted">{entry.kind}</span> <Name kind={entry.kind} name={entry.name} />
                </td>
                <td className="mono muted">{entry.address}</td>
              </tr>
            ))}
        </Grid>
      )}
      {hasNextPage && (
        <Button onClick={() => void fetchNextPage()} off={isFetchingNextPage && 'it is being read'}>
          Earlier
        </Button>
      )}
    </div>
  );
}

function Name({ kind, name }: { kind: string; name: string }) {
  const place = placeOfKind(kind);
  return place ? (
    <Link to={pageOf(place.plural, name)} className="mono">
      {name}
    </Link>
  ) : (
    <span className="mono">{name}</span>
  );
}
