//! The filter between the store and an answer: names of machines and deployments in pools that the caller does not see.
//!
//! Two sorts of places name an object of a pool to somebody who sees other pools alone:
//!
//! 1. Texts, as `Machine "web1"`: messages of errors, conditions and plans. A name of a hidden pool becomes
//!    `a Machine that you do not see`. A sentence `there is no Machine "web1"` stays as it is: it repeats what the caller said, in the same
//!    words for what is hidden and what is missing.
//! 2. References in specs of kinds that are of no pool, such as a Device's `parent`. They become null unless the caller sees their object.
//!
//! A text that names objects in other words passes: whoever composes it decides by the pool what it says (`basalt_engine::select`).

use super::App;
use super::problem::{Answer, Refusal};
use super::rights::{POOLED, Rights};
use axum::body::{Body, to_bytes};
use axum::http::header;
use axum::response::Response;
use basalt_api::problem::PROBLEM_JSON;
use basalt_api::{KINDS, Kind, ProblemCode, Type};
use basalt_db::{Named, Store, StoreError};
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashSet};

/// A quote in a JSON text.
const QUOTE: &str = "\\\"";
/// Before a name that the caller said itself.
const REPEATED: &str = "there is no ";

/// The response, without the names that somebody with these rights does not see. `kind` is what the request is about.
pub(super) async fn hidden(
    app: &App,
    rights: &Rights,
    kind: Option<&'static Kind>,
    response: Response,
) -> Answer<Response> {
    if rights.unlimited().is_some() || !is_json(&response) {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    let broken =
        |error: &dyn std::fmt::Display| Refusal::new(ProblemCode::Internal, format!("an answer: {error}"));
    let bytes = to_bytes(body, usize::MAX).await.map_err(|error| broken(&error))?;
    let text = String::from_utf8(bytes.into()).map_err(|error| broken(&error))?;
    // Only pools are asked for: kinds of none have been refused, or are seen.
    let sees = |pool: Option<&str>| rights.over(pool).is_some();
    let text = without_hidden(app.store(), &sees, kind, text).await?;
    parts.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(parts, Body::from(text)))
}

fn is_json(response: &Response) -> bool {
    let media_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    media_type.is_some_and(|it| it.starts_with("application/json") || it == PROBLEM_JSON)
}

/// A JSON text without the names that somebody does not see, who sees these pools.
pub(super) async fn without_hidden(
    store: &Store,
    sees: &(dyn Fn(Option<&str>) -> bool + Sync),
    kind: Option<&'static Kind>,
    text: String,
) -> Result<String, StoreError> {
    if !may_name(kind, &text) {
        return Ok(text);
    }
    let mut named: BTreeSet<Named> =
        mentions(&text).filter_map(|it| Some((it.kind.to_owned(), it.name?))).collect();
    let mut value = match may_refer(kind, &text) {
        true => serde_json::from_str::<Value>(&text).ok(),
        false => None,
    };
    if let Some(value) = &mut value {
        each_reference(kind, value, &mut |kind, reference| {
            named.extend(reference.as_str().map(|name| (kind.to_owned(), name.to_owned())));
        });
    }
    let (shown, hidden): (Vec<_>, Vec<_>) =
        store.pools_of_named(&named).await?.into_iter().partition(|(_, pool)| sees(pool.as_deref()));
    let shown: HashSet<Named> = shown.into_iter().map(|(named, _)| named).collect();
    let hidden: HashSet<Named> = hidden.into_iter().map(|(named, _)| named).collect();
    let mut is_rewritten = false;
    if let Some(value) = &mut value {
        each_reference(kind, value, &mut |kind, reference| {
            let is_shown =
                reference.as_str().is_none_or(|name| shown.contains(&(kind.to_owned(), name.to_owned())));
            if !is_shown {
                *reference = Value::Null;
                is_rewritten = true;
            }
        });
    }
    let text = value.filter(|_| is_rewritten).map_or(text, |value| value.to_string());
    Ok(in_words(&text, &hidden))
}

/// Whether a JSON text can name what somebody does not see.
pub(super) fn may_name(kind: Option<&'static Kind>, text: &str) -> bool {
    mentions(text).next().is_some() || may_refer(kind, text)
}

/// An object that a text names.
struct Mention<'a> {
    kind: &'a str,
    /// `None`: the text ends within the name.
    name: Option<String>,
    /// The place of the kind, the mention's first byte.
    from: usize,
    to: usize,
}

/// Machines and deployments that a JSON text names. Texts that only repeat a request are left out.
fn mentions(text: &str) -> impl Iterator<Item = Mention<'_>> {
    POOLED.into_iter().flat_map(move |kind| {
        let begin = format!("{kind} {QUOTE}");
        let found: Vec<usize> = text.match_indices(&begin).map(|(at, _)| at).collect();
        found.into_iter().filter_map(move |from| {
            let is_repeated = text.get(..from).is_some_and(|before| before.ends_with(REPEATED));
            let at = from.saturating_add(begin.len());
            let rest = text.get(at..).filter(|_| !is_repeated)?;
            let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
            let name = rest.split(|c: char| !is_of_name(c)).next().unwrap_or_default();
            let to = at.saturating_add(name.len());
            let is_whole = text.get(to..).is_some_and(|rest| rest.starts_with(QUOTE));
            Some(match is_whole {
                true => {
                    Mention { kind, name: Some(name.to_owned()), from, to: to.saturating_add(QUOTE.len()) }
                }
                false => Mention { kind, name: None, from, to },
            })
        })
    })
}

