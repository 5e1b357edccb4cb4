// Times of the list of machines in a browser, as JSON in milliseconds: medians of several runs, each with an empty cache.
//   REGION_URL: the region. PASSWORD: that of the user eve. MACHINES: how many there are. CHROMIUM: the browser.
import { browser, login, person } from './page.mjs';

const { REGION_URL: url, PASSWORD, MACHINES } = process.env;
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
await chrome.close();
console.log(
  JSON.stringify({
    rows: median(runs.map(({ rows }) => rows)),
    all: median(runs.map(({ all }) => all)),
    filter: median(filters),
    slowest_filter: Math.max(...filters),
    drawn: Math.max(...runs.map(({ drawn }) => drawn)),
  }),
);
