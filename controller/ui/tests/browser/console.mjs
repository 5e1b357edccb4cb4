// The console in a browser, against a real region: what people do all day, from login to logout.
//   BOOTS: a socket that takes entries of boots, one a line, as a rack tells them.
//   REGION_URL, REGION, REGION_ARGS: see region.mjs. TOKEN: an admin's. CHROMIUM: the browser. SCREENSHOTS: a folder for pictures of each page.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { accessible, browser, login, person, picture, says } from './page.mjs';
import { Region, api } from './region.mjs';

const { REGION_URL: url, TOKEN } = process.env;
const PASSWORD = 'correct horse battery';
const region = new Region(process.env);
const admin = api(url, TOKEN);
let chrome;

before(async () => {
  await region.start();
  chrome = await browser();
});

after(async () => {
  await chrome?.close();
  await region.kill();
});

/** A bond of both interfaces below a bridge, and volumes on a mirror of both disks, of a Machine's spec. */
const NETWORK = `  network:
    interfaces:
      enp1s0f0: {addressing: link_up}
      enp1s0f1: {addressing: link_up}
    bonds:
      bond0: {members: [enp1s0f0, enp1s0f1], mode: 802.3ad, addressing: link_up}
    bridges:
      br0: {members: [bond0], addressing: auto, subnet: SUBNET}
  storage:
    layout: custom
    disks:
      first: {id: nvme0n1}
      second: {id: S64HNE0T}
    partitions:
      swap: {disk: second, size: 512GiB}
      a: {disk: first}
      b: {disk: second}
    raids:
      mirror: {level: raid1, members: [a, b]}
    volume_groups:
      data: {members: [mirror]}
    volumes:
      root: {volume_group: data, size: 400GiB}
      srv: {volume_group: data}
    filesystems:
      swap: {device: swap, type: swap}
      root: {device: root, mount: /}
      srv: {device: srv, type: xfs, mount: /srv}
`;

const rows = (page) => page.getByRole('grid').getByRole('row');
const filter = (page) => page.getByRole('combobox', { name: 'Filter' });

test('from login to logout: list, filter, a machine, a plan that is applied', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await page.goto('/ui/machines?q=zone%3Arow-1');
  await page.getByLabel('User').fill('ann');
  await page.getByLabel('Password').fill('wrong horse battery');
  await page.getByRole('button', { name: 'Log in', exact: true }).click();
  await says(page.getByRole('alert'), 'the user or the password is wrong');
  await page.getByLabel('Password').fill(PASSWORD);
  await page.getByRole('button', { name: 'Log in', exact: true }).click();

  // The page that was asked for, with its view.
  await page.getByRole('grid').waitFor();
  assert.equal(await filter(page).inputValue(), 'zone:row-1');
  const [cookie] = await context.cookies();
  assert.deepEqual([cookie.name, cookie.httpOnly, cookie.sameSite], ['basalt-session', true, 'Strict']);

  await filter(page).fill('status:fail');
  await page.getByRole('option', { name: /^failed \d/ }).click();
  await says(page.getByRole('status'), 'of ');
  await page.waitForURL(/q=status/);
  await filter(page).fill('');
  await page.keyboard.type('name:(=web1)');
  await says(page.getByRole('status'), '1 of ');
  await page.keyboard.press('Escape');
  await page.getByRole('grid').focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'web1' }).waitFor();
  assert.match(page.url(), /\/ui\/machines\/web1$/);

  await page.getByRole('link', { name: 'Configuration' }).click();
  await page.getByRole('button', { name: 'Show as HCL' }).click();
  await says(page.locator('pre'), 'resource "basalt_machine" "web1" {');
  await says(page.locator('pre'), 'password_wo_version = 1');
  await picture(page, 'hcl');
  await accessible(page, 'HCL');
  await page.getByRole('button', { name: 'Edit as YAML' }).click();
  const yaml = page.getByRole('textbox', { name: 'As YAML' });
  await yaml.fill((await yaml.inputValue()).replace('description: first', 'description: by the door'));
  await page.getByRole('button', { name: 'Show the plan' }).click();
  const plan = page.getByRole('dialog', { name: 'Plan' });
  await says(plan.getByRole('row'), '/description');
  await picture(page, 'plan');
  await accessible(page, 'a plan');
  assert.equal((await admin('GET', 'machines/web1')).spec.description, 'first', 'nothing changes before the plan is applied');

  // Somebody else is faster: the plan is computed again, and says so.
  await admin('PATCH', 'machines/web1', { description: 'second' });
  await plan.getByRole('button', { name: 'Apply 1 change' }).click();
  await says(plan, 'Things have changed since the plan was made');
  await says(plan.getByRole('row'), 'second');
  await plan.getByRole('button', { name: 'Apply 1 change' }).click();
  await plan.waitFor({ state: 'detached' });
  await says(page.locator('pre'), 'by the door');
  assert.equal((await admin('GET', 'machines/web1')).spec.description, 'by the door');

  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('User').waitFor();
  assert.equal((await page.request.get('/api/v1/whoami')).status(), 401);
  assert.deepEqual(complaints, []);
  await context.close();
});

