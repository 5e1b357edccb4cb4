// Answers of the issuer, as a browser brings them. Anybody can write such an address, so that no words of it are shown.

export type Answer = { state: string; code: string; iss?: string } | { error: string };

/** The answer in an address: it names the login, and has a code for it or an error. Some issuers leave the name out with an error: the tab has begun a login then. */
export function answerIn(search: string, hasBegun: boolean): Answer | undefined {
  const given = new URLSearchParams(search);
  const [state, code, error, iss] = ['state', 'code', 'error', 'iss'].map((name) => given.get(name) || undefined);
  if (error !== undefined) return state !== undefined || hasBegun ? { error } : undefined;
  return state === undefined || code === undefined ? undefined : { state, code, ...(iss === undefined ? {} : { iss }) };
}

/** RFC 6749 §4.1.2.1, OpenID Connect Core §3.1.2.6. */
const ERRORS = [
  'access_denied',
  'account_selection_required',
  'consent_required',
  'interaction_required',
  'invalid_request',
  'invalid_request_object',
  'invalid_request_uri',
  'invalid_scope',
  'login_required',
  'registration_not_supported',
  'request_not_supported',
  'request_uri_not_supported',
  'server_error',
  'temporarily_unavailable',
  'unauthorized_client',
  'unsupported_response_type',
];

/** A sentence of an error of the issuer. Errors that no standard names are told as none. */
export const sentenceOf = (error: string): string => `the issuer did not log you in${ERRORS.includes(error) ? `: ${error}` : ''}`;
