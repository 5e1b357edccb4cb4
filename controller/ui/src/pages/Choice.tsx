import { Menu, menu } from '../parts/Menu';

interface Props {
  title: string;
  all: { key: string; title: string }[];
  chosen: string[];
  change: (keys: string[]) => void;
}

/** Which of some things are shown. The first one always is. */
export function Choice({ title, all, chosen, change }: Props) {
  return (
    <Menu title={title}>
      {() => (
        <fieldset className={menu()}>
          <legend className="unseen">{title}</legend>
          {all.map(({ key, title }, place) => (
            <label key={key}>
              <input
                type="checkbox"
                disabled={place === 0}
                checked={chosen.includes(key)}
                onChange={() => change(all.map((it) => it.key).filter((it) => (it === key ? !chosen.includes(it) : chosen.includes(it))))}
              />
              {title}
            </label>
          ))}
        </fieldset>
      )}
    </Menu>
  );
}