test('a session that ends while somebody types: a login over the page, and the work goes on', async () => {
  const joe = (password) => admin('PUT', 'users/joe', { spec: { password, roles: ['operator'] } });
  await joe(PASSWORD);
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'joe', PASSWORD);
  await page.goto('/ui/zones');
  await page.getByRole('button', { name: 'Declare…' }).click();
  const sheet = page.getByRole('dialog', { name: 'Declare: Zone' });
  await sheet.getByLabel('Name needed').fill('row-9');
  await sheet.getByLabel('Description').fill('by the window');
  // With a new password, all sessions of a user end.
  await joe('another horse battery');
  const again = page.getByRole('dialog', { name: 'The session has ended' });
  await again.waitFor();
  for (let times = 0; times < 2; times += 1) await page.keyboard.press('Escape');
  assert.equal(await again.getByLabel('User').inputValue(), 'joe');
  assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('name')), 'password');
  await picture(page, 'session-ended');
  await accessible(page, 'a session that has ended');
  await again.getByLabel('Password').fill(PASSWORD);
  await again.getByRole('button', { name: 'Log in', exact: true }).click();
  await says(again.getByRole('alert'), 'the user or the password is wrong');
  await again.getByLabel('Password').fill('another horse battery');
  await again.getByRole('button', { name: 'Log in', exact: true }).click();
  await again.waitFor({ state: 'detached' });
  assert.equal(await sheet.getByLabel('Description').inputValue(), 'by the window');
  await sheet.getByRole('button', { name: 'Show the plan' }).click();
  await page.getByRole('dialog', { name: 'Plan' }).getByRole('button', { name: 'Apply 1 change' }).click();
  await says(rows(page), 'row-9');
  // The list is live again.
  await admin('PUT', 'zones/row-10', { spec: {} });
  await says(rows(page), 'row-10');

  // Another user sees nothing of it.
  await page.getByRole('button', { name: 'Declare…' }).click();
  await sheet.getByLabel('Name needed').fill('secret-plans');
  await admin('DELETE', 'users/joe');
  await again.getByLabel('User').fill('eve');
  await again.getByLabel('Password').fill(PASSWORD);
  await again.getByRole('button', { name: 'Log in', exact: true }).click();
  await again.waitFor({ state: 'detached' });
  await says(rows(page), 'row-9');
  assert.equal(await page.getByRole('dialog').count(), 0);
  for (const zone of ['row-9', 'row-10']) await admin('DELETE', `zones/${zone}`);
  assert.deepEqual(complaints, []);
  await context.close();
});

test('a list is live, and stands still when a row changes', async () => {
  const { page, context } = await person(chrome, url);
  await login(page, 'ann', PASSWORD);
  await filter(page).fill('live');
  await says(page.getByText('Nothing matches.'), '');
  await admin('PUT', 'machines/live1', { spec: { zone: 'row-1', boot_macs: ['52:54:00:ff:00:01'], commissioning: { skip: true } } });
  await says(rows(page), 'live1');
  await admin('PATCH', 'machines/live1', { mode: 'broken' });
  await says(rows(page), 'Broken');
  await admin('DELETE', 'machines/live1');
  await says(page.getByText('Nothing matches.'), '');
  await context.close();
});

test('a list has groups, whose rows are walked through as one list', async () => {
  const { page, context } = await person(chrome, url);
  await login(page, 'eve', PASSWORD);
  await page.getByLabel('Groups').selectOption('By zone');
  await page.waitForURL(/group=zone/);
  await says(rows(page), 'row-1 15');
  await page.getByRole('grid').focus();
  await page.keyboard.press('End');
  await says(rows(page), 'row-4 15');
  await picture(page, 'machines-by-zone');
  await accessible(page, 'a grouped list');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'web59' }).waitFor();
  await context.close();
});

test('a region that is killed under an open page: a banner, and then live again', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'ann', PASSWORD);
  await filter(page).fill('name:(=web2)');
  await says(rows(page), 'web2');
  await region.kill();
  await says(page.getByRole('status'), 'Live data stopped at');
  await says(rows(page), 'web2');
  await page.getByRole('link', { name: 'web2' }).waitFor();
  await picture(page, 'region-away');
  await accessible(page, 'a page without its region');
  await region.start();
  await page.getByText('Live data stopped at').waitFor({ state: 'detached' });
  await admin('PATCH', 'machines/web2', { mode: 'broken' });
  await says(rows(page), 'Broken');
  assert.deepEqual(complaints, []);
  await context.close();
});

test('eight tabs are as live as one', async () => {
  const { page, context } = await person(chrome, url);
  await login(page, 'ann', PASSWORD);
  const tabs = [page];
  while (tabs.length < 8) tabs.push(await context.newPage());
  await Promise.all(tabs.map((tab) => tab.goto('/ui/zones')));
  await Promise.all(tabs.map((tab) => says(rows(tab), 'row-1')));
  await admin('PUT', 'zones/everywhere', { spec: {} });
  await Promise.all(tabs.map((tab) => says(rows(tab), 'everywhere')));
  await tabs[0].getByRole('button', { name: 'Log out' }).click();
  await Promise.all(tabs.map((tab) => tab.getByLabel('User').waitFor()));
  await context.close();
});

test('whoever only looks sees no button that changes anything', async () => {
  const { page, context } = await person(chrome, url);
  await login(page, 'eve', PASSWORD);
  await page.getByRole('grid').waitFor();
  assert.equal(await page.getByRole('checkbox').count(), 0);
  await page.goto('/ui/machines/web3');
  await page.getByRole('heading', { name: 'Next steps' }).waitFor();
  for (const name of ['On', 'Off', 'Cycle', 'Recommission', 'Run a script', 'Rescue', 'Abort', 'Rename…', 'Delete…']) {
    assert.equal(await page.getByRole('button', { name, exact: true }).count(), 0, name);
  }
  await page.goto('/ui/machines/web3/configuration');
  await page.getByRole('heading', { name: 'Declared' }).waitFor();
  assert.equal(await page.getByRole('button', { name: /^Edit/ }).count(), 0);
  // What another tool declared says so, behind a lock.
  await api(url, TOKEN, 'terraform')('PUT', 'zones/row-5', { spec: {} });
  await page.goto('/ui/zones/row-5');
  await page.locator('main header').getByTitle('terraform declared it').locator('svg').waitFor();
  await page.goto('/ui/audit');
  await says(page.locator('main'), 'The audit log is not yours to see.');
  await context.close();
});

test('a view is kept under a name, and shown again', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'ann', PASSWORD);
  await filter(page).fill('name:(=web3,=web4)');
  await page.waitForURL(/q=name/);
  await page.getByRole('button', { name: 'Views' }).click();
  await page.getByLabel('Name of this view').fill('two of them');
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByRole('button', { name: 'two of them', exact: true }).waitFor();
  await accessible(page, 'views');
  await page.goto('/ui/machines');
  await page.getByRole('button', { name: 'Views' }).click();
  await page.getByRole('button', { name: 'two of them', exact: true }).click();
  await says(page.getByRole('status'), '2 of ');
  assert.equal(await filter(page).inputValue(), 'name:(=web3,=web4)');
  await page.getByRole('button', { name: 'Views' }).click();
  await page.getByRole('button', { name: 'Forget two of them' }).click();
  assert.equal(await page.getByRole('button', { name: 'two of them', exact: true }).count(), 0);
  assert.deepEqual(complaints, []);
  await context.close();
});

