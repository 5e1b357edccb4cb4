// Machines in the console, beside a rack and simulated machines: from a stranger on the network to a system that runs.
//   REGION_URL: the region. PASSWORD: that of the user ann. BMC: the management controller of the stranger, as JSON. CHROMIUM: the browser.
// A printed line `stranger says WORDS` has the stranger send the words by syslog; `another machine` declares the machine sim-2.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { accessible, browser, login, person, picture, says } from './page.mjs';

const { REGION_URL: url, PASSWORD, BMC } = process.env;
/** A deployment by simulated firmware takes seconds. */
const LONG = { timeout: 60_000 };
let chrome;

before(async () => {
  chrome = await browser();
});

after(() => chrome?.close());

test('from the first run to the release: a stranger is accepted, deployed while its page is open, read, released and commissioned', async () => {
  const { page: first, context, complaints } = await person(chrome, url);
  await login(first, 'ann', PASSWORD);

  // A region without machines says what is missing, in a tab that stays open.
  await says(first.getByRole('heading'), 'There is no machine yet');
  await says(first.getByRole('status'), '3 of 5 things are there');
  await says(first.locator('main'), 'A machine: 1 was seen on the networks');
  await picture(first, 'first-run');
  await accessible(first, 'the first run');
  const page = await context.newPage();
  await page.goto('/ui/machines');

  await page.getByRole('link', { name: /^Discoveries/ }).click();
  await page.getByRole('link', { name: 'mac-52-54-00-51-00-01' }).click();
  await says(page.locator('main'), 'SIM-0001');
  await picture(page, 'discovery');
  await accessible(page, 'a discovery');
  await page.getByRole('button', { name: 'Accept as machine…' }).click();
  await page.getByRole('button', { name: 'Write YAML' }).click();
  const yaml = page.getByRole('textbox', { name: 'As YAML' });
  const proposal = await yaml.inputValue();
  assert.match(proposal, /name: basalt-sim-0001\n/);
  assert.match(proposal, /52:54:00:51:00:01/);
  // The account of its BMC is all that nobody could find out.
  await yaml.fill(`${proposal.replace(/\n  bmc:\n(    .*\n)*/, '\n').trimEnd()}\n  bmc: ${BMC}\n`);
  await page.getByRole('button', { name: 'Show the plan' }).click();
  const plan = page.getByRole('dialog', { name: 'Plan' });
  await says(plan, 'basalt-sim-0001');
  await plan.getByRole('button', { name: /^Apply/ }).click();
  await plan.waitFor({ state: 'detached' });

  // What was found is its inventory: it needs no boot.
  await page.goto('/ui/machines/basalt-sim-0001');
  await says(page.locator('main header'), 'Ready');
  await says(page.locator('main'), 'SIM-0001');

  // The list has ticked itself meanwhile.
  await says(first.getByRole('heading'), 'The first machine has booted');
  await says(first.getByRole('status'), '5 of 5 things are there');
  await first.getByRole('button', { name: 'Show the list of machines' }).click();
  await first.getByRole('grid').getByRole('link', { name: 'basalt-sim-0001' }).waitFor();

  const other = await context.newPage();
  await other.goto('/ui/deployments');
  await other.getByRole('button', { name: 'Declare…' }).click();
  await other.getByRole('button', { name: 'Write YAML' }).click();
  await other.getByRole('textbox', { name: 'As YAML' }).fill(
    'kind: Deployment\nmetadata:\n  name: web\nspec:\n  machine: basalt-sim-0001\n  image: debian-12\n  readiness:\n    check: cloud_init\n',
  );
  await other.getByRole('button', { name: 'Show the plan' }).click();
  const erases = other.getByRole('dialog', { name: 'Plan' });
  await erases.getByText('Disks are written or erased').waitFor();
  await picture(other, 'plan-deployment');
  await erases.getByRole('button', { name: 'Erase 1 machine' }).click();
  await erases.waitFor({ state: 'detached' });

  // The page that was open all the time tells it.
  const head = page.locator('main header');
  await head.getByText('Deployed', { exact: true }).waitFor(LONG);
  await picture(page, 'machine-deployed');

  await page.getByRole('link', { name: 'Logs' }).click();
  await page.getByLabel('Follow').waitFor();
  for (const words of ['sshd: error: no route', 'kernel: eth0: link is down']) {
    console.log(`stranger says ${words}`);
    await says(page.getByRole('grid', { name: 'Log' }), words.replace(/^\w+: /, ''));
  }
  await picture(page, 'log-live');

  // It is released: its disks are erased. Then it is switched on and off.
  // A browser draws the tab in front alone at full speed.
  await first.bringToFront();
  const bar = first.getByRole('toolbar', { name: 'Selected machines' });
  const ask = async (what, button) => {
    if (!(await bar.isVisible())) await first.getByLabel('Select all that match').check();
    if (what !== 'Release…') await bar.getByRole('button', { name: 'More…' }).click();
    await bar.getByRole('button', { name: what }).click();
    const plan = first.getByRole('dialog', { name: /^Plan: / });
    await plan.getByRole('button', { name: button }).click();
    await plan.waitFor({ state: 'detached' });
  };
  const row = first.getByRole('grid').getByRole('row').nth(1);
  const cell = (text) => row.getByRole('gridcell').getByText(text, { exact: true });
  await ask('Release…', 'Release 1 machine');
  await row.getByText('web', { exact: true }).waitFor({ ...LONG, state: 'detached' });
  await cell('Ready').waitFor(LONG);
  await picture(first, 'released');
  for (const [what, power] of [['Switch on…', 'on'], ['Switch off…', 'off']]) {
    await ask(what, /^Switch/);
    await cell(power).waitFor(LONG);
  }

  // The hardware of two machines is read again, and the list shows when it has been. A browser whose host has no way out of the site
  // says that it is offline, and reads all the same.
  console.log('another machine');
  const ready = first.getByRole('grid').getByRole('row').getByText('Ready', { exact: true });
  await ready.nth(1).waitFor(LONG);
  await page.goto('/ui/machines/basalt-sim-0001/operations');
  for (const tab of [first, page]) await tab.evaluate(() => dispatchEvent(new Event('offline')));
  const operations = page.getByRole('region', { name: 'Operations' });
  await operations.getByRole('row').nth(2).waitFor();
  assert.equal(await operations.getByRole('row', { name: /recommission/ }).count(), 0);
  await ask('Recommission…', 'Recommission 2 machines');
  await operations.getByRole('row', { name: /recommission.*done/ }).waitFor(LONG);
  await ready.nth(1).waitFor(LONG);
  await page.bringToFront();
  await says(page.locator('main header'), 'Ready');
  await picture(page, 'operations');
  await page.goto('/ui/machines/sim-2/operations');
  await operations.getByRole('row', { name: /recommission.*done/ }).waitFor(LONG);

  // The rack has the image that it served, and leases addresses.
  await page.goto('/ui/images/debian-12');
  await page.getByRole('region', { name: 'Racks with the image' }).getByRole('link', { name: 'rack-1' }).click();
  await says(page.getByRole('region', { name: 'Images in the cache' }).getByRole('row', { name: /ephemeral/ }), 'all files');
  await page.getByRole('region', { name: 'Leases' }).getByRole('row', { name: /lab/ }).waitFor();
  await picture(page, 'rack-leases');
  assert.deepEqual(complaints, []);
  await context.close();
});
