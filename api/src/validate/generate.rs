//! Random specs from a description, and hostile values for any place of a spec. For tests of properties that hold for every kind.

use super::limits::{MAX_STRING_BYTES, MAX_TEXT_BYTES};
use crate::pointer;
use crate::schema::{Field, Kind, Presence, Schema, Semantic, Type};
use crate::values::Naming;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A spec that its description allows. Rules between fields may still be broken.
pub(crate) fn spec(schema: &'static Schema) -> BoxedStrategy<Value> {
    let fields: Vec<_> = schema.fields.iter().map(field).collect();
    fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect::<Map<_, _>>())).boxed()
}

fn field(field: &'static Field) -> BoxedStrategy<Option<(String, Value)>> {
    let value = value(&field.ty).prop_map(|v| Some((field.name.to_owned(), v)));
    match field.presence {
        Presence::Required => value.boxed(),
        _ => prop_oneof![
            4 => value,
            3 => Just(None),
            1 => Just(Some((field.name.to_owned(), Value::Null))),
        ]
        .boxed(),
    }
}

fn value(ty: &'static Type) -> BoxedStrategy<Value> {
    match ty {
        Type::Bool => any::<bool>().prop_map(Value::from).boxed(),
        Type::Int { min, max } => {
            prop_oneof![Just(*min), Just(*max), *min..=*max].prop_map(Value::from).boxed()
        }
        Type::String => "[ -~äß]{0,12}".prop_map(Value::from).boxed(),
        Type::Text => "([ -~äß]|\n|\t){0,40}".prop_map(Value::from).boxed(),
        Type::Enum(words) => proptest::sample::select(*words).prop_map(Value::from).boxed(),
        Type::Semantic(semantic) => text(*semantic).prop_map(Value::from).boxed(),
        Type::Ref(kind) => match Kind::find(kind).map(|k| k.naming) {
            Some(Naming::FabricVid) => {
                ("[a-z0-9]{1,8}", 0..=4094_u16).prop_map(|(f, v)| json!(format!("{f}.{v}"))).boxed()
            }
            Some(Naming::DomainName) => "[a-z]{1,8}(\\.[a-z]{2,5}){0,2}".prop_map(Value::from).boxed(),
            Some(Naming::Singleton) => Just(json!("default")).boxed(),
            _ => "[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?".prop_map(Value::from).boxed(),
        },
        Type::Secret => prop_oneof![
            "[^\\x00\n]{0,12}".prop_map(Value::from),
            any::<u32>().prop_map(|r| json!({"set": true, "revision": r}))
        ]
        .boxed(),
        Type::Object(schema) => spec(schema),
        Type::List(item) => vec(value(item), 0..4).prop_map(Value::from).boxed(),
        Type::Set(item) => vec(value(item), 0..4).prop_map(|items| distinct(item, items)).boxed(),
        Type::Map { key, value: item } => btree_map(value_text(key), value(item), 0..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
            .boxed(),
        Type::Json => Just(json!({"anything": [1, {}]})).boxed(),
    }
}

fn value_text(key: &'static Type) -> BoxedStrategy<String> {
    value(key)
        .prop_filter_map("a key is a text, and not empty", |v| {
            v.as_str().filter(|s| !s.is_empty()).map(str::to_owned)
        })
        .boxed()
}

fn distinct(item: &Type, items: Vec<Value>) -> Value {
    let mut seen = std::collections::BTreeSet::new();
    items.into_iter().filter(|v| seen.insert(crate::canonical(item, v))).collect()
}

fn text(semantic: Semantic) -> BoxedStrategy<String> {
    match semantic {
        Semantic::Mac => prop_oneof![
            "[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}",
            "[0-9a-fA-F]{2}(-[0-9a-fA-F]{2}){5}",
            "[0-9a-f]{4}(\\.[0-9a-f]{4}){2}",
            "[0-9A-F]{12}",
        ]
        .boxed(),
        Semantic::Duid => prop_oneof![
            "00:0[1-4](:[0-9a-fA-F]{2}){1,128}",
            "00-0[1-4](-[0-9A-F]{2}){1,20}",
            "000[1-4]([0-9a-f]{2}){1,20}",
        ]
        .boxed(),
        Semantic::Ip => any::<std::net::IpAddr>().prop_map(|ip| ip.to_string()).boxed(),
        Semantic::Cidr => (any::<std::net::IpAddr>(), 1..=32_u8)
            .prop_filter_map("a network", |(ip, len)| crate::values::Cidr::containing(ip, len).ok())
            .prop_map(|net| net.to_string())
            .boxed(),
        Semantic::DnsLabel => "[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?".boxed(),
        Semantic::Hostname => "[a-zA-Z]([a-z0-9-]{0,8}[a-z0-9])?(\\.[a-z]{2,5}){0,2}".boxed(),
        Semantic::Host => prop_oneof![text(Semantic::Ip), text(Semantic::Hostname)].boxed(),
        Semantic::Tag => "[a-zA-Z0-9._-]{1,20}".boxed(),
        Semantic::Duration => prop_oneof![Just("0"), Just("90s"), Just("1m30s"), Just("2d"), Just("250ms")]
            .prop_map(str::to_owned)
            .boxed(),
        Semantic::Sha256 => "[0-9a-fA-F]{64}".boxed(),
        Semantic::Bytes => "[1-9][0-9]{0,2}(B|kB|KiB|MiB|GB|GiB|TiB)".boxed(),
        Semantic::SshPublicKey => (any::<[u8; 32]>(), "( [a-z]{1,8})?").prop_map(ed25519).boxed(),
        Semantic::OwnerName => "@|\\*|(\\*\\.)?_?[a-zA-Z0-9]{1,8}(\\.[a-z]{2,5}){0,2}".boxed(),
        Semantic::Schedule => {
            prop_oneof![Just("6h"), Just("90m"), Just("*/5 3 1,15 * 1-5")].prop_map(str::to_owned).boxed()
        }
        Semantic::Url => {
            "(http|HTTPS)://[a-z]{1,8}(\\.[a-z]{2,5}){0,2}(:8[0-9]{3})?(/[a-z0-9]{0,8}){0,3}".boxed()
        }
        Semantic::Uid => any::<u128>().prop_map(|n| uuid::Uuid::from_u128(n).to_string()).boxed(),
        Semantic::Timestamp => Just("2026-01-31T12:00:00Z".to_owned()).boxed(),
    }
}

fn ed25519((key, comment): ([u8; 32], String)) -> String {
    use base64::Engine;
    let wire = [&b"\0\0\0\x0bssh-ed25519\0\0\0\x20"[..], &key].concat();
    format!("ssh-ed25519 {}{comment}", base64::engine::general_purpose::STANDARD.encode(wire))
}

/// Every place in a spec that has a value, with its type.
pub(crate) fn places(schema: &'static Schema, spec: &Value) -> Vec<(String, Type)> {
    let mut found = Vec::new();
    below(&Type::Object(schema), spec, "", &mut found);
    found
}

fn below(ty: &Type, value: &Value, at: &str, found: &mut Vec<(String, Type)>) {
    if value.is_null() {
        return;
    }
    found.push((at.to_owned(), *ty));
    match (ty, value) {
        (Type::Object(schema), Value::Object(map)) => {
            for field in schema.fields {
                if let Some(value) = map.get(field.name) {
                    below(&field.ty, value, &pointer::child(at, field.name), found);
                }
            }
        }
        (Type::Map { value: item, .. }, Value::Object(map)) => {
            map.iter().for_each(|(key, value)| below(item, value, &pointer::child(at, key), found));
        }
        (Type::List(item) | Type::Set(item), Value::Array(items)) => {
            for (index, value) in items.iter().enumerate() {
                below(item, value, &pointer::child(at, &index.to_string()), found);
            }
        }
        _ => {}
    }
}

/// Values that no field of this type accepts, whatever its bounds.
pub(crate) fn hostile(ty: &Type) -> Vec<Value> {
    let mut all = match ty {
        Type::Bool => vec![json!("true"), json!(1)],
        Type::Int { min, max } => vec![
            json!("1"),
            json!(1.5),
            json!(3.0),
            json!(max + 1),
            json!(min - 1),
            json!(u64::MAX),
            json!(1e300),
            json!(true),
        ],
        Type::String => vec![json!(1), json!("a\nb"), json!("\0"), json!("x".repeat(MAX_STRING_BYTES + 1))],
        Type::Text => vec![json!(1), json!("\0"), json!("x".repeat(MAX_TEXT_BYTES + 1))],
        Type::Enum(_) | Type::Semantic(_) | Type::Ref(_) => {
            vec![json!(""), json!("no such thing!"), json!("ü\u{202e}"), json!(1), json!("x".repeat(9000))]
        }
        Type::Secret => {
            vec![json!(1), json!("\0"), json!({"set": false}), json!({"set": true, "plain": "x"})]
        }
        Type::Object(_) => vec![json!("x"), json!(1)],
        Type::List(_) | Type::Set(_) => vec![json!("x"), json!({}), json!(vec![Value::Null; 5000])],
        Type::Map { .. } => vec![json!("x"), json!({"": {}})],
        Type::Json => vec![json!("x")],
    };
    if !matches!(ty, Type::List(_) | Type::Set(_)) {
        all.push(json!([1]));
    }
    if ty.is_scalar() {
        all.push(json!({"a": {"b": 1}}));
    }
    all
}
