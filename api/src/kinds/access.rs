//! Role, User and ApiToken: rights, and the people and programs that have them.

use super::{CommonStatus, Pool, kind};
use crate::model::Ref;
use crate::validate::Rule;
use crate::values::{Secret, Timestamp, Url};
use basalt_api_derive::Model;
use std::collections::BTreeSet;

/// Paths of the API that are not about a kind, and that a token's scopes can name.
const OTHER_SCOPES: [&str; 5] = ["addresses", "audit", "blobs", "join_tokens", "metrics"];

/// Fewest characters of a password: shorter ones can be guessed.
const PASSWORD_CHARACTERS: usize = 10;

/// Most characters of a subject (OpenID Connect Core 1.0 §2).
const SUBJECT_CHARACTERS: usize = 255;
/// Most bytes of an e-mail address (RFC 5321 §4.5.3.1.3).
const EMAIL_BYTES: usize = 254;

/// Most bytes of a password: each byte costs time in the hash.
const PASSWORD_BYTES: usize = 1024;

kind! {
    /// A set of rights, everywhere or in some pools.
    Role, "roles", "basalt_role", Label, declarable: true, RoleSpec, RoleStatus, crate::validate::no_rules
}

/// The rights that a role gives.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RoleSpec {
    /// The rights that the role gives.
    pub base: RoleBase,
    /// The pools to which the role is limited. Machines and deployments of other pools are not shown. Objects that are in no pool
    /// can only be read. Absent: no limit. Empty: no machine and no deployment.
    #[field(none)]
    pub pools: Option<BTreeSet<Ref<Pool>>>,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// A level of rights. Each level includes the levels before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum RoleBase {
    /// The right to read, and to try changes in a dry run.
    Viewer,
    /// The right to change objects.
    Operator,
    /// The right to change who may change objects.
    Admin,
}

/// The state of the role.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RoleStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
}

kind! {
    /// A person who logs in, with a password or by OpenID Connect.
    User, "users", "basalt_user", Label, declarable: true, UserSpec, UserStatus, user_rules
}

/// The account of a person.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct UserSpec {
    /// The password: 10 characters or more. The region keeps only its argon2id hash. A new password ends the user's sessions.
    /// Absent: nobody logs in as this user with a password.
    #[field(sent_nowhere)]
    pub password: Option<Secret>,
    /// The identity that logs in as this user by OpenID Connect. Absent: nobody does.
    pub openid: Option<OpenIdIdentity>,
    /// The roles of the user, who may do everything that any of them allows.
    pub roles: BTreeSet<Ref<Role>>,
    /// True: the region refuses the user's password, sessions and tokens.
    #[field(default = false)]
    pub disabled: bool,
    /// The user's e-mail address, for people. Nothing is sent there.
    #[field(none)]
    pub email: Option<String>,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// The identity of a person at an OpenID Connect issuer (OpenID Connect Core 1.0 §2). Only issuer and subject together identify a
/// person.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct OpenIdIdentity {
    /// The issuer, as Settings name it.
    pub issuer: Url,
    /// The person's identifier at the issuer: the claim `sub`.
    pub subject: String,
}

/// The state of the user.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct UserStatus {
    /// The fields that every status has.
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

/// True if the text has the form of an e-mail address (RFC 5321 §4.1.2, §4.5.3.1): a local part and a domain, without blanks.
fn is_address_of_mail(text: &str) -> bool {
    text.len() <= EMAIL_BYTES
        && text.chars().all(|c| !c.is_whitespace() && !c.is_control())
        && text.rsplit_once('@').is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty())
}

kind! {
    /// A program's key to the API. Its spec declares the rights of the token. `basalt token issue NAME` makes the text of the
    /// token, and shows it once.
    ApiToken, "api_tokens", "basalt_api_token", Label, declarable: true, ApiTokenSpec, ApiTokenStatus, api_token_rules
}

/// The rights of a token.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ApiTokenSpec {
    /// The user whose rights the token has. Either this or `role`.
    #[field(immutable)]
    pub user: Option<Ref<User>>,
    /// The name of the role whose rights the token has; `viewer`, `operator` and `admin` are what a role has as its `base`.
    /// Either this or `user`.
    #[field(immutable)]
    pub role: Option<Ref<Role>>,
    /// The kinds to which these rights are limited, like `machines`, or `machines:read` for reading only; `*:read` is reading of
    /// every kind. A token with scopes cannot apply many documents at once. Absent: no limit.
    pub scopes: Option<BTreeSet<String>>,
    /// The time at which the token ends. Absent: it does not end by itself.
    pub expires_at: Option<Timestamp>,
    /// True: the region refuses the token.
    #[field(default = false)]
    pub disabled: bool,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// The state of the token.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ApiTokenStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// The time at which the present text was made. Absent: the token has no text.
    #[field(volatile)]
    pub issued_at: Option<Timestamp>,
    /// The time of the last use of that text, to within a minute.
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
    // A caller whose list happens to be empty wants no rights rather than all of them.
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