test('what many machines are asked for is told of each, and why some cannot take it', async () => {
  const { page, context } = await person(chrome, url);
  await login(page, 'ann', PASSWORD);
  const sent = [];
  page.on('request', (request) => request.method() === 'POST' && sent.push(request.url().slice(url.length)));
  await filter(page).fill('name:(=web3,=web4)');
  await says(page.getByRole('status'), '2 of ');
  await page.getByLabel('Select all that match').check();
  const bar = page.getByRole('toolbar', { name: 'Selected machines' });
  await bar.getByRole('button', { name: 'More…' }).click();
  await accessible(page, 'more operations');
  await bar.getByRole('button', { name: 'Recommission…' }).click();
  const plan = page.getByRole('dialog');
  await plan.getByRole('heading', { name: 'One cannot take it' }).waitFor();
  await says(plan, 'web4');
  await picture(page, 'bulk');
  await plan.getByRole('button', { name: 'Recommission 1 machine' }).click();
  await plan.waitFor({ state: 'detached' });
  await says(bar, '1 selected');
  const { items } = await admin('GET', 'machines/web3/operations');
  assert.equal(items[0].verb, 'recommission');
  assert.deepEqual(sent, ['/api/v1/operations?dry_run=true', '/api/v1/operations'], 'one request tries it, one does it');
  await context.close();
});

test('a rescue and a script are asked for with what they need, and planned before they are done', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'ann', PASSWORD);
  const sent = [];
  page.on('request', (request) => request.method() === 'POST' && request.url().includes('/operations') && sent.push(request.postDataJSON()));
  await page.goto('/ui/machines/web22');
  await page.locator('button:not([aria-disabled])', { hasText: /^Rescue$/ }).click();
  const sheet = page.getByRole('dialog', { name: 'Rescue' });
  await sheet.getByRole('button', { name: 'Show the plan' }).click();
  await says(sheet.getByRole('alert'), 'nobody could come in');
  await accessible(page, 'a rescue');
  await sheet.getByLabel('SSH keys').fill('ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJhc2FsdCBleGFtcGxlIGtleSwgbm90IGEgcmVhbCAx me@example.com');
  await sheet.getByLabel('Duration').fill('90m');
  await sheet.getByRole('button', { name: 'Show the plan' }).click();
  const plan = page.getByRole('dialog', { name: 'Plan: rescue' });
  await plan.getByRole('button', { name: 'Rescue 1 machine' }).click();
  await plan.waitFor({ state: 'detached' });
  const { items } = await admin('GET', 'machines/web22/operations');
  assert.equal(items[0].verb, 'rescue');
  await page.locator('button:not([aria-disabled])', { hasText: /^Run a script$/ }).click();
  const script = page.getByRole('dialog', { name: 'Run a script on' });
  await script.getByLabel('Script').selectOption('read-firmware');
  await script.getByLabel('speed').selectOption('fast');
  await script.getByLabel('rounds').fill('2');
  await accessible(page, 'the parameters of a script');
  await script.getByRole('button', { name: 'Show the plan' }).click();
  // The rescue that was asked for is not over: the script takes its place.
  await page.getByRole('dialog', { name: 'Plan: run a script on' }).getByRole('button', { name: 'Leave it' }).click();
  assert.deepEqual(sent.at(-1), { names: ['web22'], operation: { verb: 'run_script', script: 'read-firmware', parameters: { speed: 'fast', rounds: '2' } } });

  // The same from the script's page, for all machines that match a filter.
  await page.goto('/ui/scripts/read-firmware');
  await page.getByRole('button', { name: 'Run…' }).click();
  const run = page.getByRole('dialog', { name: 'Run read-firmware' });
  // A term that cannot be read would leave the whole fleet: it names no machine.
  await filter(run).fill('name:web zone:');
  await says(run.getByText(/names no machines/), 'in zone:, a value is missing');
  await run.getByRole('button', { name: 'Show the plan' }).and(page.locator('[aria-disabled]')).waitFor();
  await filter(run).fill('zone:row-1 name:web');
  await says(run.getByRole('status'), 'On 15 of 60 machines.');
  await page.keyboard.press('Escape');
  await picture(page, 'script-run');
  await accessible(page, 'a run of a script');
  await run.getByRole('button', { name: 'Show the plan' }).click();
  await page.getByRole('dialog', { name: 'Plan: run a script on' }).getByText(/cannot take it/).waitFor();
  await picture(page, 'plan-script');
  assert.equal(sent.at(-1).names.length, 15);
  assert.deepEqual(complaints, []);
  await context.close();
});

test('an operation is kept with its end, and the output of a script with it', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'eve', PASSWORD);
  await page.goto('/ui/machines/web1/operations');
  const table = page.getByRole('region', { name: 'Operations' });
  await says(table, 'The script ended with status 3');
  await table.getByRole('button', { name: 'run script: read-firmware' }).first().click();
  await says(page.getByLabel('Output', { exact: true }), 'slot 39: firmware 22.31.39');
  await page.waitForURL(/of=/);
  await picture(page, 'operation');
  await accessible(page, 'an operation');
  // The address is the view.
  await page.reload();
  await says(page.getByLabel('Output', { exact: true }), 'slot 0: firmware 22.31.00');
  assert.deepEqual(complaints, []);
  await context.close();
});

test('a device that becomes slower is a line that falls, beside the numbers of each run', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'eve', PASSWORD);
  await page.goto('/ui/machines/web1/tests');
  const findings = page.getByRole('region', { name: 'Findings' });
  await findings.getByRole('row', { name: /nvme0n1/ }).getByRole('button', { name: 'basalt-disks' }).click();
  await page.waitForURL(/of=basalt-disks%3Anvme0n1/);
  await page.getByRole('img', { name: 'read: 8 values from 960 MB/s to 2920 MB/s, the last one 960 MB/s' }).waitFor();
  assert.equal(await page.getByRole('table', { name: 'Runs of basalt-disks:nvme0n1' }).getByRole('row').count(), 9);
  await picture(page, 'test-history');
  await accessible(page, 'a history of tests');
  assert.deepEqual(complaints, []);
  await context.close();
});

