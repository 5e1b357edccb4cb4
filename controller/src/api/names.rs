//! Filters answers: removes names of machines and deployments in pools that the caller does not see.
//!
//! Two sorts of places can name an object of a pool to a caller who does not see that pool:
//!
//! 1. The region's own sentences, as `Machine "web1"`: messages of errors, conditions and plans. A name becomes
//!    `a Machine that you do not see`, unless the caller sees its object. So a hidden object reads like a missing one.
//!    Two sorts of names stay, because the request itself has them: names in a sentence `there is no Machine "web1"`, and names of
//!    objects that the request is to create.
//! 2. References in specs of kinds in no pool, such as a Device's `parent`. They become null, unless the caller sees their object.
//!
//! Declarations of people and outputs of scripts are not changed: see [`OF_OTHERS`].
//! A text that names objects in another form is not recognised; its author must check the pool (`basalt_engine::select`).

use super::App;
use super::caller::Caller;
use super::problem::{Answer, Refusal};
use super::rights::POOLED;
use axum::body::{Body, to_bytes};
use axum::http::header;
use axum::response::Response;
use basalt_api::problem::PROBLEM_JSON;
use basalt_api::{KINDS, Kind, ProblemCode, Type};
use basalt_db::{Named, Store, StoreError};
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap};

/// The words before a name that the request itself has.
const REPEATED: &str = "there is no ";
/// The end of a text that was shortened.
const CUT: char = '…';
/// Members with texts of other authors: declarations, changes of these, and scripts with their output.
const OF_OTHERS: [&str; 8] = ["spec", "effective", "old", "new", "labels", "layers", "script", "output"];

/// The response without the names that the caller does not see. `kind` is the kind of the request, and `name` the object's name, if the
/// path has one.
pub(super) async fn hidden(
    app: &App,
    caller: &Caller,
    kind: Option<&'static Kind>,
    name: Option<&str>,
    response: Response,
) -> Answer<Response> {
    if !is_json(&response) {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    let broken =
        |error: &dyn std::fmt::Display| Refusal::new(ProblemCode::Internal, format!("an answer: {error}"));
    let bytes = to_bytes(body, usize::MAX).await.map_err(|error| broken(&error))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| broken(&error))?;
    if text.is_empty() || !may_name(kind, text) {
        return Ok(Response::from_parts(parts, Body::from(bytes)));
    }
    let names = Names::of(app.store(), kind, text).await?;
    let is_said = |named: &Named| {
        let by_path = kind.is_some_and(|it| it.name == named.0) && name == Some(named.1.as_str());
        by_path || caller.declares(named)
    };
    // Only the pools are read: kinds in no pool have been refused before, or are seen.
    let Some(text) = names.reworded(&|pool| caller.rights.over(pool).is_some(), &is_said) else {
        return Ok(Response::from_parts(parts, Body::from(bytes)));
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(parts, Body::from(text)))
}

fn is_json(response: &Response) -> bool {
    let media_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    media_type.is_some_and(|it| it.starts_with("application/json") || it == PROBLEM_JSON)
}

/// True if a JSON text may name an object that some callers do not see.
pub(super) fn may_name(kind: Option<&'static Kind>, text: &str) -> bool {
    POOLED.iter().any(|kind| text.contains(&format!("{kind} \\\""))) || may_refer(kind, text)
}

/// A JSON text, with the pools of the objects that it names.
#[derive(Debug)]
pub(super) struct Names {
    kind: Option<&'static Kind>,
    value: Value,
    /// The pool of each named object. A name without an object is not in it.
    pools: HashMap<Named, Option<String>>,
}

impl Names {
    /// Reads the pools, once for all readers of the text. `kind` is the kind that the text is about.
    pub(super) async fn of(
        store: &Store,
        kind: Option<&'static Kind>,
        text: &str,
    ) -> Result<Self, StoreError> {
        let value = serde_json::from_str(text);
        let mut value =
            value.map_err(|error| StoreError::Corrupt(format!("an answer is no JSON: {error}")))?;
        let mut named = BTreeSet::new();
        each_text(&mut value, &mut |text| {
            named.extend(mentions(text).filter_map(|it| Some((it.kind.to_owned(), it.name?.to_owned()))));
        });
        each_reference(kind, &mut value, &mut |kind, reference| {
            named.extend(reference.as_str().map(|name| (kind.to_owned(), name.to_owned())));
        });
        Ok(Self { kind, value, pools: store.pools_of_named(&named).await? })
    }

    /// The text for a reader who sees these pools and whose request has these names; `None`: it stays as it is.
    pub(super) fn reworded(
        &self,
        sees: &dyn Fn(Option<&str>) -> bool,
        is_said: &dyn Fn(&Named) -> bool,
    ) -> Option<String> {
        let shows = |kind: &str, name: &str| {
            let named = (kind.to_owned(), name.to_owned());
            match self.pools.get(&named) {
                Some(pool) => sees(pool.as_deref()),
                // The request may be about to create the object.
                None => is_said(&named),
            }
        };
        let (mut value, mut is_reworded) = (self.value.clone(), false);
        each_text(&mut value, &mut |text| {
            if let Some(words) = in_words(text, &shows) {
                *text = words;
                is_reworded = true;
            }
        });
        each_reference(self.kind, &mut value, &mut |kind, reference| {
            if reference.as_str().is_some_and(|name| !shows(kind, name)) {
                *reference = Value::Null;
                is_reworded = true;
            }
        });
        is_reworded.then(|| value.to_string())
    }
}

