// Times of the list of machines in a browser, as JSON in milliseconds: medians of several runs, each with an empty cache.
// Then the bytes until the first rows, without a cache, and the memory of a page before and after a busy time.
//   REGION_URL: the region. PASSWORD: that of the user eve. MACHINES: how many there are. CHROMIUM: the browser.
//   BUSY_SECONDS: how long the fleet is busy: between the printed lines `busy` and `calm`.
import { browser, login, person } from './page.mjs';

const { REGION_URL: url, PASSWORD, MACHINES, BUSY_SECONDS } = process.env;
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
    while (Number(document.querySelector('[role=grid]')?.getAttribute('aria-rowcount')) !== wanted + 1) await frame();
    return { rows, all: performance.now(), drawn: document.querySelectorAll('[role=grid] [role=row]').length };
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

/** Bytes that have come over the network for a page without a cache, when it shows its first rows. */
async function bytesToRows(context) {
  const page = await context.newPage();
  const devtools = await context.newCDPSession(page);
  let bytes = 0;
  devtools.on('Network.loadingFinished', ({ encodedDataLength }) => (bytes += encodedDataLength));
  await devtools.send('Network.enable');
  await devtools.send('Network.setCacheDisabled', { cacheDisabled: true });
  await page.goto('/ui/machines');
  await page.locator('[role=grid] [role=row]').nth(10).waitFor();
  const until = bytes;
  await page.close();
  return until;
}

/** The memory of a page's objects in bytes, without garbage. */
async function memory(devtools) {
  await devtools.send('HeapProfiler.collectGarbage');
  return (await devtools.send('Runtime.getHeapUsage')).usedSize;
}

/** The memory of a page with all machines, before and after the busy time, and how many changes its list has shown. */
async function busy(context) {
  const page = await context.newPage();
  await opened(page);
  const devtools = await context.newCDPSession(page);
  const before = await memory(devtools);
  console.log('busy');
  await new Promise((resolve) => setTimeout(resolve, Number(BUSY_SECONDS) * 1000));
  console.log('calm');
  const after = await memory(devtools);
  const changed = await page.evaluate(async () => {
    const input = document.getElementById('filter');
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(input, 'busy');
    input.dispatchEvent(new Event('input', { bubbles: true }));
    await new Promise((resolve) => setTimeout(resolve, 2000));
    return Number(document.querySelector('[role=grid]')?.getAttribute('aria-rowcount') ?? 1) - 1;
  });
  return { before, after, changed };
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
const { page, context } = await person(chrome, url);
await login(page, 'eve', PASSWORD);
await page.close();
const bytes = await bytesToRows(context);
const { before, after, changed } = await busy(context);
await chrome.close();
console.log(
  JSON.stringify({
    rows: median(runs.map(({ rows }) => rows)),
    all: median(runs.map(({ all }) => all)),
    filter: median(filters),
    slowest_filter: Math.max(...filters),
    bytes,
    memory: before,
    memory_after: after,
    changed_machines: changed,
    drawn: Math.max(...runs.map(({ drawn }) => drawn)),
  }),
);
