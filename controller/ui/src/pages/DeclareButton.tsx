import { Suspense, lazy, useMemo, useState } from 'react';
import { useCommands } from '../app/commands';
import { useWrites } from '../app/who';
import { Button } from '../parts/Button';

const Declare = lazy(async () => ({ default: (await import('./more')).Declare }));

/** Opens a sheet for new objects of a kind. */
export function DeclareButton({ plural, title = 'Declare…', name, spec }: { plural: string; title?: string; name?: string; spec?: unknown }) {
  const { may, off } = useWrites();
  const [open, setOpen] = useState(false);
  useCommands(useMemo(() => (may ? [{ title: `${title.replace('…', '')} (${plural})`, run: () => setOpen(true) }] : []), [may, title, plural]));
  if (!may) return null;
  return (
    <>
      <Button off={off} onClick={() => setOpen(true)}>
        {title}
      </Button>
      {open && (
        <Suspense>
          <Declare plural={plural} name={name} spec={spec} close={() => setOpen(false)} />
        </Suspense>
      )}
    </>
  );
}