test('dead letters say why they failed, and an admin sends them again after their plan', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'eve', PASSWORD);
  await page.goto('/ui/webhooks/tickets');
  await page.getByRole('tab', { name: 'Deliveries' }).click();
  await page.getByLabel('State').selectOption('Dead letters');
  await page.waitForURL(/tab=deliveries&state=dead/);
  const letters = page.getByRole('region', { name: 'Deliveries' });
  await says(letters.getByRole('row'), 'older-hall');
  await says(letters, 'answered 500 Internal Server Error');
  assert.equal(await page.getByRole('button', { name: /again/ }).count(), 0, 'a viewer sends nothing');
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('User').waitFor();
  await login(page, 'root', PASSWORD);
  await page.goto('/ui/webhooks/tickets?tab=deliveries&state=dead');
  await page.getByRole('button', { name: /Send again….*older-hall/ }).click();
  const plan = page.getByRole('dialog', { name: 'Plan: send 1 delivery again' });
  await says(plan, '1 dead letters of Webhook "tickets" are sent again');
  await picture(page, 'plan-redelivery');
  await accessible(page, 'a redelivery');
  assert.equal((await admin('GET', 'webhooks/tickets')).status.failed, 2, 'nothing is sent before the plan is applied');
  await plan.getByRole('button', { name: 'Send 1 delivery again' }).click();
  await plan.waitFor({ state: 'detached' });
  await letters.getByText('older-hall', { exact: true }).waitFor({ state: 'detached' });
  assert.equal((await admin('GET', 'webhooks/tickets')).status.failed, 1);

  // What will never be sent is deleted.
  await page.getByRole('button', { name: /Delete….*old-hall/ }).click();
  const last = page.getByRole('dialog', { name: 'Plan: delete 1 dead letter' });
  await says(last, '1 dead letter of Webhook "tickets" will be deleted');
  await picture(page, 'plan-discard');
  await last.getByRole('button', { name: 'Delete 1 dead letter' }).click();
  await last.waitFor({ state: 'detached' });
  await page.getByText('No delivery is in this state.').waitFor();
  assert.equal((await admin('GET', 'webhooks/tickets')).status.failed, 0);
  assert.deepEqual(complaints, []);
  await context.close();
});

test('a rack is given a token to join with, by an admin', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'ann', PASSWORD);
  await page.goto('/ui/racks');
  await says(rows(page), 'r1');
  assert.equal(await page.getByRole('button', { name: 'Join token…' }).count(), 0, 'an operator makes none');
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('User').waitFor();
  await login(page, 'root', PASSWORD);
  await page.goto('/ui/racks');
  await page.getByRole('button', { name: 'Join token…' }).click();
  const sheet = page.getByRole('dialog', { name: 'Token for a rack' });
  await sheet.getByLabel('Lifetime').fill('soon');
  await sheet.getByRole('button', { name: 'Make a token' }).click();
  await says(sheet.getByRole('alert'), '');
  await accessible(page, 'a join token');
  await sheet.getByLabel('Rack').fill('r2');
  await sheet.getByLabel('Lifetime').fill('30m');
  await sheet.getByRole('button', { name: 'Make a token' }).click();
  assert.match(await sheet.getByLabel('Token').innerText(), /^[\w.=-]{40,}$/);
  await picture(page, 'join-token');
  assert.deepEqual(complaints, []);
  await context.close();
});

test('a token is issued once and revoked, and an object gets another name', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'root', PASSWORD);
  await page.goto('/ui/api_tokens/ci');
  assert.equal(await page.getByRole('button', { name: 'Revoke…' }).getAttribute('aria-disabled'), 'true', 'there is nothing to revoke');
  await page.getByRole('button', { name: 'Issue…' }).click();
  await page.getByRole('dialog', { name: 'Plan: issue a text' }).getByRole('button', { name: 'Issue a text' }).click();
  const once = page.getByRole('dialog', { name: 'Text of ci' });
  const token = await once.getByLabel('Token').innerText();
  await picture(page, 'token-issued');
  await accessible(page, 'a token');
  assert.equal((await api(url, token)('GET', 'whoami')).name, 'ci');
  await once.getByRole('button', { name: 'Close', exact: true }).last().click();
  await page.locator('button:not([aria-disabled])', { hasText: 'Revoke…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke its text' }).click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await assert.rejects(api(url, token)('GET', 'whoami'), /401/);

  await page.goto('/ui/zones/row-3');
  await page.getByRole('button', { name: 'Rename…' }).click();
  const sheet = page.getByRole('dialog', { name: 'Rename row-3' });
  await sheet.getByLabel('New name').fill('row-three');
  await accessible(page, 'another name');
  await sheet.getByRole('button', { name: 'Show the plan' }).click();
  await page.getByRole('dialog', { name: 'Plan: rename row-3' }).getByRole('button', { name: 'Rename row-3' }).click();
  await page.getByRole('heading', { name: 'row-three' }).waitFor();
  assert.equal((await admin('GET', 'machines/web2')).spec.zone, 'row-three', 'machines follow');
  await admin('POST', 'zones/row-three/rename', { name: 'row-3' });
  assert.deepEqual(complaints, []);
  await context.close();
});

