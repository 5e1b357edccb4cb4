//! The effective values of fields that a spec omits: the constants of its description. They appear in `status.effective`.

use crate::schema::{Const, Field, Kind, Presence, Schema, Type};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// The constants of the fields that `spec` omits, at their places. Values that the region chooses are not included, nor are empty
/// collections. The spec is deserialized as a stream and its values are not kept, because this runs whenever an object is shown.
///
/// # Errors
/// `spec` does not have the form of the kind's specs.
pub fn effective<'de, D: Deserializer<'de>>(kind: &Kind, spec: D) -> Result<Map<String, Value>, D::Error> {
    Ok(Nullable(Fill(kind.spec)).deserialize(spec)?.unwrap_or_else(|| nothing_declared(kind.spec)))
}

fn nothing_declared(schema: &Schema) -> Map<String, Value> {
    let constants = schema.fields.iter().filter_map(|field| Some((field.name.to_owned(), constant(field)?)));
    constants.collect()
}

/// The constant of a field that is not declared.
fn constant(field: &Field) -> Option<Value> {
    match (&field.ty, field.presence) {
        (Type::Object(inner), Presence::Default(_)) => object(nothing_declared(inner)),
        (_, Presence::Default(Const::Empty)) => None,
        (ty, Presence::Default(constant)) => Some(constant.json(ty)),
        _ => None,
    }
}

fn object(map: Map<String, Value>) -> Option<Value> {
    (!map.is_empty()).then_some(Value::Object(map))
}

/// Deserializes an object, and returns the constants of the fields that it omits.
#[derive(Clone, Copy)]
struct Fill(&'static Schema);

impl<'de> DeserializeSeed<'de> for Fill {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fill {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {}", self.0.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut spec: A) -> Result<Self::Value, A::Error> {
        let mut missing: Vec<Option<&Field>> = self.0.fields.iter().map(Some).collect();
        let mut filled = Map::new();
        while let Some(index) = spec.next_key_seed(Named(self.0))? {
            let Some(slot) = index.and_then(|index| missing.get_mut(index)) else {
                spec.next_value::<IgnoredAny>()?;
                continue;
            };
            let Some(field) = *slot else { return Err(A::Error::custom("a field that is there twice")) };
            let (declared, within) = match &field.ty {
                Type::Object(inner) => shown(spec.next_value_seed(Nullable(Fill(inner)))?),
                Type::Map { value: Type::Object(inner), .. } => {
                    shown(spec.next_value_seed(Nullable(Entries(inner)))?)
                }
                _ => (spec.next_value::<Option<IgnoredAny>>()?.is_some(), None),
            };
            if declared {
                *slot = None;
            }
            if let Some(within) = within {
                filled.insert(field.name.to_owned(), within);
            }
        }
        for field in missing.into_iter().flatten() {
            if let Some(value) = constant(field) {
                filled.insert(field.name.to_owned(), value);
            }
        }
        Ok(filled)
    }
}

/// First: true if the object is declared. Second: the constants of the fields that it omits.
fn shown(within: Option<Map<String, Value>>) -> (bool, Option<Value>) {
    (within.is_some(), within.and_then(object))
}

/// Deserializes a map of objects, and returns for each the constants of the fields that it omits.
#[derive(Clone, Copy)]
struct Entries(&'static Schema);

impl<'de> DeserializeSeed<'de> for Entries {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entries {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by key", self.0.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut filled = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if let Some(entry) = entries.next_value_seed(Nullable(Fill(self.0)))?.and_then(object) {
                filled.insert(key, entry);
            }
        }
        Ok(filled)
    }
}

/// Deserializes null as `None`.
struct Nullable<S>(S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or null")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

/// Deserializes a field's name as its index in the schema, if the schema has it.
struct Named(&'static Schema);

impl<'de> DeserializeSeed<'de> for Named {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Named {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.fields.iter().position(|field| field.name == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_the_spec_leaves_out_is_filled_in() {
        let vlan = Kind::find("Vlan").unwrap();
        let declared = json!({"fabric": "a", "vid": 5, "mtu": null, "dhcp": {"enabled": true}});
        assert_eq!(
            Value::Object(effective(vlan, &declared).unwrap()),
            json!({"mtu": 1500, "dhcp": {"lease_time": "10m"}})
        );
        let sample = Kind::find("Sample").unwrap();
        let declared =
            json!({"serial": "1", "count_wanted": 3, "parts": {"x": {"weight": 1}}, "colour": "red"});
        assert_eq!(Value::Object(effective(sample, &declared).unwrap()), json!({"patience": "5m"}));
    }

    #[test]
    fn what_is_not_declared_at_all_means_all_its_constants() {
        let vlan = Kind::find("Vlan").unwrap();
        let nothing = Value::Object(effective(vlan, &json!({"dhcp": null})).unwrap());
        assert_eq!(nothing["mtu"], 1500);
        assert_eq!(nothing, Value::Object(effective(vlan, &Value::Null).unwrap()));
        let text = r#"{"fabric":"a","vid":5,"later":{"deep":[1]}}"#;
        assert_eq!(
            effective(vlan, &mut serde_json::Deserializer::from_str(text)).unwrap(),
            effective(vlan, &json!({"fabric": "a", "vid": 5})).unwrap()
        );
        assert!(effective(vlan, &json!("a")).is_err());
    }
}
