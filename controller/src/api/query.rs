//! Parameters in the query. Unknown ones are errors: a misspelt `dry_run` must not write.

use super::problem::{Answer, Refusal};
use axum::extract::{FromRequestParts, Query};
use axum::http::Uri;
use axum::http::request::Parts;
use basalt_api::filter::{Filter, Wrong};
use basalt_api::values::Generation;
use basalt_api::{FieldCode, Kind};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::time::Duration;

/// The default of `timeout` for a wait.
const USUAL_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest wait. Clients then ask again.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(300);

/// The query of endpoints without parameters.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParameters {}

impl<S: Send + Sync> FromRequestParts<S> for NoParameters {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Self> {
        parameters(&parts.uri)
    }
}

/// Parameters of logins.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoginParameters {
    /// True to send the token as a cookie, and not in the body.
    #[serde(default)]
    pub(super) cookie: bool,
}

/// Parameters of writes.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Flags {
    /// True to store nothing, and only answer with the result.
    #[serde(default)]
    pub(super) dry_run: bool,
}

/// Parameters of patches.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PatchParameters {
    /// True to store nothing, and only answer with the result.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// True to take over an object of another manager.
    #[serde(default)]
    pub(super) adopt: bool,
}

/// Parameters of renames.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RenameParameters {
    /// True to store nothing, and only answer with the result.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// True to rename an object of another manager too.
    #[serde(default)]
    pub(super) adopt: bool,
}

/// Parameters of deletions.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteParameters {
    /// True to delete nothing, and only answer with the result.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// True to release a machine at once, without the usual steps.
    #[serde(default)]
    pub(super) force: bool,
    /// True to delete only an object that no other object refers to.
    #[serde(default)]
    pub(super) if_unused: bool,
    /// True to delete an object of another manager too.
    #[serde(default)]
    pub(super) adopt: bool,
}

/// True if a write of any kind is a dry run. A query that cannot be read counts as false; the handler refuses it.
pub(super) fn is_dry_run(uri: &Uri) -> bool {
    Query::<DeleteParameters>::try_from_uri(uri).is_ok_and(|query| query.dry_run)
}

/// Parameters of lists.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParameters {
    pub(super) limit: Option<i64>,
    #[serde(rename = "continue")]
    pub(super) after: Option<String>,
    labels: Option<String>,
    pub(super) fields: Option<String>,
    pub(super) q: Option<String>,
    #[serde(rename = "where")]
    filter: Option<String>,
    /// True to include the layers of each object.
    #[serde(default)]
    pub(super) layers: bool,
}

impl ListParameters {
    pub(super) fn labels(&self) -> Answer<BTreeMap<String, String>> {
        labels(self.labels.as_deref())
    }

    /// The filter of objects of this kind.
    pub(super) fn filter(&self, kind: &'static Kind) -> Answer<Option<Filter>> {
        self.filter.as_deref().map(|text| filter(kind, text)).transpose()
    }
}

/// A filter, from the parameter or member `where`.
pub(super) fn filter(kind: &'static Kind, text: &str) -> Answer<Filter> {
    Filter::new(kind, text).map_err(|Wrong { at, message, hint }| {
        Refusal::field("/where", FieldCode::Format, format!("at character {at} of where: {message}"), hint)
    })
}

/// Reads labels like `rack=a,env=lab`.
pub(super) fn labels(text: Option<&str>) -> Answer<BTreeMap<String, String>> {
    let pairs = text.unwrap_or_default().split(',').filter(|p| !p.is_empty());
    let labels = pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').ok_or_else(|| {
                let message = format!("{pair:?} in labels is no label");
                Refusal::field("/labels", FieldCode::Format, message, "key=value, separated by commas")
            })?;
            Ok((key.to_owned(), value.to_owned()))
        })
        .collect::<Answer<BTreeMap<_, _>>>()?;
    let wrong: Vec<_> =
        basalt_api::validate_labels(&labels).into_iter().map(|error| error.below("/labels")).collect();
    if wrong.is_empty() { Ok(labels) } else { Err(Refusal::invalid(wrong)) }
}

/// The largest number of members in `fields`: each is copied from each object.
const MAX_FIELDS: usize = 64;

/// Checks a list like `metadata.name,status.conditions`: objects of at least one of the kinds can have each member.
pub(super) fn fields(kinds: &[&Kind], text: &str) -> Answer<()> {
    let named = text.split(',').count();
    if named > MAX_FIELDS {
        let message = format!("fields names {named} members");
        return Err(Refusal::field("/fields", FieldCode::TooLarge, message, format!("at most {MAX_FIELDS}")));
    }
    for path in text.split(',').filter(|path| !path.is_empty()) {
        let mut words = path.split('.');
        let known = match (words.next(), words.next()) {
            (Some("spec"), Some(field)) => kinds.iter().any(|kind| kind.spec.field(field).is_some()),
            (Some("status"), Some(field)) => kinds.iter().any(|kind| kind.status.field(field).is_some()),
            (Some("kind"), None) | (Some("metadata" | "spec" | "status"), _) => true,
            _ => false,
        };
        if !known {
            let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
            let message = match names.len() {
                ..=5 => format!("{path:?} in fields is no member of a {}", names.join(" or ")),
                _ => format!("{path:?} in fields is no member of any kind"),
            };
            let hint = "like metadata.name,spec,status.conditions; /docs has them all";
            return Err(Refusal::field("/fields", FieldCode::UnknownField, message, hint));
        }
    }
    Ok(())
}