test('an object is declared in a form, and what is wrong with a field is told at the field', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'ann', PASSWORD);
  await page.goto('/ui/subnets');
  await page.getByRole('button', { name: 'Declare…' }).click();
  const sheet = page.getByRole('dialog', { name: 'Declare: Subnet' });
  await sheet.getByRole('button', { name: 'Show the plan' }).click();
  await says(sheet, 'it needs a name');
  await sheet.getByLabel('Name needed').fill('storage');
  await sheet.getByLabel('VLAN needed').fill('lab.10');
  await sheet.getByLabel('CIDR needed').fill('10.0.40.0/24');
  await sheet.getByLabel('Gateway').fill('10.0.41.1');
  await sheet.getByLabel('DNS servers').fill('10.0.40.2, 10.0.40.3');
  await sheet.getByLabel('Managed').selectOption('no');
  await sheet.getByRole('button', { name: 'Show the plan' }).click();
  const gateway = sheet.getByLabel('Gateway');
  await sheet.locator('[aria-invalid=true]').waitFor();
  assert.equal(await gateway.getAttribute('aria-invalid'), 'true');
  await picture(page, 'form');
  await accessible(page, 'a form');
  await gateway.fill('10.0.40.1');

  // The same as YAML, and back.
  await sheet.getByRole('button', { name: 'Write YAML' }).click();
  const yaml = sheet.getByRole('textbox', { name: 'As YAML' });
  await yaml.fill(`${await yaml.inputValue()}  description: for disks\n`);
  await sheet.getByRole('button', { name: 'Fill in a form' }).click();
  assert.equal(await sheet.getByLabel('Description').inputValue(), 'for disks');
  await sheet.getByRole('button', { name: 'Show the plan' }).click();
  const plan = page.getByRole('dialog', { name: 'Plan' });
  await plan.getByRole('button', { name: 'Apply 1 change' }).click();
  await says(rows(page), 'storage');
  const { spec } = await admin('GET', 'subnets/storage');
  assert.deepEqual(
    [spec.cidr, spec.gateway, spec.dns_servers, spec.managed, spec.description],
    ['10.0.40.0/24', '10.0.40.1', ['10.0.40.2', '10.0.40.3'], false, 'for disks'],
  );

  await page.goto('/ui/subnets/storage');
  await page.getByRole('tab', { name: 'Configuration' }).click();
  await page.getByRole('button', { name: 'Edit in a form' }).click();
  const change = page.getByRole('dialog', { name: 'Change: Subnet storage' });
  assert.ok(await change.getByLabel('CIDR').isDisabled(), 'another network is another object');
  await change.getByLabel('Gateway').fill('');
  await change.getByRole('button', { name: 'Show the plan' }).click();
  await says(plan.getByRole('row'), '/gateway');
  await picture(page, 'plan-of-form');
  await plan.getByRole('button', { name: 'Apply 1 change' }).click();
  await plan.waitFor({ state: 'detached' });
  assert.equal((await admin('GET', 'subnets/storage')).spec.gateway ?? null, null);
  assert.deepEqual(complaints, []);
  await context.close();
});

test('network and disks of a machine are written before it is deployed, and its pages show them', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'ann', PASSWORD);
  await page.goto('/ui/machines/web1/configuration');
  await page.getByRole('button', { name: 'Edit as YAML' }).click();
  const yaml = page.getByRole('textbox', { name: 'As YAML' });
  const before = (await yaml.inputValue()).trimEnd();
  const write = async (subnet) => {
    await yaml.fill(`${before}\n${NETWORK.replace('SUBNET', subnet)}`);
    await page.getByRole('button', { name: 'Show the plan' }).click();
  };
  const plan = page.getByRole('dialog', { name: 'Plan' });
  await write('lab-10');
  await says(plan.getByRole('row'), '/network');
  await says(plan.getByRole('row'), '/storage');
  await picture(page, 'plan-of-network');
  await accessible(page, 'a plan of network and disks');
  await plan.getByRole('button', { name: /^Apply/ }).click();
  await plan.waitFor({ state: 'detached' });
  const { spec } = await admin('GET', 'machines/web1');
  assert.equal(spec.network.bridges.br0.subnet, 'lab-10');
  const about = page.getByRole('navigation', { name: 'About this machine' });
  await about.getByRole('link', { name: 'Network' }).click();
  const network = page.getByRole('region', { name: 'Declared network' });
  await says(network.getByRole('row', { name: /^bond0/ }), 'enp1s0f0, enp1s0f1');
  // Bond and bridge stand as brackets left of their interfaces, the bridge outermost.
  const interfaces = page.getByRole('region', { name: 'Interfaces' });
  const over = async (name) => {
    const cell = interfaces.getByRole('cell', { name, exact: true });
    const [rowSpan, { x }] = await Promise.all([cell.evaluate((it) => it.rowSpan), cell.boundingBox()]);
    return { rowSpan, x };
  };
  const [bridge, bond, port] = [await over('br0 bridge'), await over('bond0 bond 802.3ad'), await over('enp1s0f0')];
  assert.deepEqual([bridge.rowSpan, bond.rowSpan], [2, 2]);
  assert.ok(bridge.x < bond.x && bond.x < port.x, 'brackets are at the left');
  await picture(page, 'network-declared');
  await accessible(page, 'a declared network');
  await about.getByRole('link', { name: 'Storage' }).click();
  // The layers of a disk, each as wide as its part of what it stands on.
  const layers = page.getByRole('region', { name: 'Layers of nvme1n1' });
  await says(layers, 'mirror raid1 · 1.9 TiB · with a');
  await says(layers.getByRole('listitem'), '/srv srv xfs');
  const width = async (name) => (await layers.getByText(name, { exact: true }).locator('xpath=ancestor::li[1]').boundingBox()).width;
  const [whole, swap, rest] = [(await layers.boundingBox()).width, await width('swap partition · 512 GiB'), await width('b partition · 3.3 TiB')];
  assert.ok(Math.abs(swap / whole - 512 / 3840) < 0.01 && swap + rest > whole * 0.98, `${swap} and ${rest} of ${whole}`);
  await accessible(page, 'layers of disks');
  await picture(page, 'storage-declared');
  assert.deepEqual(complaints, []);
  await context.close();
});

test('an image is declared, and its missing file is uploaded in the browser', async () => {
  const content = Buffer.from('a small root file system');
  const sha256 = createHash('sha256').update(content).digest('hex');
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'ann', PASSWORD);
  await page.goto('/ui/images');
  await page.getByRole('button', { name: 'Declare…' }).click();
  await page.getByRole('button', { name: 'Write YAML' }).click();
  await page.getByRole('textbox', { name: 'As YAML' }).fill(
    `kind: Image\nmetadata: {name: small}\nspec:\n  os: debian\n  release: "13"\n  architecture: amd64\n  files: {root_tarball: {sha256: ${sha256}}}\n`,
  );
  await page.getByRole('button', { name: 'Show the plan' }).click();
  await page.getByRole('dialog', { name: 'Plan' }).getByRole('button', { name: 'Apply 1 change' }).click();
  await rows(page).getByRole('link', { name: 'small' }).click();
  const files = page.getByRole('region', { name: 'Files of the image' });
  await says(page.getByRole('status'), '1 file is missing');
  await picture(page, 'image-missing');
  await accessible(page, 'an image without its file');
  const give = (buffer) => files.getByLabel('Upload root_tarball').setInputFiles({ name: 'root.tar', mimeType: 'application/x-tar', buffer });
  await give(Buffer.from('another file'));
  await says(files.getByRole('alert'), sha256.slice(0, 8));
  await give(content);
  await says(page.getByRole('status'), 'All files are there.');
  await says(page.locator('main header'), 'Ready');
  await admin('DELETE', 'images/small');
  assert.deepEqual(complaints, []);
  await context.close();
});

