-- Who may do what, and who did what.

-- Every write that somebody asked for, stored by the transaction that made it. Specs have their secrets in read form.
create table audit (
  id         bigint generated always as identity primary key,
  at         timestamptz not null default clock_timestamp(),
  actor      text not null,          -- `token NAME`, `user NAME`, `peer uid 0`, `rack NAME`
  address    text not null,          -- where the request came from
  request    text not null,          -- method and path, as in the table of endpoints
  kind       text not null,
  object     uuid,                   -- null: what is no object, like a blob
  name       text not null,
  generation bigint,
  before     json,
  after      json
);
create index audit_object on audit (object, id) where object is not null;
create index audit_name on audit (kind, name, id);
create index audit_actor on audit (actor, id);
create index audit_at on audit (at);

create function audit_is_append_only() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' and current_setting('basalt.audit_retention', true) = 'on' then
    return old;
  end if;
  raise exception 'the audit log is append-only: % is refused', lower(tg_op) using errcode = 'insufficient_privilege';
end $$;
create trigger audit_append_only before update or delete on audit
  for each row execute function audit_is_append_only();
create trigger audit_never_truncated before truncate on audit
  for each statement execute function audit_is_append_only();

-- Retention: the only way out of the log.
create function forget_audit(keep_days int) returns void language plpgsql as $$
begin
  perform set_config('basalt.audit_retention', 'on', true);
  delete from audit where at < now() - make_interval(days => keep_days);
  perform set_config('basalt.audit_retention', 'off', true);
end $$;

-- What was issued for an ApiToken: one text at a time, known by its hash alone.
create table issued_token (
  object       uuid primary key references object on delete cascade,
  sha256       bytea not null unique check (length(sha256) = 32),
  issued_at    timestamptz not null default now(),
  last_used_at timestamptz
);

-- Logins. A session ends when it is not used, when its user's password changes, and at `ends_at` whatever happens.
create table session (
  sha256            bytea primary key check (length(sha256) = 32),
  account           uuid not null references object on delete cascade,
  password_revision bigint not null,
  created_at        timestamptz not null default now(),
  expires_at        timestamptz not null,
  ends_at           timestamptz not null
);
create index session_account on session (account);
create index session_expires on session (expires_at);

-- The pool by which roles are limited: a machine's own; a deployment's machine's, or the one it selects from. Null: of no pool.
create function object_pool(of_kind text, of_uid uuid, of_spec json) returns text language sql stable as $$
  select case of_kind
    when 'Machine' then coalesce(of_spec ->> 'pool', 'default')
    when 'Deployment' then coalesce(
      (select coalesce(m.spec ->> 'pool', 'default') from machine_claim c join object m on m.uid = c.machine
       where c.deployment = of_uid),
      (select coalesce(m.spec ->> 'pool', 'default') from object_ref r join object m on m.uid = r.to_uid
       where r.from_uid = of_uid and r.pointer = '/machine'),
      of_spec -> 'selector' ->> 'pool')
  end
$$;
