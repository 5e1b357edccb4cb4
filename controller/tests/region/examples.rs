//! Examples of all kinds; kinds with exclusive fields have several. Together they contain every field.

use crate::kinds::observe;
use crate::support::Lab;
use basalt_api::values::Naming;
use basalt_api::{KINDS, Kind, Presence, Schema, Type};
use serde_json::Value;
use std::collections::BTreeSet;

/// An object that is valid if the examples before it exist.
#[derive(Clone, Debug)]
pub(crate) struct Example {
    pub(crate) kind: &'static Kind,
    pub(crate) name: &'static str,
    pub(crate) spec: Value,
}

impl Example {
    pub(crate) fn path(&self) -> String {
        self.path_of(self.name)
    }

    pub(crate) fn path_of(&self, name: &str) -> String {
        format!("/api/v1/{}/{name}", self.kind.plural)
    }

    /// Another valid name for an object of the kind; the same name if clients cannot create a second one.
    pub(crate) fn other_name(&self, spec: &Value) -> String {
        match self.kind.naming {
            _ if !self.kind.declarable => self.name.to_owned(),
            Naming::Label => "another".to_owned(),
            Naming::DomainName => "another.example.com".to_owned(),
            Naming::Singleton => self.name.to_owned(),
            Naming::FabricVid => format!("{}.{}", spec["fabric"].as_str().unwrap_or_default(), spec["vid"]),
        }
    }

    pub(crate) async fn store(&self, lab: &Lab) {
        if self.kind.declarable {
            lab.api.declare(&self.path(), &self.spec.to_string()).await;
        } else {
            observe(lab, self.kind.name, self.name, &self.spec.to_string()).await;
        }
    }
}

/// All examples. Each one follows the examples that it refers to.
pub(crate) fn examples() -> Vec<Example> {
    let example = |it: basalt_api::Example| Example { kind: it.kind, name: it.name, spec: it.spec };
    basalt_api::examples().into_iter().map(example).collect()
}

/// Every value in a spec: its pointer and its type.
pub(crate) fn places(schema: &'static Schema, spec: &Value) -> Vec<(String, Type)> {
    let mut found = Vec::new();
    below(&Type::Object(schema), spec, "", &mut found);
    found
}

fn below(ty: &Type, value: &Value, at: &str, found: &mut Vec<(String, Type)>) {
    found.push((at.to_owned(), *ty));
    match (ty, value) {
        (Type::Object(schema), Value::Object(map)) => {
            for field in schema.fields {
                if let Some(value) = map.get(field.name) {
                    below(&field.ty, value, &format!("{at}/{}", field.name), found);
                }
            }
        }
        (Type::Map { value: item, .. }, Value::Object(map)) => {
            map.iter().for_each(|(key, value)| below(item, value, &format!("{at}/{key}"), found));
        }
        (Type::List(item) | Type::Set(item), Value::Array(items)) => {
            for (index, value) in items.iter().enumerate() {
                below(item, value, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// Adds all possible fields of a type, by pointer; `*` stands for variable keys.
fn fields(at: &str, ty: &'static Type, found: &mut BTreeSet<String>) {
    match ty {
        Type::Object(schema) => {
            for field in schema.fields {
                let here = format!("{at}/{}", field.name);
                found.insert(here.clone());
                fields(&here, &field.ty, found);
            }
        }
        Type::Map { value: item, .. } | Type::List(item) | Type::Set(item) => {
            let here = format!("{at}/*");
            found.insert(here.clone());
            fields(&here, item, found);
        }
        _ => {}
    }
}

/// Adds all fields of a value in the same way.
fn said(at: &str, ty: &'static Type, value: &Value, found: &mut BTreeSet<String>) {
    match (ty, value) {
        (Type::Object(schema), Value::Object(map)) => {
            for field in schema.fields.iter().filter(|field| map.contains_key(field.name)) {
                let here = format!("{at}/{}", field.name);
                found.insert(here.clone());
                said(&here, &field.ty, &map[field.name], found);
            }
        }
        (Type::Map { value: item, .. }, Value::Object(map)) => {
            for value in map.values() {
                found.insert(format!("{at}/*"));
                said(&format!("{at}/*"), item, value, found);
            }
        }
        (Type::List(item) | Type::Set(item), Value::Array(items)) => {
            for value in items {
                found.insert(format!("{at}/*"));
                said(&format!("{at}/*"), item, value, found);
            }
        }
        _ => {}
    }
}

#[test]
fn the_examples_say_every_field_of_every_kind() {
    let examples = examples();
    for kind in KINDS {
        let (mut all, mut shown) = (BTreeSet::new(), BTreeSet::new());
        for field in kind.spec.fields {
            all.insert(format!("/{}", field.name));
            fields(&format!("/{}", field.name), &field.ty, &mut all);
        }
        for example in examples.iter().filter(|example| example.kind == *kind) {
            for field in kind.spec.fields {
                if let Some(value) = example.spec.get(field.name) {
                    shown.insert(format!("/{}", field.name));
                    said(&format!("/{}", field.name), &field.ty, value, &mut shown);
                }
                assert!(field.presence != Presence::Required || example.spec.get(field.name).is_some());
            }
        }
        let missing: Vec<_> = all.difference(&shown).collect();
        assert!(missing.is_empty(), "no example of {} says {missing:?}: add it", kind.name);
    }
}
