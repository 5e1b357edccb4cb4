//! What a spec means where it says nothing: the constants of its description. They appear in `status.effective`.

use crate::schema::{Const, Kind, Presence, Schema, Type};
use serde_json::{Map, Value};

/// The constants that stand for what `spec` leaves out, at their places. What the region chooses is not among them,
/// nor are collections that are just empty.
#[must_use]
pub fn effective(kind: &Kind, spec: &Value) -> Map<String, Value> {
    fill(kind.spec, spec.as_object())
}

fn fill(schema: &Schema, spec: Option<&Map<String, Value>>) -> Map<String, Value> {
    let mut filled = Map::new();
    for field in schema.fields {
        let declared = spec.and_then(|s| s.get(field.name)).filter(|v| !v.is_null());
        let value = match (&field.ty, declared, field.presence) {
            (Type::Object(inner), Some(declared), _) => object(fill(inner, declared.as_object())),
            (Type::Object(inner), None, Presence::Default(_)) => object(fill(inner, None)),
            (Type::Map { value: Type::Object(inner), .. }, Some(Value::Object(entries)), _) => {
                let filled = entries.iter().filter_map(|(key, entry)| {
                    object(fill(inner, entry.as_object())).map(|entry| (key.clone(), entry))
                });
                object(filled.collect())
            }
            (_, None, Presence::Default(Const::Empty)) => None,
            (ty, None, Presence::Default(constant)) => Some(constant.json(ty)),
            _ => None,
        };
        if let Some(value) = value {
            filled.insert(field.name.to_owned(), value);
        }
    }
    filled
}

fn object(map: Map<String, Value>) -> Option<Value> {
    (!map.is_empty()).then_some(Value::Object(map))
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
            Value::Object(effective(vlan, &declared)),
            json!({"mtu": 1500, "dhcp": {"lease_time": "10m"}})
        );
        let sample = Kind::find("Sample").unwrap();
        let declared =
            json!({"serial": "1", "count_wanted": 3, "parts": {"x": {"weight": 1}}, "colour": "red"});
        assert_eq!(Value::Object(effective(sample, &declared)), json!({"patience": "5m"}));
    }
}
