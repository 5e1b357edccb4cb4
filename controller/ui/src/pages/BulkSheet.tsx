import { type ReactNode, useMemo } from 'react';
import { useList } from '../api/live';
import type { Machine } from '../api/object';
import type { Proposal } from '../parts/plan/Plan';
import { FormSheet } from './FormSheet';
import { deploymentOf, namesOf, placedOf, taggedOf, tagsOf, wordsOf } from './bulk';
import css from './objects/Form.module.css';

/** The actions that need words before their plan. */
export type Asking = 'deploy' | 'tag' | 'place';

interface Props {
  asking: Asking;
  machines: readonly Machine[];
  close: () => void;
  propose: (proposal: Proposal) => void;
}

const TITLES: Record<Asking, string> = { deploy: 'Deploy', tag: 'Tag', place: 'Zone or pool of' };

/** The fields of an action on the selected machines. The plan of each machine comes next. */
export function BulkSheet({ asking, machines, close, propose }: Props) {
  const { objects: deployments } = useList('Deployment', 'deployments');
  const submit = (form: FormData) => {
    const made = proposalOf(asking, form, machines, deployments.map(({ metadata }) => metadata.name));
    if (typeof made === 'string') return made;
    propose(made);
  };
  const count = `${machines.length} ${machines.length === 1 ? 'machine' : 'machines'}`;
  return (
    <FormSheet title={`${TITLES[asking]} ${count}`} close={close} submit={submit}>
      {asking === 'deploy' && <DeployFields machines={machines} />}
      {asking === 'tag' && <TagFields machines={machines} />}
      {asking === 'place' && <PlaceFields />}
    </FormSheet>
  );
}

function proposalOf(asking: Asking, form: FormData, selected: readonly Machine[], deployments: string[]): Proposal | string {
  const text = (name: string) => String(form.get(name) ?? '').trim();
  const machines = selected.map(({ metadata }) => metadata.name);
  if (asking === 'deploy') {
    const wish = {
      image: text('image'),
      sshKeys: [...new Set(text('keys').split('\n').map((key) => key.trim()).filter(Boolean))],
      userData: String(form.get('user_data') ?? '').trim(),
      always: text('wipe') === 'always',
    };
    if (!wish.image) return 'there is no image to deploy: declare one first';
    const names = namesOf(machines, deployments);
    return { kind: 'edit', verb: 'Deploy', said: 'given a deployment', creates: true, machines, document: (it) => deploymentOf(it, names.get(it.metadata.name), wish) };
  }
  if (asking === 'tag') {
    const [add, remove] = [wordsOf(text('add')), form.getAll('remove').map(String)];
    if (add.length + remove.length === 0) return 'give a tag to add, or one to take away';
    return { kind: 'edit', verb: 'Tag', said: 'tagged', machines, document: (it) => taggedOf(it, add, remove) };
  }
  const place = { zone: text('zone') || undefined, pool: text('pool') || undefined };
  if (!place.zone && !place.pool) return 'choose a zone or a pool';
  return { kind: 'edit', verb: 'Move', said: 'moved', machines, document: (it) => placedOf(it, place) };
}

function Field({ id, label, says, children }: { id: string; label: string; says?: ReactNode; children: ReactNode }) {
  return (
    <div className={css.field}>
      <label htmlFor={id}>{label}</label>
      {children}
      {says && (
        <p id={`${id}-says`} className={css.says}>
          {says}
        </p>
      )}
    </div>
  );
}

function DeployFields({ machines }: { machines: readonly Machine[] }) {
  const { objects } = useList('Image', 'images');
  const images = objects.filter(({ spec }) => (spec as { purpose?: string }).purpose !== 'ephemeral');
  const held = machines.filter(({ status }) => status.deployment).length;
  return (
    <>
      {held > 0 && (
        <p className="muted">
          {held} of {machines.length} {held === 1 ? 'has' : 'have'} a deployment already, and cannot take another one.
        </p>
      )}
      <Field id="bulk-image" label="Image">
        <select id="bulk-image" name="image" data-first>
          {images.map(({ metadata: { name } }) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </Field>
      <Field id="bulk-keys" label="SSH keys" says="Public keys for the default account of the image, one a line.">
        <textarea id="bulk-keys" name="keys" aria-describedby="bulk-keys-says" />
      </Field>
      <Field id="bulk-user-data" label="User data" says="For cloud-init: #cloud-config, or a script.">
        <textarea id="bulk-user-data" name="user_data" aria-describedby="bulk-user-data-says" />
      </Field>
      <Field id="bulk-wipe" label="Disks">
        <select id="bulk-wipe" name="wipe">
          <option value="if_ours">Only disks that are empty, or that Basalt wrote</option>
          <option value="always">Disks with any content: it is destroyed</option>
        </select>
      </Field>
      <p className="muted">Each machine gets a deployment with the name of the machine.</p>
    </>
  );
}

function TagFields({ machines }: { machines: readonly Machine[] }) {
  const { objects: declared } = useList('Tag', 'tags');
  const own = useMemo(() => tagsOf(machines), [machines]);
  return (
    <>
      <Field id="bulk-add" label="Add" says="Tags, with spaces between them.">
        <input id="bulk-add" name="add" list="bulk-tags" data-first autoComplete="off" spellCheck={false} aria-describedby="bulk-add-says" />
        <datalist id="bulk-tags">
          {declared.map(({ metadata: { name } }) => (
            <option key={name}>{name}</option>
          ))}
        </datalist>
      </Field>
      {own.length > 0 && (
        <fieldset className={css.group}>
          <legend>Remove</legend>
          {own.map(([tag, count]) => (
            <label key={tag}>
              <input type="checkbox" name="remove" value={tag} /> <span className="mono">{tag}</span>{' '}
              <span className="muted">
                of {count} {count === 1 ? 'machine' : 'machines'}
              </span>
            </label>
          ))}
        </fieldset>
      )}
      <p className="muted">Tags by an expression, and those of other tools, stay: change them where they come from.</p>
    </>
  );
}

function PlaceFields() {
  const { objects: zones } = useList('Zone', 'zones');
  const { objects: pools } = useList('Pool', 'pools');
  const place = (id: string, name: string, label: string, all: string[], first?: boolean) => (
    <Field id={id} label={label}>
      <select id={id} name={name} data-first={first}>
        <option value="">As it is</option>
        {all.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </Field>
  );
  const names = (of: typeof zones) => of.map(({ metadata }) => metadata.name).sort();
  return (
    <>
      {place('bulk-zone', 'zone', 'Zone', names(zones), true)}
      {place('bulk-pool', 'pool', 'Pool', names(pools))}
    </>
  );
}
