import { useNavigate } from '@tanstack/react-router';
import { useMemo, useState } from 'react';
import { useList } from '../api/live';
import { Sheet } from '../parts/Sheet';
import { stateOf } from '../parts/state';
import { type Command, useAdded } from './commands';
import { PLACES, pageOf } from './sections';
import css from './Palette.module.css';

const MOST = 40;

/** Everything by its name: pages, machines, and what the page that is shown can do. */
export function Palette({ close, more }: { close: () => void; more: readonly Command[] }) {
  const navigate = useNavigate();
  const added = useAdded();
  const { objects } = useList('Machine', 'machines');
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const commands = useMemo(() => {
    const go = (to: string) => () => void navigate({ to });
    const pages: Command[] = [
      ...PLACES.map(({ title, plural }) => ({ title: `Go to ${title}`, run: go(`/${plural}`) })),
      { title: 'Go to Events', run: go('/events') },
      { title: 'Go to Audit', run: go('/audit') },
      { title: 'Why does it not boot?', says: 'by any MAC', run: go('/boots') },
    ];
    return [...added, ...pages, ...more];
  }, [added, more, navigate]);
  const holds = (title: string) => words.every((word) => title.toLowerCase().includes(word));
  const machines: Command[] = words.length
    ? objects
        .filter(({ metadata, spec }) => holds(`${metadata.name} ${JSON.stringify(spec.boot_macs ?? [])} ${metadata.uid}`))
        .slice(0, MOST)
        .map((machine) => ({
          title: machine.metadata.name,
          says: `machine · ${stateOf(machine).word}`,
          run: () => void navigate({ to: pageOf('machines', machine.metadata.name) }),
        }))
    : [];
  const shown = [...commands.filter(({ title }) => holds(title)), ...machines].slice(0, MOST);
  const place = Math.min(at, shown.length - 1);
  const run = (command: Command | undefined) => {
    if (!command) return;
    close();
    command.run();
  };
  return (
    <Sheet middle title="Commands" close={close}>
      <input
        type="text"
        role="combobox"
        aria-label="Command, page or machine"
        aria-expanded="true"
        aria-controls="commands"
        aria-activedescendant={shown.length ? `command-${place}` : undefined}
        placeholder="A command, a page, a machine, a MAC"
        data-first
        autoComplete="off"
        spellCheck={false}
        value={text}
        onChange={({ target }) => {
          setText(target.value);
          setAt(0);
        }}
        onKeyDown={(event) => {
          const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
          if (step && shown.length) setAt((place + step + shown.length) % shown.length);
          else if (event.key === 'Enter') run(shown[place]);
          else return;
          event.preventDefault();
          document.getElementById(`command-${(place + step + shown.length) % shown.length}`)?.scrollIntoView({ block: 'nearest' });
        }}
      />
      <ul id="commands" role="listbox" aria-label="Commands" tabIndex={-1} className={css.list}>
        {shown.map((command, index) => (
          <li
            key={`${command.title} ${command.says ?? ''}`}
            id={`command-${index}`}
            role="option"
            aria-selected={index === place}
            className={index === place ? css.at : undefined}
            onClick={() => run(command)}
          >
            <span>{command.title}</span>
            <span className="muted">{command.says}</span>
          </li>
        ))}
      </ul>
      {shown.length === 0 && <p className="muted">Nothing has this in its name.</p>}
    </Sheet>
  );
}
