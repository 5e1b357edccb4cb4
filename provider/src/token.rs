//! The ephemeral resource `basalt_token`: an API token that is valid while Terraform runs.
//!
//! ```text
//! open   PUT api_tokens/terraform-UID {role, scopes, expires_at}; POST issue
//! renew  PATCH expires_at, after half of its life
//! close  DELETE
//! ```
//!
//! If an operation that used the token fails, Terraform does not close it; the end of this process does. If the process is
//! killed as well, the token expires, and the next open deletes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use basalt_api::client::{ClientError, DeleteOptions, ListOptions, Precondition};
use basalt_api::kinds::ApiToken;
use basalt_api::values::{self, Timestamp, Uid};
use basalt_api::wire::{PutMetadata, PutRequest};
use basalt_api::{Field, Kind, KindOf, Type as Kinds, validate_partial};
use serde_json::{Value, json};
use tfplugin::{Attribute, Cx, Diag, Diags, Ephemeral, Opened, Path, Schema, Type, Val, async_trait};

use crate::bounded::Bounded;
use crate::map::{self, NAME};
use crate::provider::Session;
use crate::refusal;

const KIND: &Kind = ApiToken::KIND;

/// The fields of an ApiToken that a configuration can set.
const FIELDS: [&str; 3] = ["user", "role", "scopes"];
const LIFETIME: &str = "lifetime";
const TOKEN: &str = "token";
const EXPIRES_AT: &str = "expires_at";

/// Lifetime of a token if the configuration gives none, and the shortest one.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(15 * 60);
const SHORTEST: Duration = Duration::from_secs(60);

/// This label finds the tokens of processes that were killed.
const LABEL: (&str, &str) = ("ephemeral", "terraform");

/// The ephemeral resource `basalt_token`.
pub(crate) struct Token {
    schema: Schema,
    session: Arc<Session>,
}

impl Token {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { schema: schema(), session }
    }
}

fn schema() -> Schema {
    let given = KIND.spec.fields.iter().filter(|field| FIELDS.contains(&field.name)).map(|field: &Field| {
        let of = if matches!(field.ty, Kinds::Set(_)) { Type::set(Type::String) } else { Type::String };
        Attribute::optional(field.name, of).doc(map::about(field))
    });
    let mut attributes: Vec<_> = given.collect();
    attributes.extend([
        Attribute::optional(LIFETIME, Type::String)
            .doc("How long it is good if Terraform ends without closing it; at least `1m`. Default: `15m`."),
        Attribute::computed(NAME, Type::String).doc("The name of its `ApiToken`, as the audit log has it."),
        Attribute::computed(TOKEN, Type::String).sensitive().doc("The token."),
        Attribute::computed(EXPIRES_AT, Type::String).doc("When it ends, unless it is renewed until then."),
    ]);
    let description = "A token for the region's API that is good while Terraform runs, and stands in no state and no plan: \
                       for other providers, and for write-only attributes. It is renewed as long as it is used, and \
                       deleted at the end. To make one takes the role admin.";
    Schema { description: description.to_owned(), attributes, ..Schema::default() }
}

/// The lifetime in a configuration.
fn lifetime(config: &Val) -> Result<Duration, Diags> {
    let Some(text) = config.get(LIFETIME).as_str() else { return Ok(DEFAULT_LIFETIME) };
    let wrong = |detail: String| Diag::error("Not a lifetime", detail).at(Path::root().attr(LIFETIME));
    match text.parse::<values::Duration>() {
        Ok(given) if given.get() >= SHORTEST => Ok(given.get()),
        Ok(_) => Err(wrong(format!("{text:?} is too short to be renewed in time; at least 1m.")).into()),
        Err(bad) => Err(wrong(format!("{}; {}.", bad.message, bad.hint)).into()),
    }
}

/// The private data from open to close.
#[derive(serde::Serialize, serde::Deserialize)]
struct Open {
    name: String,
    lifetime: Duration,
}

impl Open {
    fn read(cx: &Cx) -> Result<Self, Diags> {
        serde_json::from_slice(&cx.private()).map_err(|error| {
            Diag::error("Which token it was is not known", format!("{error}. It ends by itself.")).into()
        })
    }

    /// The end of the lifetime if it starts now, and the time of the renewal.
    fn ends(&self) -> (Timestamp, SystemTime) {
        let now = SystemTime::now();
        let end = Timestamp::try_from(now + self.lifetime).unwrap_or(Timestamp::MAX);
        (end, now + self.lifetime / 2)
    }

    fn failed(&self, error: &ClientError) -> Diags {
        refusal::diags(KIND, &self.name, error)
    }

    /// The errors of a failed open. They name the ephemeral resource, because its user does not know the name of the
    /// ApiToken.
    fn not_opened(&self, error: &ClientError, config: &Val) -> Diags {
        let (name, told) = (format!("ApiToken {:?}", self.name), "this \"basalt_token\"");
        let each = refusal::diags_of(KIND, &self.name, error, config).into_iter().map(|diag| Diag {
            summary: diag.summary.replace(&name, told),
            detail: diag.detail.replace(&name, told),
            ..diag
        });
        Diags(each.collect())
    }
}

