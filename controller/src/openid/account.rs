//! The user as which a subject of the issuer logs in. If no client declared it, the user is created at the first login. Such a user
//! gets the roles of its groups at each login.

use crate::api::{first_status, logging_in};
use basalt_api::KindOf;
use basalt_api::kinds::{OpenIdSettings, User, UserSpec};
use basalt_api::values::{Name, Uid};
use basalt_db::splice::Text;
use basalt_db::{Key, Object, Precondition, Put, Store, StoreError};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The manager of users that a login has created.
const MANAGER: &str = "openid";
/// The longest name: that of a DNS label.
const NAME: usize = 63;
/// The number of tries if others write at the same time.
const TRIES: u32 = 3;

/// The reason why a valid token opens no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoUser {
    /// None of its groups has a role in Settings.
    #[error("none of the groups that the issuer names has a role here: {}", list(.0))]
    NoRole(Vec<String>),
    /// The claim for the name gives no valid name.
    #[error("the token's claim {0:?} makes no name for a user")]
    NoName(String),
    /// The name belongs to another user.
    #[error(
        "there is a User {0:?} already, who is not said to be this one: its openid would be issuer {1}, subject {2:?}"
    )]
    Taken(String, String, String),
    /// The user is being deleted.
    #[error("User {0:?} is being deleted: `basalt get user {0}` says for whom it waits")]
    Leaving(String),
    /// The user is disabled.
    #[error("User {0:?} is disabled")]
    Disabled(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn list(groups: &[String]) -> String {
    match groups {
        [] => "it names none".to_owned(),
        groups => groups.join(", "),
    }
}

/// The user of these claims. If no client declares the user, it is created or gets its present roles.
pub(crate) async fn of(
    store: &Store,
    settings: &OpenIdSettings,
    claims: &Map<String, Value>,
    address: &str,
) -> Result<(Uid, String), NoUser> {
    let mut tried = 0;
    loop {
        tried += 1;
        match once(store, settings, claims, address).await {
            // The user was written meanwhile, perhaps by another login of the same person.
            Err(NoUser::Store(StoreError::Conflict { .. })) | Err(NoUser::Taken(..)) if tried < TRIES => {}
            done => return done,
        }
    }
}

async fn once(
    store: &Store,
    settings: &OpenIdSettings,
    claims: &Map<String, Value>,
    address: &str,
) -> Result<(Uid, String), NoUser> {
    let issuer = &settings.issuer.canonical();
    let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
    let groups = groups(claims.get(&settings.groups_claim));
    let roles: BTreeSet<&str> = groups
        .iter()
        .filter_map(|group| settings.groups.get(group))
        .flat_map(|group| &group.roles)
        .map(|role| role.as_str())
        .collect();
    let Some(uid) = store.user_of_openid(issuer, subject).await? else {
        if roles.is_empty() {
            return Err(NoUser::NoRole(groups));
        }
        let name = name(claims.get(&settings.name_claim))
            .ok_or_else(|| NoUser::NoName(settings.name_claim.clone()))?;
        let spec = json!({"openid": {"issuer": issuer, "subject": subject}, "roles": roles});
        let made = put(store, name.as_str(), &spec, Precondition::Absent, address).await;
        return match made {
            Ok(user) => Ok((user.uid, user.name)),
            Err(StoreError::Exists { .. }) => {
                Err(NoUser::Taken(name.to_string(), issuer.clone(), subject.to_owned()))
            }
            Err(error) => Err(error.into()),
        };
    };
    let user = store.get(User::KIND.name, Key::Uid(uid)).await?;
    let mut spec: Map<String, Value> = serde_json::from_str(user.spec.get()).map_err(corrupt)?;
    let typed: UserSpec = serde_json::from_str(user.spec.get()).map_err(corrupt)?;
    if typed.disabled {
        return Err(NoUser::Disabled(user.name));
    }
    if user.deletion_requested_at.is_some() {
        return Err(NoUser::Leaving(user.name));
    }
    if user.manager.as_deref() == Some(MANAGER) {
        // A person who has left all groups loses all roles, also in existing sessions and tokens.
        if !typed.roles.iter().map(|role| role.as_str()).eq(roles.iter().copied()) {
            spec.insert("roles".to_owned(), json!(roles));
            let as_read = Precondition::Generation(user.generation);
            put(store, &user.name, &Value::Object(spec), as_read, address).await?;
        }
        if roles.is_empty() {
            return Err(NoUser::NoRole(groups));
        }
    }
    Ok((uid, user.name))
}

fn corrupt(error: serde_json::Error) -> StoreError {
    StoreError::Corrupt(format!("a stored User: {error}"))
}

async fn put(
    store: &Store,
    name: &str,
    spec: &Value,
    precondition: Precondition,
    address: &str,
) -> Result<Object, StoreError> {
    let text = Text::parse(spec.to_string()).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    let put = Put {
        kind: User::KIND,
        key: Key::Name(name),
        spec: &text,
        at: "",
        labels: None,
        manager: Some(MANAGER),
        adopt: false,
        precondition,
        first_status: &first_status(User::KIND.name, store.now().await?),
    };
    Ok(store.acting(Arc::new(logging_in(name, address))).put(&put).await?.object)
}

/// Groups are a list of texts, or one text.
fn groups(claim: Option<&Value>) -> Vec<String> {
    match claim {
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Some(Value::String(one)) => vec![one.clone()],
        _ => Vec::new(),
    }
}

/// A DNS label from the issuer's name of the person. From a mail address, the part before the @ is used.
fn name(claim: Option<&Value>) -> Option<Name> {
    let said = claim?.as_str()?;
    let said = said.split('@').next().unwrap_or_default().to_ascii_lowercase();
    let label: String =
        said.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(NAME).collect();
    let label = label.trim_matches('-');
    label.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_called_as_the_issuer_calls_them_in_letters_that_names_have() {
        for (said, wanted) in [
            ("ada", Some("ada")),
            ("Ada.Lovelace@example.com", Some("ada-lovelace")),
            ("héloïse", Some("h-lo-se")),
            ("@example.com", None),
            ("--", None),
        ] {
            let found = name(Some(&json!(said)));
            assert_eq!(found.as_ref().map(Name::as_str), wanted, "{said}");
        }
        assert_eq!(name(Some(&json!(7))), None);
        assert_eq!(name(Some(&json!("x".repeat(100)))).unwrap().as_str().len(), NAME);
    }

    #[test]
    fn groups_are_a_list_or_one() {
        assert_eq!(groups(Some(&json!(["a", 1, "b"]))), ["a", "b"]);
        assert_eq!(groups(Some(&json!("a"))), ["a"]);
        assert_eq!(groups(None), [""; 0]);
    }
}
