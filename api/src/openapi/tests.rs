//! The document as a whole.

use super::*;
use crate::{KINDS, validate};
use std::collections::BTreeSet;
use std::path::Path;

fn document() -> Value {
    openapi(KINDS)
}

#[test]
fn the_sample_kind_shows_everything_a_description_can_say() {
    let document = document();
    let schemas = &document["components"]["schemas"];
    insta::assert_json_snapshot!(
        "sample_kind",
        json!({
            "paths": document["paths"].as_object().unwrap().iter()
                .filter(|(path, _)| path.contains("/samples")).collect::<std::collections::BTreeMap<_, _>>(),
            "schemas": schemas.as_object().unwrap().iter()
                .filter(|(name, _)| name.starts_with("Sample")).collect::<std::collections::BTreeMap<_, _>>(),
        })
    );
}

#[test]
fn every_reference_leads_somewhere_and_every_id_is_unique() {
    fn walk(value: &Value, root: &Value, ids: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(to)) = map.get("$ref") {
                    let pointer = to.strip_prefix('#').expect("a reference into the document");
                    assert!(root.pointer(pointer).is_some_and(|v| !v.is_null()), "{to}");
                }
                if let Some(Value::String(id)) = map.get("operationId") {
                    assert!(ids.insert(id.clone()), "{id}");
                }
                map.values().for_each(|v| walk(v, root, ids));
            }
            Value::Array(items) => items.iter().for_each(|v| walk(v, root, ids)),
            _ => {}
        }
    }
    let document = document();
    walk(&document, &document, &mut BTreeSet::new());
}

#[test]
fn every_parameter_of_a_path_is_declared() {
    let document = document();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let of_path: BTreeSet<&str> = path
                .split('/')
                .filter_map(|part| part.strip_prefix('{').and_then(|part| part.strip_suffix('}')))
                .collect();
            let declared: BTreeSet<&str> = operation["parameters"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|p| document.pointer(&p["$ref"].as_str().unwrap()[1..]).unwrap())
                .filter(|p| p["in"] == "path")
                .map(|p| p["name"].as_str().unwrap())
                .collect();
            assert_eq!(of_path, declared, "{method} {path}");
        }
    }
}

#[test]
fn examples_are_valid_and_of_every_kind() {
    for kind in KINDS {
        assert!(
            examples::example(kind).is_some(),
            "add an example of a {} to openapi/examples.rs",
            kind.name
        );
    }
    for example in examples() {
        let errors = validate(example.kind, &example.spec);
        assert!(errors.is_empty(), "{} {}: {errors:?}", example.kind.name, example.name);
    }
}

#[test]
fn the_document_in_git_is_this_one() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/openapi.json");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let now = openapi_text();
    if text == now {
        return;
    }
    let differs = text.lines().zip(now.lines()).position(|(old, new)| old != new);
    let line = differs.unwrap_or(text.lines().count().min(now.lines().count())) + 1;
    panic!(
        "docs/reference/openapi.json differs from line {line} on: run `make openapi`, and look at `git diff`"
    );
}

#[test]
fn what_the_commits_before_promised_is_kept_or_the_version_changes() {
    let mut compared = 0;
    for commit in ["HEAD", "HEAD^"] {
        let spec = format!("{commit}:docs/reference/openapi.json");
        let git = std::process::Command::new("git")
            .args(["-C", env!("CARGO_MANIFEST_DIR"), "show", &spec])
            .output();
        let Ok(old) = git.map_err(|_| ()).and_then(|said| match said.status.success() {
            true => serde_json::from_slice::<Value>(&said.stdout).map_err(|_| ()),
            false => Err(()),
        }) else {
            eprintln!("NOT COMPARED with {commit}: git does not show docs/reference/openapi.json of it");
            continue;
        };
        compared += 1;
        let new: Value = serde_json::from_str(&openapi_text()).unwrap();
        if old["info"]["version"] != new["info"]["version"] {
            continue;
        }
        let broken = compatibility::broken(&old, &new);
        assert!(
            broken.is_empty(),
            "clients of {commit} would notice; if that must be, change VERSION in api/src/openapi/mod.rs:\n{}",
            broken.join("\n")
        );
    }
    eprintln!("compared with {compared} commits");
}
