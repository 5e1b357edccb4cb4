//! Role, User and ApiToken: who may do what.

use super::{CommonStatus, Pool, kind};
use crate::model::Ref;
use crate::validate::Rule;
use crate::values::{Secret, Timestamp, Url};
use basalt_api_derive::Model;
use std::collections::BTreeSet;

/// Paths of the API that are not about a kind, and that a token's scopes can name.
const OTHER_SCOPES: [&str; 5] = ["addresses", "audit", "blobs", "join_tokens", "metrics"];

/// Fewest characters of a password: shorter ones are guessed.
const PASSWORD_CHARACTERS: usize = 10;

/// Most characters of a subject (OpenID Connect Core 1.0 §2).
const SUBJECT_CHARACTERS: usize = 255;
/// Bytes that an address of mail has at most (RFC 5321 §4.5.3.1.3).
const EMAIL_BYTES: usize = 254;

/// Most bytes of a password: hashing is work.
const PASSWORD_BYTES: usize = 1024;

kind! {
    /// What its holders may do, everywhere or in some pools.
    Role, "roles", "basalt_role", Label, declarable: true, RoleSpec, RoleStatus, crate::validate::no_rules
}

/// What holders of the role may do.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RoleSpec {
    /// What it allows.
    pub base: RoleBase,
    /// The pools whose machines and deployments it is for; other machines and deployments are not seen, and what is of no
    /// pool is only looked at. Absent: everything. Empty: no machine and no deployment.
    #[field(none)]
    pub pools: Option<BTreeSet<Ref<Pool>>>,
    /// What it is for, for people.
    #[field(none)]
    pub description: Option<String>,
}

/// What a role allows. Each allows what those before it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum RoleBase {
    /// To look, and to try out.
    Viewer,
    /// To change.
    Operator,
    /// To change who may change.
    Admin,
}

/// How the role is.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RoleStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
}

kind! {
    /// A person who logs in, with a password or by OpenID Connect.
    User, "users", "basalt_user", Label, declarable: true, UserSpec, UserStatus, user_rules
}

/// A person's account.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct UserSpec {
    /// The password: 10 characters or more. Only its argon2id hash is kept. A new one ends the user's sessions. Absent: nobody logs
    /// in as this user.
    #[field(sent_nowhere)]
    pub password: Option<Secret>,
    /// Who logs in as this user by OpenID Connect. Absent: nobody does.
    pub openid: Option<OpenIdIdentity>,
    /// What the user may do: everything that any of the roles allows.
    pub roles: BTreeSet<Ref<Role>>,
    /// Refuse the user's password, sessions and tokens.
    #[field(default = false)]
    pub disabled: bool,
    /// Where people write to the user. Nothing is sent there.
    #[field(none)]
    pub email: Option<String>,
    /// Who it is, for people.
    #[field(none)]
    pub description: Option<String>,
}

/// Who somebody is to an issuer (OpenID Connect Core 1.0 §2): only both together name one person.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct OpenIdIdentity {
    /// The issuer, as Settings name it.
    pub issuer: Url,
    /// As whom it knows them: its claim `sub`.
    pub subject: String,
}

/// How the user is.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct UserStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
}

fn user_rules(spec: &UserSpec, rule: &mut Rule<'_>) {
    if let Some(email) = &spec.email
        && !is_address_of_mail(email)
    {
        rule.broken("/email", format!("{email:?} is no address of mail"), "like ada@example.com");
    }
    if let Some(OpenIdIdentity { subject, .. }) = &spec.openid
        && !((1..=SUBJECT_CHARACTERS).contains(&subject.len())
            && subject.bytes().all(|b| (b' '..=b'~').contains(&b)))
    {
        let message = format!("{subject:?} is no subject of an issuer");
        rule.broken("/openid/subject", message, "1 to 255 characters of ASCII, as the issuer writes it");
    }
    let Some(password) = spec.password.as_ref().and_then(Secret::expose) else { return };
    if password.chars().count() < PASSWORD_CHARACTERS {
        let message = format!("the password has fewer than {PASSWORD_CHARACTERS} characters");
        rule.broken("/password", message, "a longer one: some words do");
    } else if password.len() > PASSWORD_BYTES {
        let message = format!("the password has more than {PASSWORD_BYTES} bytes");
        rule.broken("/password", message, "a shorter one");
    }
}

/// Whether it may be one (RFC 5321 §4.1.2, §4.5.3.1): a local part and a domain, without blanks.
fn is_address_of_mail(text: &str) -> bool {
    text.len() <= EMAIL_BYTES
        && text.chars().all(|c| !c.is_whitespace() && !c.is_control())
        && text.rsplit_once('@').is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty())
}

kind! {
    /// A program's key to the API. Declaring it says what it is good for; its text is made, and shown once, by
    /// `basalt token issue NAME`.
    ApiToken, "api_tokens", "basalt_api_token", Label, declarable: true, ApiTokenSpec, ApiTokenStatus, api_token_rules
}

/// What a token is good for.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ApiTokenSpec {
    /// The user for whom it speaks. Either this or `role`.
    #[field(immutable)]
    pub user: Option<Ref<User>>,
    /// The role that it has, by its name; `viewer`, `operator` and `admin` are what a role has as its `base`. Either this or `user`.
    #[field(immutable)]
    pub role: Option<Ref<Role>>,
    /// What of that it is good for: kinds, like `machines`, or `machines:read` for looking alone; `*:read` is every kind. With
    /// scopes it cannot apply many documents at once. Absent: everything.
    pub scopes: Option<BTreeSet<String>>,
    /// When it ends. Absent: not by itself.
    pub expires_at: Option<Timestamp>,
    /// Refuse it.
    #[field(default = false)]
    pub disabled: bool,
    /// What it is for, for people.
    #[field(none)]
    pub description: Option<String>,
}

/// How the token is.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ApiTokenStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
    /// When its present text was made; absent while it has none.
    #[field(volatile)]
    pub issued_at: Option<Timestamp>,
    /// When that was used last, within a minute.
    #[field(volatile)]
    pub last_used: Option<Timestamp>,
}

fn api_token_rules(spec: &ApiTokenSpec, rule: &mut Rule<'_>) {
    let hint = "either user or role";
    match (&spec.user, &spec.role) {
        (None, None) => rule.broken("", "the token speaks for nobody", hint),
        (Some(_), Some(_)) => rule.broken("/role", "the token has a user and a role", hint),
        _ => {}
    }
    // Whoever gives a list that turns out to be empty means no rights rather than all of them.
    if spec.scopes.as_ref().is_some_and(BTreeSet::is_empty) {
        let hint = "leave it out for everything that its user or role may do, or name what it is good for";
        rule.broken("/scopes", "a token with no scopes is good for nothing", hint);
    }
    for (index, scope) in spec.scopes.iter().flatten().enumerate() {
        let word = scope.strip_suffix(":read").unwrap_or(scope);
        let is_known = word == "*"
            || OTHER_SCOPES.contains(&word)
            || super::KINDS.iter().any(|kind| kind.plural == word);
        if !is_known {
            let message = format!("{} is no scope", crate::values::quoted(scope));
            let hint =
                format!("the plural of a kind, *, {}; with :read for looking alone", OTHER_SCOPES.join(", "));
            rule.broken(format!("/scopes/{index}"), message, hint);
        }
    }
}
