-- Logins by OpenID Connect: a session without a password is of a subject of an issuer (docs/decisions/049-openid-connect.md).
--
-- Regions of the version before join sessions with passwords by their revision, and so refuse those without.

alter table session alter column password_revision drop not null;
alter table session add column openid_issuer text;
alter table session add column openid_subject text;
-- Another password ends these sessions as well.
alter table session add column password_was bigint;
alter table session add constraint session_rests_on_something
  check (password_revision is not null or (openid_issuer is not null and openid_subject is not null)) not valid;

-- A subject of an issuer logs in as one user.
create table user_openid (
  account uuid primary key references object on delete cascade,
  issuer  text not null,
  subject text not null,
  unique (issuer, subject)
);
