// Logins by OpenID Connect: from the console to the issuer's page and back.
//   REGION_URL: the region, whose Settings name the issuer. ISSUER: where it is; it knows 4711, who may look, and 0815, who may nothing.
//   CHROMIUM: the browser.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { accessible, browser, person, picture, says } from './page.mjs';

const { REGION_URL: url, ISSUER } = process.env;
let chrome;

before(async () => {
  chrome = await browser();
});

after(() => chrome?.close());

/** From the page that was asked for to the issuer's page. */
async function toIssuer(page, asked) {
  await page.goto(asked);
  await page.getByRole('button', { name: `Log in at ${ISSUER.replace('http://', '')}` }).click();
  await page.waitForURL(`${ISSUER}/**`);
}

test('somebody comes back to the page that was asked for, with a session', async () => {
  const { page, context, complaints } = await person(chrome, url);
  await page.goto('/');
  await page.getByRole('button', { name: /^Log in at / }).waitFor();
  await picture(page, 'login-openid');
  await accessible(page, 'login by OpenID Connect');
  await toIssuer(page, '/ui/zones?q=row');
  const answers = [];
  page.on('request', (request) => request.isNavigationRequest() && answers.push(request.url()));
  await page.getByRole('button', { name: '4711' }).click();
  await page.waitForURL('**/ui/zones?q=row');
  await page.getByRole('navigation', { name: 'Sections' }).waitFor();
  await says(page.locator('header'), 'user ada');
  const cookies = await context.cookies(url);
  assert.deepEqual(cookies.map(({ name, httpOnly, sameSite }) => [name, httpOnly, sameSite]).filter(([name]) => name === 'basalt-session'), [['basalt-session', true, 'Strict']]);

  // The answer of the issuer is good once, also in the browser that it is for.
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('User').waitFor();
  const answer = answers.find((address) => address.includes('/ui/login?'));
  await page.goto(answer);
  await says(page.getByRole('alert'), 'this login was used before');
  assert.deepEqual(complaints, []);
  await context.close();
});

test('whoever has no role here, or says no to the issuer, is told so at the login', async () => {
  const { page, context } = await person(chrome, url);
  await toIssuer(page, '/');
  await page.getByRole('button', { name: '0815' }).click();
  await says(page.getByRole('alert'), 'none of the groups that the issuer names has a role here: golf');
  await picture(page, 'login-refused');
  await toIssuer(page, '/');
  await page.getByRole('button', { name: 'Deny' }).click();
  await says(page.getByRole('alert'), 'the issuer did not log you in: access_denied');
  await page.getByLabel('User').waitFor();
  await context.close();
});