#[async_trait]
impl Ephemeral for Token {
    fn type_name(&self) -> &str {
        "basalt_token"
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    async fn validate(&self, config: &Val) -> Diags {
        let declared = map::declared(KIND, config, config, &Val::Null);
        let wrong = validate_partial(KIND, &declared.spec, &declared.unknown);
        let mut diags = Diags(wrong.iter().map(|error| refusal::field(KIND, error, "", config)).collect());
        diags.extend(lifetime(config).err().into_iter().flatten());
        diags
    }

    async fn open(&self, cx: &Cx, config: &Val) -> Result<Opened, Diags> {
        let client = self.session.region()?.client;
        clear_expired(&client).await;
        let open = Open { name: format!("terraform-{}", Uid::generate()), lifetime: lifetime(config)? };
        let (expires_at, renew_at) = open.ends();
        let mut spec = map::declared(KIND, config, config, &Val::Null).spec;
        if let Value::Object(spec) = &mut spec {
            spec.insert(EXPIRES_AT.into(), expires_at.to_string().into());
        }
        let (key, value) = LABEL;
        let labels = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let metadata = PutMetadata { labels: Some(labels), ..PutMetadata::default() };
        let request = PutRequest { metadata, spec, ..PutRequest::default() };
        let made = client.call().await.put(KIND, &open.name, &request, Precondition::Absent).await;
        if let Err(error) = made {
            if matches!(error, ClientError::Interrupted { may_be_done: true }) {
                let _ = delete(&client, &open.name).await;
            }
            return Err(open.not_opened(&error, config));
        }
        let issued = client.call().await.issue_token(&open.name).await;
        let text = match issued {
            Ok(text) => text,
            Err(error) => {
                // Terraform closes only what was opened.
                let _ = delete(&client, &open.name).await;
                return Err(open.not_opened(&error, config));
            }
        };
        cx.set_private(serde_json::to_vec(&open).unwrap_or_default());
        let mut value = config.clone();
        value.set(NAME, open.name);
        value.set(TOKEN, text);
        value.set(EXPIRES_AT, expires_at.to_string());
        Ok(Opened { value, renew_at: Some(renew_at) })
    }

    async fn renew(&self, cx: &Cx) -> Result<Option<SystemTime>, Diags> {
        let open = Open::read(cx)?;
        let (expires_at, renew_at) = open.ends();
        let patch = json!({ EXPIRES_AT: expires_at.to_string() });
        let client = self.session.region()?.client;
        let renewed = client.call().await.patch(KIND, &open.name, &patch, Precondition::None).await;
        renewed.map_err(|error| open.failed(&error))?;
        Ok(Some(renew_at))
    }

    async fn close(&self, cx: &Cx) -> Result<(), Diags> {
        let open = Open::read(cx)?;
        let client = self.session.region()?.client;
        delete(&client, &open.name).await.map_err(|error| open.failed(&error))
    }
}

/// Deletes a token, also after an interruption.
async fn delete(client: &Bounded, name: &str) -> Result<(), ClientError> {
    let gone = client.call().await.delete(KIND, name, DeleteOptions::default()).await;
    let gone = match gone {
        Err(ClientError::Interrupted { .. }) => {
            client.for_the_last().delete(KIND, name, DeleteOptions::default()).await
        }
        gone => gone,
    };
    gone.map(drop)
}

/// Deletes expired tokens of processes that were killed. An error here does not prevent the opening of another token.
async fn clear_expired(client: &Bounded) {
    let (key, value) = LABEL;
    let labels = BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let options = ListOptions { labels, ..ListOptions::default() };
    let found = client.call().await.list_all(KIND, &options).await.unwrap_or_default();
    for token in found {
        let end =
            token.spec.get(EXPIRES_AT).and_then(Value::as_str).and_then(|at| at.parse::<Timestamp>().ok());
        if end.is_some_and(|end| end < Timestamp::now()) {
            let name = token.metadata.name.as_str();
            let gone = client.call().await.delete(KIND, name, DeleteOptions::default()).await;
            if let Err(error) = gone {
                tracing::warn!(%error, name, "an expired token stays");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(given: Value) -> Val {
        tfplugin::from_json(&given, &schema().value_type()).expect("a configuration")
    }

    #[test]
    fn the_role_of_a_token_is_described_as_the_name_of_a_role_and_not_as_its_base() {
        let schema = schema();
        let role = schema.attributes.iter().find(|attribute| attribute.name == "role").expect("an attribute");
        for said in [
            "Refers to `basalt_role` by name.",
            "`viewer`, `operator` and `admin` are what a role has as its `base`",
        ] {
            assert!(role.description.contains(said), "{}", role.description);
        }
    }

    #[tokio::test]
    async fn a_token_of_no_scopes_is_refused_and_one_that_says_none_has_all() {
        let token = Token::new(Arc::default());
        assert_eq!(token.validate(&config(json!({"role": "ci"}))).await, Diags::default());
        let wrong = token.validate(&config(json!({"role": "ci", "scopes": []}))).await;
        assert_eq!(wrong.0.len(), 1, "{wrong:?}");
        assert_eq!(wrong.0[0].path.to_string(), "scopes");
    }
}
