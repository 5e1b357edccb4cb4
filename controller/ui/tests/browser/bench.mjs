// Times of the list of machines in a browser, as JSON in milliseconds: medians of several runs, each with an empty cache.
// Also the bytes on the network until the first rows, and the page's heap before and after CHANGES changes of machines.
//   REGION_URL: the region. PASSWORD: that of the user eve. TOKEN: an admin's. MACHINES: how many there are. CHROMIUM: the browser.
import { browser, login, person } from './page.mjs';
import { api } from './region.mjs';

const { REGION_URL: url, PASSWORD, TOKEN, MACHINES } = process.env;
/** An hour of a busy fleet: 1,000 changes a minute. */
const CHANGES = Number(process.env.CHANGES ?? 60_000);
/** Documents of one apply. */
const DOCUMENTS = 1_000;
const RUNS = 5;
const FILTERS = ['machine-7777', 'zone:row-3', 'label-row:row-7', '10.0.15', 'zone:row-1 status:ready machine-9'];

const median = (times) => times.sort((a, b) => a - b)[times.length >> 1];

/** Milliseconds from the start of the navigation to the first rows, and to all of them. */
async function opened(page) {
  await page.goto('/ui/machines');
  return page.evaluate(async (wanted) => {
    const frame = () => new Promise(requestAnimationFrame);
    const drawn = () => document.querySelectorAll('[role=grid] [role=row]').length > 10;
    while (!drawn()) await frame();
    const rows = performance.now();
    const sent = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
    const bytes = sent.reduce((all, { transferSize }) => all + transferSize, 0);
    while (Number(document.querySelector('[role=grid]')?.getAttribute('aria-rowcount')) !== wanted + 1) await frame();
    return { rows, bytes, all: performance.now(), drawn: document.querySelectorAll('[role=grid] [role=row]').length };
  }, Number(MACHINES));
}

/** Milliseconds from the last letter of a filter to the frame that shows its rows. */
async function filtered(page, text) {
  return page.evaluate(async (text) => {
    const input = document.getElementById('filter');
    const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
    const frame = () => new Promise(requestAnimationFrame);
    const count = () => document.querySelector('[role=grid]')?.getAttribute('aria-rowcount');
    const type = (text) => {
      set.call(input, text);
      input.dispatchEvent(new Event('input', { bubbles: true }));
    };
    const before = count();
    const begun = performance.now();
    type(text);
    while (count() === before) await frame();
    const took = performance.now() - begun;
    type('');
    while (count() !== before) await frame();
    return took;
  }, text);
}

/** The heap of an open list in MiB, before and after the changes. */
async function heaps() {
  const { page, context } = await person(chrome, url);
  await login(page, 'eve', PASSWORD);
  await opened(page);
  const devtools = await context.newCDPSession(page);
  const heap = async () => {
    await devtools.send('HeapProfiler.collectGarbage');
    return Math.round((await devtools.send('Runtime.getHeapUsage')).usedSize / 2 ** 20);
  };
  const before = await heap();
  const admin = api(url, TOKEN);
  for (let from = 0; from < CHANGES; from += DOCUMENTS) {
    const document = (_, at) => {
      const name = `machine-${(from + at) % Number(MACHINES)}`;
      return { kind: 'Machine', metadata: { name }, spec: { ...specs.get(name), description: `change ${from + at}` } };
    };
    await admin('POST', 'apply', { documents: Array.from({ length: DOCUMENTS }, document) });
  }
  // The last change is in the list.
  const last = `machine-${(CHANGES - 1) % Number(MACHINES)}`;
  await page.getByRole('combobox', { name: 'Filter' }).fill(`description:"change ${CHANGES - 1}"`);
  await page.getByRole('grid').getByRole('link', { name: last, exact: true }).waitFor();
  await page.getByRole('combobox', { name: 'Filter' }).fill('');
  const after = await heap();
  await context.close();
  return { before, after };
}

/** The specs of all machines: an apply replaces them whole. Secrets are kept by their marks. */
async function specsOf() {
  const admin = api(url, TOKEN);
  const specs = new Map();
  for (let after = ''; after !== undefined; ) {
    const page = await admin('GET', `machines?limit=1000${after && `&continue=${after}`}`);
    for (const { metadata, spec } of page.items) specs.set(metadata.name, spec);
    after = page.continue;
  }
  return specs;
}

const chrome = await browser();
const runs = [];
const filters = [];
for (let run = 0; run < RUNS; run += 1) {
  const { page, context } = await person(chrome, url);
  await login(page, 'eve', PASSWORD);
  const fresh = await context.newPage();
  runs.push(await opened(fresh));
  for (const text of FILTERS) filters.push(await filtered(fresh, text));
  await context.close();
}
const specs = CHANGES > 0 ? await specsOf() : new Map();
const { before, after } = CHANGES > 0 ? await heaps() : {};
await chrome.close();
console.log(
  JSON.stringify({
    rows: median(runs.map(({ rows }) => rows)),
    all: median(runs.map(({ all }) => all)),
    filter: median(filters),
    slowest_filter: Math.max(...filters),
    drawn: Math.max(...runs.map(({ drawn }) => drawn)),
    bytes: median(runs.map(({ bytes }) => bytes)),
    changes: CHANGES,
    heap_before_mib: before,
    heap_after_mib: after,
  }),
);
