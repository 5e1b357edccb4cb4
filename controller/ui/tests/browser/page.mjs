// A browser, and what every page of the console has to keep.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { chromium } from 'playwright-core';

const AXE = readFileSync(new URL('../../node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

export async function browser() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    // It is root in containers, where it has no sandbox.
    args: ['--no-sandbox', '--disable-dev-shm-usage'],
  });
}

/** Somebody's browser: own cookies, own storage. Whatever a page complains of fails the test that asks for `complaints`. */
export async function person(chrome, url, options = {}) {
  const context = await chrome.newContext({ baseURL: url, viewport: { width: 1440, height: 900 }, reducedMotion: 'reduce', ...options });
  context.setDefaultTimeout(15_000);
  const complaints = [];
  context.on('page', (page) => {
    page.on('pageerror', (error) => complaints.push(`error: ${error.message}`));
    page.on('console', (message) => {
      const text = message.text();
      // What is refused or away is shown on the page; a browser says so too.
      if (message.type() === 'error' && !/^Failed to load resource/.test(text)) complaints.push(text);
    });
    // The policy's own event, of which the console says nothing where a report is off.
    page.addInitScript(() => document.addEventListener('securitypolicyviolation', (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`)));
  });
  return { context, page: await context.newPage(), complaints };
}

export async function login(page, user, password) {
  await page.goto('/');
  await page.getByLabel('User').fill(user);
  await page.getByLabel('Password').fill(password);
  await page.getByRole('button', { name: 'Log in', exact: true }).click();
  await page.getByRole('navigation', { name: 'Sections' }).waitFor();
}

/** The rules of axe whose answers depend on colours. */
const OF_COLOURS = ['color-contrast', 'link-in-text-block'];

/** No violation of what axe knows of WCAG 2.2 AA, in both themes. The themes differ in their colours alone. */
export async function accessible(page, what) {
  for (const theme of ['light', 'dark']) {
    await page.evaluate((theme) => {
      document.documentElement.dataset.theme = theme;
    }, theme);
    await page.evaluate((source) => {
      if (!window.axe) (0, eval)(source);
    }, AXE).catch(async () => page.evaluate(AXE));
    const found = await page.evaluate(async (runOnly) => {
      const { violations } = await window.axe.run(document, { resultTypes: ['violations'], ...(runOnly && { runOnly }) });
      return violations.map(({ id, help, nodes }) => `${id}: ${help}\n    ${nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${node.any[0]?.message ?? ''}`).join('\n    ')}`);
    }, theme === 'dark' ? OF_COLOURS : undefined);
    assert.deepEqual(found, [], `${what}, ${theme}`);
  }
}

/** The text of an element, once it holds something. */
export async function says(locator, wanted) {
  await locator.filter({ hasText: wanted }).first().waitFor();
}

/** Pictures of a page in both themes, where SCREENSHOTS names a folder for them. */
export async function picture(page, name) {
  const { SCREENSHOTS } = process.env;
  if (!SCREENSHOTS) return;
  for (const theme of ['light', 'dark']) {
    await page.evaluate((theme) => {
      document.documentElement.dataset.theme = theme;
    }, theme);
    await page.screenshot({ path: `${SCREENSHOTS}/${name}-${theme}.png` });
  }
}