test('a boot grows on the page of its machine while it goes on, and its verdict with it', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'eve', PASSWORD);
  await page.goto('/ui/machines/web7/boots');
  await says(page.getByRole('region', { name: 'Who listens' }), 'r1');
  await page.evaluate(() => {
    window.isTheSame = true;
  });
  const rack = connect(process.env.BOOTS);
  const tell = (...entries) => rack.write(entries.map((entry) => `${JSON.stringify({ mac: '52:54:00:00:07:01', ...entry })}\n`).join(''));
  const steps = page.getByRole('region', { name: /^Boot of / }).getByRole('row');
  const verdict = page.getByRole('status', { name: 'Verdict' });
  const offer = { service: 'dhcp', client: 'firmware', asked: 'DISCOVER, x86-64 UEFI', answered: 'OFFER 10.0.10.30, ipxe.efi' };

  tell(offer);
  await says(steps, 'OFFER 10.0.10.30');
  await says(verdict, 'It was offered an address and did not ask for it');
  await steps.nth(1).evaluate((row) => row.setAttribute('data-first', ''));

  tell({ ...offer, asked: 'REQUEST 10.0.10.30', answered: 'ACK 10.0.10.30' }, { service: 'tftp', asked: 'ipxe.efi', answered: '1.1 MB in 0.4 s' });
  await says(steps, '1.1 MB in 0.4 s');
  await says(verdict, 'what it loaded asked for nothing');
  await accessible(page, 'a boot that goes on');

  tell({ service: 'http', asked: 'script of web7', answered: 'not answered: its address is of another rack', reason: 'token_refused' });
  await says(steps, 'Token refused');
  await says(verdict, 'It was refused its script');
  await picture(page, 'boot-refused');

  tell({ service: 'agent', asked: 'its task', answered: 'commission' });
  await says(steps, 'commission');
  await says(verdict, 'It booted: its agent was here');
  assert.deepEqual(await steps.locator('td:nth-child(2)').allInnerTexts(), ['dhcp firmware DISCOVER, x86-64 UEFI', 'dhcp firmware REQUEST 10.0.10.30', 'tftp ipxe.efi', 'http script of web7', 'agent its task']);
  assert.equal(await steps.nth(1).getAttribute('data-first'), '', 'the first row stays where it is');
  assert.ok(await page.evaluate(() => window.isTheSame), 'nothing is loaded again');
  rack.end();
  assert.deepEqual(complaints, []);
  await context.close();
});

test('a rack says which images it holds, and an image which racks hold it', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'eve', PASSWORD);
  await page.goto('/ui/racks');
  await says(page.locator('main'), 'Rack controllers, which serve networks');
  await page.goto('/ui/racks/r1');
  await says(page.locator('main'), '2 files, 3 GiB of 50 GiB');
  await says(page.locator('main'), 'It has no dynamic addresses to lease.');
  await picture(page, 'rack-holds');
  await accessible(page, 'what a rack holds');
  const images = page.getByRole('region', { name: 'Images in the cache' });
  await says(images.getByRole('row', { name: /debian-12/ }), 'all files');
  await images.getByRole('link', { name: 'debian-12' }).click();
  await says(page.locator('main'), '1 of 1 rack holds all of its files.');
  await says(page.getByRole('region', { name: 'Racks with the image' }), 'r1');
  await picture(page, 'image-on-racks');
  await accessible(page, 'an image on racks');
  assert.deepEqual(complaints, []);
  await context.close();
});

test('scripts of a first boot have their ends, their reasons and their outputs at the deployment', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'eve', PASSWORD);
  await page.goto('/ui/scripts/mount-shares');
  await page.getByRole('region', { name: 'Deployments that run it' }).getByRole('link', { name: 'shop' }).click();
  const scripts = page.getByRole('region', { name: 'Scripts of the first boot' });
  await says(scripts.getByRole('row', { name: /join-cluster/ }), 'ended well');
  await says(scripts.getByRole('row', { name: /mount-shares/ }), 'exit status: 32');
  await scripts.getByRole('button', { name: '1 line of mount-shares' }).click();
  await says(page.getByLabel('Output of mount-shares'), 'mount.nfs: no route to host');
  await picture(page, 'first-boot-scripts');
  await accessible(page, 'scripts of a first boot');
  assert.deepEqual(complaints, []);
  await context.close();
});

test('a subnet is a map of its addresses, which keys walk through', async () => {
  const { page, context } = await person(chrome, url);
  await login(page, 'eve', PASSWORD);
  await page.goto('/ui/subnets/lab-10');
  const map = page.getByRole('grid', { name: 'Map of 10.0.10.0/24' });
  await map.getByRole('gridcell', { name: '10.0.10.1: gateway' }).waitFor();
  assert.equal(await map.getByRole('gridcell').count(), 256);
  await map.focus();
  for (const key of ['ArrowDown', 'ArrowRight', 'ArrowRight']) await page.keyboard.press(key);
  await says(page.locator('main').getByRole('status'), '10.0.10.66');
  await map.getByRole('gridcell', { name: '10.0.10.1: gateway' }).click();
  await says(page.locator('main').getByRole('status'), 'gateway');
  await picture(page, 'subnet-map');
  await context.close();
});

