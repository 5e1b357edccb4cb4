// Uploads of files. `fetch` does not tell how much was sent, so these are requests of the older kind.
import { Refused, path, tellEnded } from './client';

export interface Progress {
  sent: number;
  size: number;
}

/** Sends a file under its hash. The region compares the hash, and refuses another file. */
export function upload(sha256: string, file: Blob, tell: (progress: Progress) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open('PUT', path('blobs', sha256));
    request.setRequestHeader('content-type', 'application/octet-stream');
    request.responseType = 'json';
    request.upload.onprogress = ({ loaded }) => tell({ sent: loaded, size: file.size });
    request.onerror = () => reject(new Refused({ detail: `the region did not take ${sha256.slice(0, 12)}…; check the network, and that it runs` }));
    request.onload = () => {
      if (request.status < 300) return resolve();
      if (request.status === 401) tellEnded();
      reject(new Refused({ ...(request.response as object | null), status: request.status, title: `HTTP ${request.status}` }));
    };
    request.send(file);
  });
}
