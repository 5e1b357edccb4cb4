import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { type Progress, upload } from '../../api/blob';
import type { Schemas } from '../../api/client';
import type { BasaltObject } from '../../api/object';
import { useWrites } from '../../app/who';
import { Copy } from '../../parts/Facts';
import { Grid } from '../../parts/Grid';
import { Failure } from '../../parts/Notice';
import { Dot } from '../../parts/State';
import { bytes } from '../../parts/size';
import css from '../machine/Machine.module.css';

/** Files of an image, by role: which are there, and an upload for those that are missing. */
export function ImageFiles({ image: { metadata, spec, status } }: { image: BasaltObject }) {
  const files = Object.entries((spec.files ?? {}) as unknown as Record<string, Schemas['ImageFile']>);
  const missing = Array.isArray(status.missing) ? status.missing.map(String) : [];
  const isKnown = status.observed_generation === metadata.generation;
  if (files.length === 0) return null;
  const count = files.filter(([role]) => missing.includes(role)).length;
  return (
    <section className={css.part} aria-labelledby="files">
      <h2 id="files">Files</h2>
      <p className="muted" role="status">
        {!isKnown ? 'The region looks for its files.' : count === 0 ? 'All files are there.' : `${count === 1 ? '1 file is' : `${count} files are`} missing: no machine can be installed with this image.`}
      </p>
      <Grid label="Files of the image" heads={['role', 'state', 'size', 'SHA-256']}>
        {files.map(([role, file]) => (
          <tr key={role}>
            <td className="mono">{role}</td>
            <td>
              {!isKnown ? (
                <span className="muted">unknown</span>
              ) : missing.includes(role) ? (
                <Missing image={metadata.name} role={role} sha256={file.sha256} />
              ) : (
                <>
                  <Dot tone="ok" /> there
                </>
              )}
            </td>
            <td className="muted">{file.size ? bytes(file.size) : ''}</td>
            <td>
              <Copy text={file.sha256} />
            </td>
          </tr>
        ))}
      </Grid>
      {count > 0 && (
        <p className="muted">
          Or at a shell: <code>basalt image push DIRECTORY</code>
        </p>
      )}
    </section>
  );
}

function Missing({ image, role, sha256 }: { image: string; role: string; sha256: string }) {
  const queries = useQueryClient();
  const { may, off } = useWrites();
  const [progress, setProgress] = useState<Progress>();
  const [error, setError] = useState<unknown>();
  const send = async (file: File) => {
    setError(undefined);
    setProgress({ sent: 0, size: file.size });
    try {
      await upload(sha256, file, setProgress);
      await queries.invalidateQueries({ queryKey: ['images', image] });
    } catch (error) {
      setError(error);
    } finally {
      setProgress(undefined);
    }
  };
  return (
    <>
      <Dot tone="wait" /> missing{' '}
      {may && !progress && (
        <input
          type="file"
          aria-label={`Upload ${role}`}
          disabled={Boolean(off)}
          onChange={({ target }) => {
            const [file] = target.files ?? [];
            if (file) void send(file);
          }}
        />
      )}
      {progress && (
        <>
          <progress aria-label={`Upload of ${role}`} max={progress.size} value={progress.sent} /> {bytes(progress.sent)} of {bytes(progress.size)}
        </>
      )}
      {error !== undefined && <Failure error={error} />}
    </>
  );
}
