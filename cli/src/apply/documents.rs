//! Files of declarations: YAML or JSON, with several documents in one file, and lists like those of `basalt get -o json`.

use std::io::Read;
use std::path::{Path, PathBuf};

use basalt_api::wire::Document;
use serde_json::Value;

use crate::region::Failed;

/// A document and its place.
#[derive(Debug)]
pub(crate) struct Declared {
    pub(crate) document: Document,
    /// Name of the file.
    pub(crate) file: String,
    /// Position of the document in the file, from 1. 0: the only one.
    pub(crate) number: usize,
}

/// Reads every document of these files, in their order.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<Declared>, Failed> {
    let mut declared = Vec::new();
    for path in paths {
        for file in files(path)? {
            let (name, text) = text(&file)?;
            let values = values(&name, &text)?;
            let only = values.len() == 1;
            for (index, value) in values.into_iter().enumerate() {
                let number = if only { 0 } else { index + 1 };
                let document = serde_path_to_error::deserialize(value).map_err(|error| {
                    let which = if only { name.clone() } else { format!("{name}, document {number}") };
                    Failed::Words(format!("{which} is no declaration: {}", in_words(&error)))
                })?;
                declared.push(Declared { document, file: name.clone(), number });
            }
        }
    }
    if declared.is_empty() {
        return Err(Failed::Words("there is nothing in these files".to_owned()));
    }
    Ok(declared)
}

/// The error with the field's path and a remedy.
fn in_words(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let (path, inner) = (error.path().to_string(), error.inner().to_string());
    let place = if path == "." { String::new() } else { format!("{path}: ") };
    let todo = if inner.contains("expected a string") {
        "put it in quotes: YAML takes words like off, no and 1e3 for something else"
    } else {
        "it needs kind, metadata with a name, and spec"
    };
    format!("{place}{inner}; {todo}")
}

/// The file itself. For a directory, its YAML and JSON files by name.
fn files(path: &Path) -> Result<Vec<PathBuf>, Failed> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |source| Failed::File { path: path.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if file.extension().is_some_and(|e| e == "json" || e == "yaml" || e == "yml") && file.is_file() {
            found.push(file);
        }
    }
    found.sort();
    Ok(found)
}

fn text(path: &Path) -> Result<(String, String), Failed> {
    let failed = |source| Failed::File { path: path.to_owned(), source };
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
        return Ok(("standard input".to_owned(), text));
    }
    Ok((path.display().to_string(), std::fs::read_to_string(path).map_err(failed)?))
}

/// The documents of a text. The items of a list are separate documents.
fn values(name: &str, text: &str) -> Result<Vec<Value>, Failed> {
    let is_json = text.trim_start().starts_with(['{', '[']);
    let parsed = if is_json {
        serde_json::Deserializer::from_str(text)
            .into_iter::<Value>()
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())
    } else {
        serde_saphyr::from_multiple::<Value>(text).map_err(|error| error.to_string())
    };
    let parsed = parsed.map_err(|error| {
        Failed::Words(format!("{name} is neither YAML nor JSON that can be read: {error}"))
    })?;
    Ok(parsed.into_iter().filter(|value| !value.is_null()).flat_map(apart).collect())
}

fn apart(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        // A list in the form of the region's answer. An object with other members stays whole, since those members would be lost.
        Value::Object(mut list)
            if list.get("items").is_some_and(Value::is_array)
                && list.keys().all(|key| ["items", "continue", "position"].contains(&key.as_str())) =>
        {
            list.remove("items").map_or_else(Vec::new, apart)
        }
        one => vec![one],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const YAML: &str = "\
kind: Zone
metadata: {name: row-1}
spec: {description: by the door}
---
# A machine
kind: Machine
metadata:
  name: m1
  labels: {app: lab}
spec:
  boot_macs: ['52:54:00:00:00:01']
  locked: false
---
";

    #[test]
    fn documents_of_yaml_are_those_of_json() {
        let expected = [
            json!({"kind": "Zone", "metadata": {"name": "row-1"}, "spec": {"description": "by the door"}}),
            json!({"kind": "Machine", "metadata": {"name": "m1", "labels": {"app": "lab"}},
                   "spec": {"boot_macs": ["52:54:00:00:00:01"], "locked": false}}),
        ];
        assert_eq!(values("a.yaml", YAML).unwrap(), expected);
        let listed = json!({"items": expected}).to_string();
        assert_eq!(values("a.json", &listed).unwrap(), expected);
        let in_a_row = format!("{}\n{}", expected[0], expected[1]);
        assert_eq!(values("a.json", &in_a_row).unwrap(), expected);
    }

    #[test]
    fn what_was_read_from_a_region_can_be_applied() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("zone.json");
        let read = json!({"kind": "Zone", "spec": {}, "status": {"conditions": []},
            "metadata": {"name": "a", "uid": "x", "generation": 3, "labels": {}}});
        std::fs::write(&file, read.to_string()).unwrap();
        std::fs::write(dir.path().join("README.md"), "not read").unwrap();
        let declared = read_one(dir.path());
        assert_eq!((declared.document.metadata.name.as_str(), declared.number), ("a", 0));
    }

    fn read_one(path: &Path) -> Declared {
        let mut all = read(&[path.to_owned()]).unwrap();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    #[test]
    fn what_cannot_be_read_says_where() {
        let dir = tempfile::tempdir().unwrap();
        let cases = [
            ("a.yaml", "kind: Zone\nmetadata: {name: [", "a.yaml is neither"),
            (
                "off.yaml",
                "kind: Zone\nmetadata: {name: off}\nspec: {}",
                "off.yaml is no declaration: metadata.name: invalid type: boolean `false`, expected a string; put it in quotes",
            ),
            (
                "key.yaml",
                "kind: Zone\nmetadata: {name: a}\nspec: {}\nspeck: {}",
                "key.yaml is no declaration: speck: unknown field `speck`, expected one of",
            ),
            (
                "label.yaml",
                "kind: Zone\nmetadata: {name: a, label: {row: '7'}}\nspec: {}",
                "label.yaml is no declaration: metadata.label: unknown field `label`, expected one of",
            ),
            (
                "list.yaml",
                "items: []\nkind: Zone",
                "list.yaml is no declaration: items: unknown field `items`",
            ),
            ("twice.yaml", "kind: Zone\nmetadata: {name: a}\nspec: {}\nspec: {}", "twice.yaml is neither"),
            ("b.yaml", "kind: Zone\nspec: {}\n---\nkind: Zone", "b.yaml, document 1 is no declaration"),
            ("c.json", "{", "c.json is neither"),
            ("d.yaml", "# nothing\n", "there is nothing"),
        ];
        for (name, text, says) in cases {
            let file = dir.path().join(name);
            std::fs::write(&file, text).unwrap();
            let error = read(&[file]).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let missing = read(&[dir.path().join("none.yaml")]).unwrap_err().to_string();
        assert!(missing.contains("none.yaml"), "{missing}");
    }
}
