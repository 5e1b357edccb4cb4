//! The OpenAPI 3.1 document of the REST API: paths from [`ROUTES`], everything about kinds from their descriptions.
//!
//! | module | is |
//! | --- | --- |
//! | [`answers`] | what each operation answers; its refusals, by rules |
//! | [`parameters`] | parameters, each described once |
//! | [`schemas`], [`wire`], [`shape`] | the schemas of kinds; those that are not about kinds; and how those follow from types |
//! | [`examples`] | an object of every kind |
//!
//! `docs/reference/openapi.json` is this document; `make openapi` writes it.

mod answers;
#[cfg(test)]
mod compatibility;
mod examples;
mod parameters;
mod schemas;
pub(crate) mod shape;
#[cfg(test)]
mod tests;
mod text;
mod wire;

pub use examples::{Example, examples};
pub use text::openapi_text;

use crate::routes::{Kinds, ROUTES, Route, RouteId};
use crate::schema::Kind;
use crate::wire::MERGE_PATCH;
use serde_json::{Map, Value, json};

/// The version of the document. A change that breaks clients must raise it: see `compatibility`.
const VERSION: &str = "0.6";

/// The OpenAPI 3.1 document for these kinds.
#[must_use]
pub fn openapi(kinds: &[&Kind]) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        match route.kinds {
            Kinds::Itself => add(&mut paths, route, None),
            of => {
                kinds.iter().filter(|kind| of.has(kind)).for_each(|kind| add(&mut paths, route, Some(kind)))
            }
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Basalt",
            "version": VERSION,
            "summary": "Bare metal, declared.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {
                "type": "http",
                "scheme": "bearer",
                "description": "The text of an ApiToken or of a session. Over DIR/api.sock, root needs none.",
            }},
            "parameters": parameters::components(kinds),
            "headers": answers::headers(),
            "responses": answers::refusals(),
            "schemas": schemas::components(kinds),
        },
    })
}

fn add(paths: &mut Map<String, Value>, route: &Route, kind: Option<&Kind>) {
    let path = route.path.replace("{plural}", kind.map_or("", |k| k.plural));
    let mut operation = Map::new();
    operation.insert("operationId".to_owned(), json!(named(route.operation, kind)));
    operation.insert("summary".to_owned(), json!(named(route.words, kind)));
    if let Some(kind) = kind {
        operation.insert("tags".to_owned(), json!([kind.name]));
    }
    if route.role.is_none() {
        operation.insert("security".to_owned(), json!([]));
    }
    if !route.parameters.is_empty() {
        let of = |key: &&str| parameters::reference(key, route, kind);
        operation.insert("parameters".to_owned(), route.parameters.iter().map(of).collect());
    }
    if let Some(body) = route.request {
        let content = json!({ (media_type(body)): content(body, route, kind) });
        operation.insert("requestBody".to_owned(), json!({"required": true, "content": content}));
    }
    operation.insert("responses".to_owned(), answers::of(route, kind));
    let entry = paths.entry(path).or_insert_with(|| json!({}));
    if let Some(entry) = entry.as_object_mut() {
        entry.insert(route.method.to_ascii_lowercase(), Value::Object(operation));
    }
}

/// A text of the table with the kind's name filled in.
fn named(text: &str, kind: Option<&Kind>) -> String {
    text.replace("{Kind}", kind.map_or("", |k| k.name))
}

/// The media type of a body. The table names a body by its schema, or by its media type if it is not JSON.
fn media_type(body: &str) -> &str {
    if body.contains('/') { body } else { "application/json" }
}

/// Schema and example of a request body.
fn content(body: &str, route: &Route, kind: Option<&Kind>) -> Value {
    let schema = match body {
        MERGE_PATCH => schemas::reference(&named("{Kind}Patch", kind)),
        media_type if media_type.contains('/') => return json!({}),
        name => schemas::reference(&named(name, kind)),
    };
    let example = kind.and_then(examples::example).and_then(|example| match route.id {
        RouteId::Write => Some(json!({"spec": example.spec})),
        RouteId::Patch => Some(json!({"description": example.spec.get("description")?})),
        _ => None,
    });
    match example {
        Some(example) => json!({"schema": schema, "example": example}),
        None => json!({ "schema": schema }),
    }
}
