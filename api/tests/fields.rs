//! Every field of the API has a named test that shows its effect.
//!
//! | table | rows | the named test |
//! | --- | --- | --- |
//! | `fields/spec.tsv` | fields that clients declare, and each word of their enums | fails if nothing acts on the field |
//! | `fields/status.tsv` | fields that the region reports | fails if nothing fills the field |
//!
//! A row is a key, a tab, and evidence. The key is `Schema.field` or `Schema.field=word`. Rows of a schema that several kinds share appear
//! once, and so do the fields of a struct that is flattened into several. A schema that specs and statuses share is only in `spec.tsv`.
//!
//! | evidence | meaning |
//! | --- | --- |
//! | `path/of/file.rs::test` | this test, by its path from the root of the workspace |
//! | `stored alone` | nothing acts on it yet: the field, the word or the kind has the mark `dormant` |
//! | `for people` | a text that people read; see [`FOR_PEOPLE`] |
//! | `untested` | no test shows it yet; see [`UNTESTED`] |
//!
//! A test that only stores a field and reads it back is no evidence. Before you add a row, open the test and check its effect.

#![expect(clippy::print_stdout, reason = "what is left to do is read by people")]

use basalt_api::kinds::{BuiltConfig, CommonStatus};
use basalt_api::{Const, KINDS, Model, Presence, Schema, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Fields that people read and filters use, without another effect.
const FOR_PEOPLE: &[&str] = &[
    "description",
    "TagSpec.comment",
    "UserSpec.email",
    "DeviceSpec.parent",
    "DeviceSpec.zone",
    "ImageSpec.os",
    "ImageSpec.release",
];

/// Number of rows of each table without a test. It may only become smaller.
const UNTESTED: [usize; 2] = [3, 8];

/// Structs that are flattened into several schemas.
const FLATTENED: [&Schema; 2] = [BuiltConfig::SCHEMA, CommonStatus::SCHEMA];

/// The keys of a table. True for keys that nothing acts on.
type Keys = BTreeMap<String, bool>;

/// Collects keys of schemas, each schema once.
struct Walk<'a> {
    seen: &'a mut BTreeSet<&'static str>,
    keys: Keys,
    /// True if words of enums have rows.
    words: bool,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &'static Schema, dormant: bool) {
        if !self.seen.insert(schema.name) {
            return;
        }
        for field in schema.fields {
            let key = format!("{}.{}", owner(schema, field.name), field.name);
            let marked = |word| dormant || field.dormant.iter().any(|it| it.word == word);
            let words = words(&field.ty);
            let is_default = |word: &'static str| field.presence == Presence::Default(Const::Str(word));
            // If all other words are stored alone, then so is the default: it changes nothing.
            let of_words =
                words.len() > 1 && words.iter().all(|word| is_default(word) || marked(Some(*word)));
            let is_dormant = marked(None) || of_words;
            for word in words.iter().filter(|_| self.words) {
                self.keys.insert(format!("{key}={word}"), is_dormant || marked(Some(*word)));
            }
            self.keys.insert(key, is_dormant);
            if let Some(below) = object(&field.ty) {
                self.schema(below, dormant);
            }
        }
    }
}