test('a log is read back page by page, narrowed, and taken along', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'eve', PASSWORD);
  await page.goto('/ui/machines/web1');
  await page.getByRole('link', { name: 'Logs' }).click();
  const log = page.getByRole('grid', { name: 'Log' });
  // The latest line is in view, as on a terminal.
  await says(log.getByRole('row'), 'no route to the gateway');
  await says(page.getByRole('status'), '1000 lines');
  assert.ok((await log.getByRole('row').count()) < 120, 'only lines on the screen are in the document');

  // A reader in the middle keeps the place when earlier lines come.
  await log.focus();
  await page.keyboard.press('Home');
  await says(log.getByRole('row'), 'session 501 of');
  await page.getByRole('button', { name: 'Earlier' }).click();
  await says(page.getByRole('status'), '1500 lines');
  await says(log.getByRole('row'), 'session 501 of');
  assert.equal(await page.getByRole('button', { name: 'Earlier' }).count(), 0, 'nothing is before the first line');
  const downloads = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Download' }).click();
  const lines = readFileSync(await (await downloads).path(), 'utf8').trimEnd().split('\n');
  assert.equal(lines.length, 1500);
  assert.match(lines[1], /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d info systemd: Started session 2 of user root\.$/);

  await page.getByLabel('Only lines with').fill('no route');
  await says(page.getByRole('status'), '5 lines');
  await page.waitForURL(/grep=no/);
  await log.getByRole('row').first().click();
  await says(page.getByRole('region', { name: 'Line' }), 'daemon.err');
  await picture(page, 'log-line');
  await page.getByLabel('Only lines with').fill('nobody says that');
  await page.getByRole('button', { name: 'Show all lines' }).click();
  await page.getByLabel('Lines', { exact: true }).selectOption({ label: 'The last 15 minutes' });
  // One line a second: as many as the last 15 minutes have, without the time since they were written.
  await says(page.getByRole('status'), /^[5-9]\d\d lines/);
  assert.deepEqual(complaints, []);
  await context.close();
});

test('events come while somebody looks on, and only of the kind that was asked for', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'ann', PASSWORD);
  await page.getByRole('link', { name: 'Events', exact: true }).click();
  const events = page.getByRole('region', { name: 'Events' });
  await says(events, 'was declared');
  await page.getByLabel('Kind').selectOption({ label: 'Zones' });
  await page.waitForURL(/kind=zones/);
  await says(events, 'row-4');
  assert.equal(await events.getByText('Machine', { exact: true }).count(), 0);
  await admin('PUT', 'zones/annex', { spec: {} });
  await says(events.getByRole('row').nth(1), 'annex');
  await says(events.getByRole('row').nth(1), 'was declared');
  await accessible(page, 'events');
  await picture(page, 'events');
  assert.deepEqual(complaints, []);
  await context.close();
});

test('many machines are tagged, deployed and released, each after its plan', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'ann', PASSWORD);
  await filter(page).fill('name:(=web4,=web8,=web10)');
  await says(page.getByRole('status'), '3 of ');
  const bar = page.getByRole('toolbar', { name: 'Selected machines' });
  const plan = page.getByRole('dialog', { name: /^Plan:/ });
  const ask = async (what) => {
    await page.getByLabel('Select all that match').check();
    await says(bar, '3 selected');
    await bar.getByRole('button', { name: what }).click();
  };
  await ask('Tag…');
  const tag = page.getByRole('dialog', { name: 'Tag 3 machines' });
  await tag.getByLabel('Add', { exact: true }).fill('burn-in, spare');
  await accessible(page, 'a tag for many');
  await picture(page, 'bulk-tag');
  await tag.getByRole('button', { name: 'Show the plan' }).click();
  await says(plan.getByRole('row').first(), 'field');
  await picture(page, 'plan-bulk-tag');
  assert.equal((await admin('GET', 'machines/web8')).spec.tags, undefined, 'nothing changes before the plan is applied');
  await plan.getByRole('button', { name: 'Tag 3 machines' }).click();
  await plan.waitFor({ state: 'detached' });
  await bar.waitFor({ state: 'detached' });
  const { spec } = await admin('GET', 'machines/web8');
  assert.deepEqual([spec.tags, spec.zone, spec.bmc], [['burn-in', 'spare'], 'row-1', undefined], 'the other fields stay');

  await ask('Deploy…');
  const deploy = page.getByRole('dialog', { name: 'Deploy 3 machines' });
  await deploy.getByLabel('Image').selectOption('debian-12');
  await accessible(page, 'a deployment of many');
  await picture(page, 'bulk-deploy');
  await deploy.getByRole('button', { name: 'Show the plan' }).click();
  await plan.getByRole('heading', { name: 'One cannot take it' }).waitFor();
  await says(plan, 'its mode is broken');
  await accessible(page, 'a plan of many deployments');
  await picture(page, 'plan-bulk-deploy');
  await plan.getByRole('button', { name: 'Deploy 2 machines' }).click();
  await plan.waitFor({ state: 'detached' });
  await says(bar, '1 selected');
  assert.equal((await admin('GET', 'deployments/web8')).spec.machine, 'web8');
  const until = async (what, look) => {
    for (const end = Date.now() + 15_000; !(await look()); ) assert.ok(Date.now() < end, what);
  };
  for (const name of ['web8', 'web10']) await until(`${name} is claimed`, async () => (await admin('GET', `machines/${name}`)).status.deployment === name);

  await ask('Release…');
  await says(plan, 'it has no deployment');
  await plan.getByRole('button', { name: 'Release 2 machines' }).click();
  await plan.waitFor({ state: 'detached' });
  await says(bar, '1 selected');
  for (const name of ['web8', 'web10']) await until(`${name} is released`, async () => !(await admin('GET', `machines/${name}`)).status.deployment);
  assert.deepEqual(complaints, []);
  await context.close();
});

test('a tag says which machines gain and lose it by another expression, before it is applied', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await admin('PUT', 'tags/big', { spec: { expression: 'cpu.cores >= 64', comment: 'many cores' } });
  await login(page, 'ann', PASSWORD);
  await page.goto('/ui/tags/big');
  await page.getByLabel('Expression', { exact: true }).fill('cpu.cores >= 16');
  const preview = page.getByRole('region', { name: 'Machines of tag big' });
  await says(preview, '1 machine gains it: web1');
  await accessible(page, 'a preview of a tag');
  await picture(page, 'tag-preview');
  assert.equal((await admin('GET', 'tags/big')).spec.expression, 'cpu.cores >= 64', 'nothing changes before the plan is applied');
  await page.getByRole('button', { name: 'Show the plan' }).click();
  const plan = page.getByRole('dialog', { name: 'Plan' });
  await says(plan.getByRole('region', { name: 'Machines of tag big' }), 'gains it');
  await plan.getByRole('button', { name: 'Apply 1 change' }).click();
  await plan.waitFor({ state: 'detached' });
  assert.deepEqual((await admin('GET', 'tags/big')).spec, { expression: 'cpu.cores >= 16', comment: 'many cores' });
  await admin('DELETE', 'tags/big');
  assert.deepEqual(complaints, []);
  await context.close();
});

