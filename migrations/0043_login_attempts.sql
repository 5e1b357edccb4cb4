-- Logins that began in a browser and go by way of an issuer. The cookie of the browser has the secret. A row ends with its use.
create table login_attempt (
  sha256     bytea primary key,             -- of the secret
  expires_at timestamptz not null
);
create index login_attempt_expires_at on login_attempt (expires_at);