/// The text with other words for what is hidden.
fn in_words(text: &str, hidden: &HashSet<Named>) -> String {
    let mut found: Vec<Mention<'_>> = mentions(text)
        .filter(|it| it.name.as_ref().is_none_or(|name| hidden.contains(&(it.kind.to_owned(), name.clone()))))
        .collect();
    found.sort_by_key(|it| it.from);
    let (mut words, mut at) = (String::with_capacity(text.len()), 0);
    for Mention { kind, from, to, .. } in found {
        words.push_str(text.get(at..from).unwrap_or_default());
        words.push_str(&format!("a {kind} that you do not see"));
        at = to;
    }
    words.push_str(text.get(at..).unwrap_or_default());
    words
}

/// The fields of a kind of no pool that refer to an object of a pool, and the kind of that.
fn references(kind: &'static Kind) -> impl Iterator<Item = (&'static str, &'static str)> {
    let fields = if POOLED.contains(&kind.name) { &[][..] } else { kind.spec.fields };
    fields.iter().filter_map(|field| match field.ty {
        Type::Ref(to) if POOLED.contains(&to) => Some((field.name, to)),
        _ => None,
    })
}

/// Says if an answer of this text can have such references.
fn may_refer(kind: Option<&'static Kind>, text: &str) -> bool {
    let mut kinds = KINDS.iter().copied().filter(|kind| references(kind).next().is_some());
    kinds.any(|it| kind == Some(it) || text.contains(&format!("\"{}\"", it.name)))
}

/// Calls `f` with the kind that is referred to and the value of every such reference: in specs, in what they come to, and in changes.
fn each_reference(
    kind: Option<&'static Kind>,
    value: &mut Value,
    f: &mut impl FnMut(&'static str, &mut Value),
) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| each_reference(kind, item, f)),
        Value::Object(members) => {
            let kind = said(members)
                .or_else(|| members.get("object").and_then(Value::as_object).and_then(said))
                .or(kind);
            for (field, to) in kind.into_iter().flat_map(references) {
                if let Some(value) = members.get_mut(field).filter(|value| value.is_string()) {
                    f(to, value);
                }
                if members.get("pointer").and_then(Value::as_str).and_then(|it| it.strip_prefix('/'))
                    == Some(field)
                {
                    for name in ["old", "new"] {
                        if let Some(value) = members.get_mut(name).filter(|value| value.is_string()) {
                            f(to, value);
                        }
                    }
                }
            }
            members.values_mut().for_each(|member| each_reference(kind, member, f));
        }
        _ => {}
    }
}

/// The kind of an object in an answer.
fn said(members: &Map<String, Value>) -> Option<&'static Kind> {
    Kind::find(members.get("kind")?.as_str()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hidden(names: &[(&str, &str)]) -> HashSet<Named> {
        names.iter().map(|(kind, name)| ((*kind).to_owned(), (*name).to_owned())).collect()
    }

    #[test]
    fn a_hidden_name_becomes_one_that_is_not_seen() {
        let words = |message: &str| {
            let text = json!({"detail": message}).to_string();
            let text = in_words(&text, &hidden(&[("Machine", "red-1"), ("Deployment", "red")]));
            serde_json::from_str::<Value>(&text).expect("JSON")["detail"].as_str().expect("a text").to_owned()
        };
        for (said, wanted) in [
            (
                "10.0.0.1 is of Machine \"red-1\" already",
                "10.0.0.1 is of a Machine that you do not see already",
            ),
            ("Deployment \"red\", Machine \"blue\"", "a Deployment that you do not see, Machine \"blue\""),
            ("Machine \"red\" is another", "Machine \"red\" is another"),
            ("there is no Machine \"red-1\"", "there is no Machine \"red-1\""),
            ("cut short: Machine \"red-…", "cut short: a Machine that you do not see…"),
        ] {
            assert_eq!(words(said), wanted);
        }
    }

    #[test]
    fn references_are_found_in_specs_and_changes_of_kinds_of_no_pool() {
        let mut answer = json!({
            "object": {"kind": "Device", "spec": {"parent": "m", "macs": []}, "status": {"effective": {"parent": "m"}}},
            "plan": {"changes": [{"pointer": "/parent", "old": "m", "new": "n"}, {"pointer": "/description", "old": "m"}]},
            "other": {"kind": "Zone", "spec": {"parent": "m"}},
        });
        let mut found = Vec::new();
        each_reference(None, &mut answer, &mut |kind, value| {
            found.push((kind, value.take()));
        });
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found.iter().all(|(kind, _)| *kind == "Machine"));
        assert_eq!(answer["object"]["spec"]["parent"], Value::Null);
        assert_eq!(answer["other"]["spec"]["parent"], "m");
    }

    /// The filter looks for references there and nowhere else.
    #[test]
    fn references_from_kinds_of_no_pool_stand_at_the_top_of_their_specs() {
        fn deep(ty: &'static Type) -> bool {
            match ty {
                Type::Ref(to) => POOLED.contains(to),
                Type::Object(schema) => schema.fields.iter().any(|field| deep(&field.ty)),
                Type::List(item) | Type::Set(item) => deep(item),
                Type::Map { key, value } => deep(key) || deep(value),
                _ => false,
            }
        }
        for kind in KINDS.iter().filter(|kind| !POOLED.contains(&kind.name)) {
            let is_found = |name: &str| references(kind).any(|(field, _)| field == name);
            let of_spec = kind.spec.fields.iter().filter(|field| deep(&field.ty));
            assert!(of_spec.map(|field| field.name).all(is_found), "{}", kind.name);
            assert!(!kind.status.fields.iter().any(|field| deep(&field.ty)), "{}", kind.name);
        }
    }
}