test('the time axis of a machine is zoomed, and each mark leads to its evidence', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await login(page, 'ann', PASSWORD);
  await page.goto('/ui/machines/web1/timeline');
  const axis = page.getByRole('region', { name: 'Axis of time' });
  await axis.getByLabel('Time', { exact: true }).selectOption('The last day');
  const lane = (name) => axis.getByRole('list', { name, exact: true });
  await lane('People').getByRole('link').first().waitFor();
  await axis.getByRole('button', { name: 'Zoom in' }).click();
  await axis.getByRole('button', { name: 'Back to now' }).click();
  await picture(page, 'time-axis');
  await lane('People').getByRole('link').first().click();
  await page.waitForURL(/audit\?object=/);
  assert.deepEqual(complaints, []);
  await context.close();
});

/** Each kind has a list and a page, all of which are made in one way. An empty name: there is no object of that kind. */
const DETAILS = {
  deployments: 'shop', discoveries: '', subnets: 'lab-10', vlans: 'lab.10', fabrics: 'lab', spaces: '', ip_ranges: 'leases', ip_addresses: '', static_routes: '',
  devices: 'printer-2', domains: 'lab.example', dns_records: '', images: 'debian-12', image_sources: '', scripts: 'read-firmware', package_repositories: '', racks: 'r1',
  zones: 'row-1', pools: 'web', tags: '', users: 'ann', roles: 'operator', api_tokens: 'ci', ssh_keys: '', settings: 'default', webhooks: 'tickets',
};

const ROUTES = [
  'machines',
  'machines?q=nothing-has-this',
  'machines/web1',
  ...['timeline', 'operations', 'boots', 'logs', 'hardware', 'network', 'storage', 'tests', 'configuration', 'decisions'].map((tab) => `machines/web1/${tab}`),
  'machines/web3',
  'machines/web3/operations',
  'boots',
  'boots?of=52:54:00:00:00:99',
  ...Object.entries(DETAILS).flatMap(([plural, name]) => [plural, ...(name ? [`${plural}/${name}`] : [])]),
  'webhooks/tickets?tab=deliveries',
  ...['timeline', 'decisions', 'configuration'].map((tab) => `deployments/shop?tab=${tab}`),
  'audit',
  'events',
  'nothing',
];

test('every page can be read by everybody, in both themes, and keeps to the policy', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await page.goto('/');
  await page.getByLabel('User').waitFor();
  await picture(page, 'login');
  await accessible(page, 'login');
  await login(page, 'root', PASSWORD);
  const places = await page.getByRole('navigation', { name: 'Sections' }).getByRole('link').count();
  assert.ok(places > 10, 'the side bar is there');
  const look = async (page, routes) => {
    for (let route = routes.pop(); route; route = routes.pop()) {
      await page.goto(`/ui/${route}`);
      await page.locator('main').locator('h1, h2').first().waitFor({ state: 'attached' });
      await page.waitForFunction(() => !document.body.textContent.includes('Reading…'));
      const name = route.replace(/\W+/g, '-');
      for (const [width, suffix] of [[1440, ''], [800, '-narrow']]) {
        await page.setViewportSize({ width, height: 900 });
        const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
        assert.ok(!wide, `${route} scrolls sideways at ${width} pixels`);
        await picture(page, name + suffix);
        await accessible(page, `${route} at ${width} pixels`);
      }
    }
  };
  // Most of the time goes into axe, so two pages are looked at at once.
  const routes = ROUTES.toReversed();
  const other = await context.newPage();
  await Promise.all([look(page, routes), look(other, routes)]);
  await other.close();
  await page.goto('/ui/machines');
  const height = () => rows(page).nth(1).evaluate((row) => row.getBoundingClientRect().height);
  await says(rows(page), 'web1');
  assert.equal(await height(), 32);
  await page.keyboard.press('Control+k');
  await page.keyboard.type('compact');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelectorAll('[role=row]')[2].getBoundingClientRect().top - document.querySelectorAll('[role=row]')[1].getBoundingClientRect().top === 28);
  await picture(page, 'compact');
  await accessible(page, 'compact rows');
  await page.setViewportSize({ width: 800, height: 900 });
  await picture(page, 'narrow');
  await accessible(page, 'a narrow screen');
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.keyboard.press('Control+k');
  await page.getByRole('dialog', { name: 'Commands' }).waitFor();
  await page.keyboard.type('52:54:00:00:01:01');
  await says(page.getByRole('option'), 'web1');
  await picture(page, 'commands');
  await accessible(page, 'commands');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'web1' }).waitFor();
  assert.deepEqual(complaints, []);
  await context.close();
});

test('tables of the API and the manual scroll in their own boxes on a narrow screen', async () => {
  const { page, context } = await person(chrome, url, { viewport: { width: 360, height: 640 } });
  for (const route of ['docs', 'pages']) {
    await page.goto(`/${route}`);
    const widths = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(widths[0] <= widths[1], `${route} is ${widths[0]} px wide`);
  }
  assert.equal(await page.goto('/docs').then(() => page.locator('.box > table').count()) > 100, true);
  await context.close();
});

test('thousands of machines: few rows are drawn, and a filter is quick', async () => {
  const machine = (at) => ({
    kind: 'Machine',
    metadata: { name: `bulk-${at}` },
    spec: { zone: `row-${(at % 4) + 1}`, boot_macs: [`02:00:00:${[at >> 16, (at >> 8) & 255, at & 255].map((byte) => byte.toString(16).padStart(2, '0')).join(':')}`], commissioning: { skip: true }, mode: 'retired' },
  });
  await admin('POST', 'apply', { documents: Array.from({ length: 2_000 }, (_, at) => machine(at)) });
  const { page, context } = await person(chrome, url);
  await login(page, 'ann', PASSWORD);
  await says(page.getByRole('status'), /^2\d{3} machines/);
  assert.ok((await rows(page).count()) < 80, 'only rows on the screen are in the document');
  const took = await page.evaluate(async () => {
    const input = document.getElementById('filter');
    const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
    const begun = performance.now();
    set.call(input, 'bulk-1777');
    input.dispatchEvent(new Event('input', { bubbles: true }));
    while (document.querySelector('[role=grid]')?.getAttribute('aria-rowcount') !== '2') await new Promise(requestAnimationFrame);
    return performance.now() - begun;
  });
  assert.ok(took < 1000, `the filter took ${took} ms`);
  await context.close();
});
