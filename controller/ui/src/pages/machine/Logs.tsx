import { useNavigate, useSearch } from '@tanstack/react-router';
import { useVirtualizer } from '@tanstack/react-virtual';
import { type KeyboardEvent, useEffect, useLayoutEffect, useRef, useState } from 'react';
import { type Schemas, path } from '../../api/client';
import type { LogLine } from '../../api/log';
import { useRead } from '../../api/objects';
import type { LogView } from '../../app/routes';
import { Button } from '../../parts/Button';
import { Copy, CopyButton, Facts } from '../../parts/Facts';
import { Failure, Loading, Notice } from '../../parts/Notice';
import { Time } from '../../parts/Time';
import { absolute } from '../../parts/time';
import { useMachine } from './Machine';
import { SPANS, bootOf, goesOn, inOneRow, programOf, textOf, timeOf, toneOf } from './log';
import { useLog } from './tail';
import css from './Logs.module.css';
import parts from '../../parts/parts.module.css';

/** After so long without a letter the text counts. */
const PAUSE = 300;
const ROW = 20;
/** Columns before the text, and the room around them. */
const BEFORE = 152 + 60 + 160 + 3 * 12 + 2 * 12;
/** Letters of a text that a row shows. */
const LONGEST = 400;

export function Logs() {
  const { name } = useMachine().metadata;
  const view: LogView = useSearch({ strict: false });
  const navigate = useNavigate();
  const [follows, setFollows] = useState(true);
  const change = (more: LogView) => void navigate({ to: '.', search: (before: LogView) => ({ ...before, ...more }), replace: true } as never);
  const log = useLog(name, view, follows && goesOn(view));
  return (
    <div className={css.log}>
      <div className={css.bar}>
        <Part machine={name} view={view} change={change} />
        <Text key={view.grep ?? ''} text={view.grep ?? ''} change={(grep) => change({ grep: grep || undefined })} />
        <label title={goesOn(view) ? 'New lines show up as they come' : 'This boot is over'}>
          <input type="checkbox" checked={follows && goesOn(view)} disabled={!goesOn(view)} onChange={() => setFollows(!follows)} />
          Follow
        </label>
        <span className={css.end}>
          <CopyButton text={() => whole(log.lines)} off={log.lines.length === 0 && 'there is no line'} />
          <Button off={log.lines.length === 0 && 'there is no line'} onClick={() => download(name, log.lines)}>
            Download
          </Button>
        </span>
      </div>
      {log.error !== undefined && <Failure error={log.error} again={log.again} />}
      {log.away && <p className="muted" role="status">The region does not answer; new lines come when it does.</p>}
      {log.lines.length === 0 && log.error === undefined && (log.isRead ? <Nothing view={view} change={change} /> : <Loading inside />)}
      {log.lines.length > 0 && <Lines lines={log.lines} earlier={log.earlier} />}
    </div>
  );
}

/** A choice of times and boots. */
function Part({ machine, view, change }: { machine: string; view: LogView; change: (view: LogView) => void }) {
  const { data } = useRead<Schemas['Boots']>(path('boots', machine));
  const known = data?.boots ?? [];
  const boot = bootOf(view);
  const time = timeOf(view);
  return (
    <select aria-label="Lines" value={view.of ?? ''} onChange={({ target }) => change({ of: target.value || undefined })}>
      <option value="">The latest</option>
      {time !== undefined && <option value={view.of}>Around {absolute(time)}</option>}
      {SPANS.map(({ of, title }) => (
        <option key={of} value={of}>
          {title}
        </option>
      ))}
      {known.map(({ began }, number) => (
        <option key={began + number} value={`boot-${number}`}>
          {number === 0 ? `The last boot, ${absolute(began)}` : `The boot of ${absolute(began)}`}
        </option>
      ))}
      {boot !== undefined && boot >= known.length && <option value={view.of}>Boot {boot}</option>}
    </select>
  );
}

function Text({ text, change }: { text: string; change: (text: string) => void }) {
  const [typed, setTyped] = useState(text);
  useEffect(() => {
    if (typed.trim() === text) return;
    const timer = setTimeout(() => change(typed.trim()), PAUSE);
    return () => clearTimeout(timer);
  }, [typed, text, change]);
  return (
    <input
      type="search"
      autoFocus={text !== ''}
      aria-label="Only lines with"
      placeholder="text, program or host"
      value={typed}
      spellCheck={false}
      onChange={({ target }) => setTyped(target.value)}
    />
  );
}

function Nothing({ view, change }: { view: LogView; change: (view: LogView) => void }) {
  if (view.grep || view.of) {
    return (
      <Notice inside title="No line is like that.">
        <Button onClick={() => change({ of: undefined, grep: undefined })}>Show all lines</Button>
      </Notice>
    );
  }
  return (
    <Notice inside title="It has said nothing yet.">
      <p className="muted">
        Racks take syslog on ports 5247 and 514, from the address that the machine has. <a href="/pages/concepts.logs">Logs</a> shows how rsyslog and a
        kernel send it.
      </p>
    </Notice>
  );
}

const whole = (lines: readonly LogLine[]): string => lines.map((line) => `${textOf(line)}\n`).join('');