/// The schema that declares a field: `schema` itself, or one that is flattened into it.
fn owner(schema: &'static Schema, field: &str) -> &'static str {
    let is_part = |part: &Schema| {
        let mut fields = part.fields.iter();
        fields.all(|it| schema.field(it.name).is_some_and(|own| own.doc == it.doc))
    };
    let part = FLATTENED.into_iter().find(|part| is_part(part) && part.field(field).is_some());
    part.unwrap_or(schema).name
}

/// The schema of an object, or of the objects of a collection.
fn object(ty: &'static Type) -> Option<&'static Schema> {
    match ty {
        Type::Object(schema) => Some(schema),
        Type::List(item) | Type::Set(item) | Type::Map { value: item, .. } => object(item),
        _ => None,
    }
}

/// The words of an enum, or of the enums of a collection.
fn words(ty: &'static Type) -> &'static [&'static str] {
    match ty {
        Type::Enum(all) => all,
        Type::List(item) | Type::Set(item) | Type::Map { key: item, .. } => words(item),
        _ => &[],
    }
}

fn keys() -> [Keys; 2] {
    let mut seen = BTreeSet::new();
    [true, false].map(|is_spec| {
        let mut walk = Walk { seen: &mut seen, keys: Keys::new(), words: is_spec };
        // Other crates' tests turn on a kind that no region has.
        for kind in KINDS.iter().filter(|kind| kind.name != "Sample") {
            let schema = if is_spec { kind.spec } else { kind.status };
            walk.schema(schema, kind.dormant.is_some());
        }
        walk.keys
    })
}

/// The error in the evidence of a row, if there is one.
fn fault(root: &Path, key: &str, evidence: &str, dormant: bool) -> Option<String> {
    if evidence == "for people" {
        let name = key.rsplit('.').next();
        let is_listed = FOR_PEOPLE.iter().any(|it| *it == key || Some(*it) == name);
        return (!is_listed).then(|| "it is not one of FOR_PEOPLE".to_owned());
    }
    if (evidence == "stored alone") != dormant {
        return Some(format!("evidence {evidence:?}, and the description says dormant: {dormant}"));
    }
    if ["stored alone", "untested"].contains(&evidence) {
        return None;
    }
    let Some((path, test)) = evidence.split_once("::") else {
        return Some(format!("{evidence:?} is no evidence: path/of/file.rs::test"));
    };
    let text = match std::fs::read_to_string(root.join(path)) {
        Ok(text) => text,
        Err(error) => return Some(format!("{path}: {error}")),
    };
    (!has_test(&text, test)).then(|| format!("{path} has no test {test}"))
}

/// True if a source has a test function with this name.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let (plain, later) = (format!("fn {name}("), format!("async fn {name}("));
    let is_it = |line: &str| line.starts_with(&plain) || line.starts_with(&later);
    let is_test = |at: usize| {
        let attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
        attributes.into_iter().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
    };
    lines.iter().enumerate().any(|(at, line)| is_it(line) && is_test(at))
}

#[test]
fn every_field_has_a_test_that_shows_its_effect() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let tables = [include_str!("fields/spec.tsv"), include_str!("fields/status.tsv")];
    let (mut faults, mut untested) = (Vec::new(), [0, 0]);
    for ((keys, table), count) in keys().into_iter().zip(tables).zip(&mut untested) {
        let mut rows = BTreeMap::new();
        for row in table.lines() {
            match row.split_once('\t') {
                Some((key, evidence)) if rows.insert(key, evidence).is_none() => {}
                _ => faults.push(format!("{row:?} is no row, or its key is there twice")),
            }
        }
        for (key, dormant) in &keys {
            let Some(evidence) = rows.remove(key.as_str()) else {
                faults.push(format!("{key}: no row names a test that shows its effect"));
                continue;
            };
            faults.extend(fault(root, key, evidence, *dormant).map(|why| format!("{key}: {why}")));
            if evidence == "untested" {
                println!("{key} is untested");
                *count += 1;
            }
        }
        faults.extend(rows.into_keys().map(|key| format!("{key}: no such field or word")));
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert_eq!(untested, UNTESTED, "another number of rows is untested");
}

#[test]
fn evidence_that_shows_nothing_is_a_fault() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let this = "api/tests/fields.rs::";
    let fault = |key: &str, evidence: &str, dormant| fault(root, key, evidence, dormant).is_some();
    assert!(!fault("A.b", &format!("{this}evidence_that_shows_nothing_is_a_fault"), false));
    assert!(fault("A.b", &format!("{this}has_test"), false), "it is no test");
    assert!(fault("A.b", &format!("{this}gone"), false) && fault("A.b", "api/gone.rs::gone", false));
    assert!(fault("A.b", "stored alone", false) && fault("A.b", "untested", true));
    assert!(!fault("A.b", "stored alone", true) && !fault("A.description", "for people", false));
    assert!(fault("A.b", "for people", false) && fault("A.b", "somewhere", false));
}
