import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answerIn, sentenceOf } from '../../src/api/answer';

test('an answer of the issuer names a login, and has a code or an error', () => {
  assert.deepEqual(answerIn('?code=c&state=s&iss=https%3A%2F%2Fid.example.com&session_state=x', false), { state: 's', code: 'c', iss: 'https://id.example.com' });
  assert.deepEqual(answerIn('?code=c&state=s', false), { state: 's', code: 'c' });
  assert.deepEqual(answerIn('?error=access_denied&state=s&code=c', false), { error: 'access_denied' });
  assert.deepEqual(answerIn('?error=access_denied', true), { error: 'access_denied' });
  for (const search of ['', '?', '?q=row', '?state=s', '?code=c', '?error=access_denied', '?error_description=words&state=s', '?code=&state=s', '?code=c&state=']) assert.equal(answerIn(search, false), undefined, search);
  for (const search of ['', '?code=c', '?state=s', '?error_description=words']) assert.equal(answerIn(search, true), undefined, search);
});

test('no words of an address are shown at the login', () => {
  assert.equal(sentenceOf('access_denied'), 'the issuer did not log you in: access_denied');
  assert.equal(sentenceOf('call 555 now'), 'the issuer did not log you in');
});
