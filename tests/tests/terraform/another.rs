//! Other values for declarable fields, from their descriptions alone.

use basalt_api::{Effect, Field, Kind, Presence, Semantic, Type, validate};
use serde_json::{Map, Value};

use crate::kinds::Declared;

/// The kinds of fields that are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    Scalar,
    Reference,
    Object,
    List,
    Set,
    Map,
}

impl Shape {
    const fn of(ty: &Type) -> Self {
        match ty {
            Type::Ref(_) => Self::Reference,
            Type::Object(_) => Self::Object,
            Type::List(_) => Self::List,
            Type::Set(_) => Self::Set,
            Type::Map { .. } => Self::Map,
            _ => Self::Scalar,
        }
    }
}

/// Other values that the type allows, the more usual ones first. Null stands for no value.
fn others(ty: &Type, value: &Value, effects: &[Effect]) -> Vec<Value> {
    match (ty, value) {
        (Type::Bool, Value::Bool(value)) => vec![(!value).into()],
        (Type::Int { max, .. }, Value::Number(value)) => {
            let value = value.as_i64().expect("a whole number");
            vec![if value < *max { value + 1 } else { value - 1 }.into()]
        }
        (Type::Enum(words), Value::String(word)) => {
            words.iter().filter(|it| *it != word).map(|it| (*it).into()).collect()
        }
        (Type::String | Type::Text, Value::String(text)) => vec![format!("{text} again").into()],
        (Type::Semantic(Semantic::Duration), Value::String(_)) => vec!["83s".into()],
        (Type::Ref(_), Value::String(_)) => vec![Value::Null],
        (Type::Object(described), Value::Object(fields)) => {
            described.fields.iter().flat_map(|field| with_another(field, fields, effects)).collect()
        }
        (Type::List(of), Value::Array(items)) => {
            let backwards: Vec<Value> = items.iter().rev().cloned().collect();
            let is_other = backwards != *items;
            is_other.then(|| backwards.into()).into_iter().chain(with_others(of, items, effects)).collect()
        }
        (Type::Set(of), Value::Array(items)) => {
            let less = items.split_last().map_or(&[][..], |(_, less)| less);
            let less = (!less.is_empty()).then(|| less.to_vec().into());
            less.into_iter().chain(with_others(of, items, effects)).collect()
        }
        (Type::Map { value: of, .. }, Value::Object(items)) => {
            let each = items.iter().flat_map(|(key, item)| {
                others(of, item, effects).into_iter().map(|other| with(items, key, other))
            });
            each.collect()
        }
        _ => Vec::new(),
    }
}

/// Objects that differ in one field.
fn with_another(field: &Field, fields: &Map<String, Value>, effects: &[Effect]) -> Vec<Value> {
    let Some(value) = fields.get(field.name).filter(|_| effects.contains(&field.effect)) else {
        return Vec::new();
    };
    let mut all = others(&field.ty, value, effects);
    if !matches!(field.presence, Presence::Optional) {
        all.retain(|other| !other.is_null());
    }
    all.into_iter().map(|other| with(fields, field.name, other)).collect()
}

fn with(fields: &Map<String, Value>, name: &str, value: Value) -> Value {
    let mut fields = fields.clone();
    if value.is_null() {
        fields.remove(name);
    } else {
        fields.insert(name.to_owned(), value);
    }
    fields.into()
}

/// Lists that differ in one item.
fn with_others(of: &Type, items: &[Value], effects: &[Effect]) -> Vec<Value> {
    let each = items.iter().enumerate().flat_map(|(at, item)| {
        others(of, item, effects).into_iter().map(move |other| {
            let mut items = items.to_vec();
            items[at] = other;
            items.into()
        })
    });
    each.collect()
}

/// True if the whole spec is valid by its own description.
fn is_valid(kind: &Kind, spec: &Value) -> bool {
    validate(kind, spec).is_empty()
}

impl Declared {
    /// The same with other values in some fields. `choose` gets a number of alternatives, and picks one.
    pub(crate) fn varied(mut self, mut choose: impl FnMut(usize) -> usize) -> Self {
        const EFFECTS: &[Effect] =
            &[Effect::None, Effect::Live, Effect::Reboot, Effect::Redeploy, Effect::Replace];
        for field in self.kind.spec.fields {
            let mut others = with_another(field, self.spec.as_object().expect("a spec"), EFFECTS);
            others.retain(|spec| is_valid(self.kind, spec));
            if let Some(spec) = others.get(choose(2 * others.len() + 1)) {
                self.spec = spec.clone();
            }
        }
        self
    }

    /// The same with other values in every field whose change has one of these effects and keeps the spec valid. Also returns those
    /// fields.
    pub(crate) fn changed(mut self, effects: &[Effect]) -> (Self, Vec<(&'static str, Shape)>) {
        let mut changed = Vec::new();
        for field in self.kind.spec.fields {
            let fields = self.spec.as_object().expect("a spec");
            let other = with_another(field, fields, effects).into_iter().find(|it| is_valid(self.kind, it));
            if let Some(spec) = other {
                self.spec = spec;
                changed.push((field.name, Shape::of(&field.ty)));
            }
        }
        (self, changed)
    }
}