function download(machine: string, lines: readonly LogLine[]): void {
  const url = URL.createObjectURL(new Blob([whole(lines)], { type: 'text/plain' }));
  const link = Object.assign(document.createElement('a'), { href: url, download: `${machine}.log` });
  link.click();
  URL.revokeObjectURL(url);
}

/** Rows on the screen alone are in the document. The end stays in view for a reader who is there; others keep their place. */
function Lines({ lines, earlier }: { lines: readonly LogLine[]; earlier?: () => Promise<void> }) {
  const box = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState<LogLine>();
  const [isAtEnd, setAtEnd] = useState(true);
  const [seen, setSeen] = useState(lines.length);
  const [isBusy, setBusy] = useState(false);
  const virtual = useVirtualizer({ count: lines.length, getScrollElement: () => box.current, estimateSize: () => ROW, overscan: 20 });
  const place = at ? lines.indexOf(at) : -1;
  const widest = lines.reduce((most, { text }) => Math.max(most, text.length), 0);
  const first = useRef(lines[0]);

  // Lines that came before the first one move no line that is read.
  useLayoutEffect(() => {
    const before = first.current ? lines.indexOf(first.current) : -1;
    first.current = lines[0];
    if (isAtEnd) {
      virtual.scrollToIndex(lines.length - 1, { align: 'end' });
      setSeen(lines.length);
    } else if (before > 0 && box.current) {
      box.current.scrollTop += before * ROW;
      setSeen((seen) => seen + before);
    }
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [lines]);

  const toEnd = () => {
    setAtEnd(true);
    setSeen(lines.length);
    virtual.scrollToIndex(lines.length - 1, { align: 'end' });
  };
  const go = (next: number) => {
    const bound = Math.max(0, Math.min(lines.length - 1, next));
    setAt(lines[bound]);
    virtual.scrollToIndex(bound);
  };
  const press = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor((box.current?.clientHeight ?? 0) / ROW) - 2);
    const steps: Record<string, number> = {
      ArrowDown: place + 1,
      ArrowUp: place < 0 ? lines.length - 1 : place - 1,
      Home: 0,
      End: lines.length - 1,
      PageDown: place + page,
      PageUp: place - page,
    };
    const step = steps[event.key];
    if (step !== undefined) go(step);
    else if (event.key === 'Escape' && at) setAt(undefined);
    else return;
    event.preventDefault();
  };
  const back = async () => {
    setBusy(true);
    await earlier?.().finally(() => setBusy(false));
  };
  const fresh = lines.length - seen;
  return (
    <>
      <p className="muted" role="status">
        {lines.length} {lines.length === 1 ? 'line' : 'lines'}, from {absolute(lines[0]?.at ?? '')} on{' '}
        {earlier && (
          <Button off={isBusy && 'they are being read'} onClick={() => void back()}>
            Earlier
          </Button>
        )}
      </p>
      <div className={css.frame}>
        <div
          ref={box}
          className={css.box}
          role="grid"
          aria-label="Log"
          aria-rowcount={lines.length}
          aria-activedescendant={place >= 0 ? `line-${place}` : undefined}
          tabIndex={0}
          onKeyDown={press}
          onScroll={({ currentTarget: it }) => {
            const ended = it.scrollTop + it.clientHeight >= it.scrollHeight - ROW;
            setAtEnd(ended);
            if (ended) setSeen(lines.length);
          }}
        >
          <div role="rowgroup" className={css.rows} style={{ height: virtual.getTotalSize(), minWidth: `calc(${BEFORE}px + ${Math.min(widest, LONGEST)}ch)` }}>
            {virtual.getVirtualItems().map(({ index, start }) => {
              const line = lines[index];
              if (!line) return null;
              return (
                <div
                  key={index}
                  id={`line-${index}`}
                  role="row"
                  aria-rowindex={index + 1}
                  aria-selected={line === at}
                  className={`${css.row} ${line === at ? css.at : ''}`}
                  style={{ transform: `translateY(${start}px)` }}
                  onClick={() => setAt(line === at ? undefined : line)}
                >
                  <span role="gridcell" className="muted">
                    {absolute(line.at)}
                  </span>
                  <span role="gridcell" className={parts[toneOf(line)]}>
                    {line.severity}
                  </span>
                  <span role="gridcell" className="muted">
                    {programOf(line)}
                  </span>
                  <span role="gridcell">{inOneRow(line.text)}</span>
                </div>
              );
            })}
          </div>
        </div>
        {!isAtEnd && (
          <span className={css.fresh}>
            <Button onClick={toEnd}>{fresh > 0 ? `${fresh} new ${fresh === 1 ? 'line' : 'lines'} ↓` : 'To the end ↓'}</Button>
          </span>
        )}
      </div>
      {at && <Line of={at} />}
    </>
  );
}

/** All that is known of a line. */
function Line({ of }: { of: LogLine }) {
  return (
    <section className={css.line} aria-label="Line">
      <pre className={parts.code}>{of.text}</pre>
      <Facts
        of={[
          ['Heard', <Time key="at" at={of.at} />],
          ['Its own time', of.time],
          ['Program', programOf(of)],
          ['Facility', `${of.facility}.${of.severity}`],
          ['Host', of.host],
          ['Sender', of.address && <Copy text={of.address} />],
          ['Message id', of.msgid],
          ['Data', of.structured],
          ['Copy', <Copy key="copy" text={textOf(of)} shown="the line" />],
        ]}
      />
    </section>
  );
}