/// Calls `f` with every text that the region composed.
fn each_text(value: &mut Value, f: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => f(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, f)),
        Value::Object(members) => {
            let ours = members.iter_mut().filter(|(name, _)| !OF_OTHERS.contains(&name.as_str()));
            ours.for_each(|(_, member)| each_text(member, f));
        }
        _ => {}
    }
}

/// A name of an object in a text.
struct Mention<'a> {
    kind: &'static str,
    /// `None`: the text was cut within the name.
    name: Option<&'a str>,
    /// The place of the kind, the mention's first byte.
    from: usize,
    to: usize,
}

/// The machines and deployments that a text names. A name that only repeats the request is left out.
fn mentions(text: &str) -> impl Iterator<Item = Mention<'_>> {
    POOLED.into_iter().flat_map(move |kind| {
        let begin = format!("{kind} \"");
        let found: Vec<usize> = text.match_indices(&begin).map(|(at, _)| at).collect();
        found.into_iter().filter_map(move |from| {
            let is_repeated = text.get(..from).is_some_and(|before| before.ends_with(REPEATED));
            let at = from.saturating_add(begin.len());
            let rest = text.get(at..).filter(|_| !is_repeated)?;
            let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
            let name = rest.split(|c: char| !is_of_name(c)).next().unwrap_or_default();
            let to = at.saturating_add(name.len());
            match text.get(to..)?.chars().next() {
                Some('"') => Some(Mention { kind, name: Some(name), from, to: to.saturating_add(1) }),
                Some(CUT) | None => Some(Mention { kind, name: None, from, to }),
                // This is not a name.
                Some(_) => None,
            }
        })
    })
}

/// The text with other words for hidden objects; `None`: it stays as it is.
fn in_words(text: &str, shows: &dyn Fn(&str, &str) -> bool) -> Option<String> {
    let mut found: Vec<Mention<'_>> =
        mentions(text).filter(|it| it.name.is_none_or(|name| !shows(it.kind, name))).collect();
    if found.is_empty() {
        return None;
    }
    found.sort_by_key(|it| it.from);
    let (mut words, mut at) = (String::with_capacity(text.len()), 0);
    for Mention { kind, from, to, .. } in found {
        words.push_str(text.get(at..from).unwrap_or_default());
        words.push_str(&format!("a {kind} that you do not see"));
        at = to;
    }
    words.push_str(text.get(at..).unwrap_or_default());
    Some(words)
}

/// The fields of a kind in no pool that refer to an object in a pool, with the kind of that object.
fn references(kind: &'static Kind) -> impl Iterator<Item = (&'static str, &'static str)> {
    let fields = if POOLED.contains(&kind.name) { &[][..] } else { kind.spec.fields };
    fields.iter().filter_map(|field| match field.ty {
        Type::Ref(to) if POOLED.contains(&to) => Some((field.name, to)),
        _ => None,
    })
}

/// True if an answer with this text may have such references.
fn may_refer(kind: Option<&'static Kind>, text: &str) -> bool {
    let mut kinds = KINDS.iter().copied().filter(|kind| references(kind).next().is_some());
    kinds.any(|it| kind == Some(it) || text.contains(&format!("\"{}\"", it.name)))
}

/// Calls `f` with the referenced kind and the value of every such reference: in specs, in effective specs, and in changes.
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

    /// The answer for a caller who sees the pool blue, and whose request has the name `new`.
    fn seen(answer: &Value) -> Value {
        let pool =
            |kind: &str, name: &str, pool: &str| ((kind.to_owned(), name.to_owned()), Some(pool.to_owned()));
        let pools = [
            pool("Machine", "red-1", "red"),
            pool("Machine", "own", "blue"),
            pool("Deployment", "red", "red"),
        ];
        let names = Names { kind: None, value: answer.clone(), pools: HashMap::from(pools) };
        let is_said = |named: &Named| ["new", "red-1"].contains(&named.1.as_str());
        let text = names.reworded(&|pool| pool == Some("blue"), &is_said);
        text.map_or_else(|| answer.clone(), |text| serde_json::from_str(&text).expect("JSON"))
    }

    #[test]
    fn a_name_that_is_not_seen_becomes_one_that_is_not_seen() {
        for (said, wanted) in [
            (
                "10.0.0.1 is of Machine \"red-1\" already",
                "10.0.0.1 is of a Machine that you do not see already",
            ),
            ("Deployment \"red\", Machine \"own\"", "a Deployment that you do not see, Machine \"own\""),
            ("Machine \"missing\" is as good", "a Machine that you do not see is as good"),
            ("Machine \"new\" will be created", "Machine \"new\" will be created"),
            ("there is no Machine \"red-1\"", "there is no Machine \"red-1\""),
            ("cut short: Machine \"red-…", "cut short: a Machine that you do not see…"),
            ("cut short: Machine \"red-", "cut short: a Machine that you do not see"),
            ("no name: Machine \"$HOSTNAME\" is up", "no name: Machine \"$HOSTNAME\" is up"),
        ] {
            assert_eq!(seen(&json!({"detail": said})), json!({"detail": wanted}));
        }
    }

    #[test]
    fn words_of_others_are_told_as_they_are() {
        let words = "see Machine \"red-1\", Machine \"$HOSTNAME\" and Deployment \"missing\"";
        let others: Map<String, Value> =
            OF_OTHERS.iter().map(|name| ((*name).to_owned(), json!({"deep": [words]}))).collect();
        let ours = json!({"items": [others], "message": "as good as Machine \"red-1\""});
        assert_eq!(
            seen(&ours),
            json!({"items": [others], "message": "as good as a Machine that you do not see"})
        );
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

    /// The filter looks for references only there.
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