/// Parameters of a watch.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WatchParameters {
    pub(super) since: Option<String>,
    pub(super) kinds: Option<String>,
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
}

/// Parameters of reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadParameters {
    /// A condition's type, or `Deleted`.
    pub(super) wait: Option<String>,
    /// The generation that the status must describe; by default the present one.
    pub(super) generation: Option<u64>,
    timeout: Option<basalt_api::values::Duration>,
}

impl ReadParameters {
    pub(super) fn generation(&self) -> Option<Generation> {
        self.generation.map(Generation::new)
    }

    pub(super) fn timeout(&self) -> Duration {
        let asked = self.timeout.map(basalt_api::values::Duration::get);
        asked.unwrap_or(USUAL_TIMEOUT).min(LONGEST_TIMEOUT)
    }
}

/// The default number of objects or entries per page.
const PAGE: i64 = 100;

/// The number of objects or entries per page, within its limits.
pub(super) fn limit(asked: Option<i64>) -> Answer<i64> {
    let limit = asked.unwrap_or(PAGE);
    if (1..=1000).contains(&limit) {
        return Ok(limit);
    }
    Err(Refusal::field("/limit", FieldCode::Range, format!("limit is {limit}"), "1 to 1000"))
}

/// The parameters that are not texts, with their forms.
const FORMS: &[(&str, &str)] = &[
    ("limit", "a whole number, 1 to 1000"),
    ("generation", "a whole number"),
    ("before", "`next` of the page before"),
    ("timeout", "a duration, like 90s or 5m"),
    ("since", "a time, like 2026-01-31T12:00:00Z"),
    ("state", "pending, delivered or dead"),
    ("dry_run", TRUTH),
    ("adopt", TRUTH),
    ("force", TRUTH),
    ("if_unused", TRUTH),
    ("layers", TRUTH),
    ("cookie", TRUTH),
    ("replay", TRUTH),
];

const TRUTH: &str = "true or false";

/// Reads the query. A NUL is refused, because no stored text contains one.
pub(super) fn parameters<T: DeserializeOwned>(uri: &Uri) -> Answer<T> {
    if uri.query().is_some_and(|query| query.contains("%00")) {
        let message = "the query contains %00, a NUL, which no text has";
        return Err(Refusal::field("", FieldCode::Format, message, "leave it out"));
    }
    Query::<T>::try_from_uri(uri).map(|q| q.0).map_err(|error| misread(uri, &error.to_string()))
}

/// The refusal of a query, with the name of the malformed or unknown parameter.
fn misread(uri: &Uri, error: &str) -> Refusal {
    // The error has the parameter's name before its reason.
    let is_named = |(name, _): &&(&str, &str)| {
        error.contains(&format!(": {name}: ")) && !error.contains(": unknown field ")
    };
    let given = |name: &str| {
        let texts = Query::<BTreeMap<String, String>>::try_from_uri(uri).ok()?.0;
        texts.get(name).cloned()
    };
    if let Some((name, form)) = FORMS.iter().find(is_named)
        && let Some(given) = given(name)
    {
        let message = format!("{name} is {given:?}");
        return Refusal::field(&format!("/{name}"), FieldCode::Format, message, *form);
    }
    let message = format!("the query {:?} is not understood: {error}", uri.query().unwrap_or_default());
    Refusal::field("", FieldCode::UnknownField, message, "see /openapi.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: DeserializeOwned + std::fmt::Debug>(query: &str) -> (String, FieldCode, String) {
        let uri = format!("/api/v1/zones?{query}").parse().expect("a URI");
        let refusal = parameters::<T>(&uri).expect_err("a refusal");
        let error = refusal.errors()[0].clone();
        (error.pointer.clone(), error.code, format!("{}: {}", error.message, error.hint.unwrap_or_default()))
    }

    #[test]
    fn a_parameter_of_another_form_is_named_with_its_value_and_its_form() {
        for (found, wanted) in [
            (
                refused::<ListParameters>("limit=abc"),
                ("/limit", "limit is \"abc\": a whole number, 1 to 1000"),
            ),
            (refused::<ListParameters>("q=x&limit="), ("/limit", "limit is \"\": a whole number, 1 to 1000")),
            (refused::<ListParameters>("layers=yes"), ("/layers", "layers is \"yes\": true or false")),
            (refused::<Flags>("dry_run=1"), ("/dry_run", "dry_run is \"1\": true or false")),
            (
                refused::<ReadParameters>("generation=-1"),
                ("/generation", "generation is \"-1\": a whole number"),
            ),
            (
                refused::<ReadParameters>("timeout=soon"),
                ("/timeout", "timeout is \"soon\": a duration, like 90s or 5m"),
            ),
        ] {
            assert_eq!(
                (found.0.as_str(), found.1, found.2.as_str()),
                (wanted.0, FieldCode::Format, wanted.1)
            );
        }
    }

    #[test]
    fn a_parameter_that_is_not_known_is_no_value_of_another_form() {
        let (pointer, code, message) = refused::<Flags>("dryrun=true");
        assert_eq!((pointer.as_str(), code), ("", FieldCode::UnknownField));
        assert!(message.contains("unknown field `dryrun`"), "{message}");
    }
}
