//! Msgpack in Terraform's form: <https://developer.hashicorp.com/terraform/plugin/terraform-plugin-protocol>.

use rmpv::Value;

use super::CodecError;
use crate::number::Num;
use crate::path::Path;
use crate::types::Type;
use crate::value::{Dynamic, Object, Val};

/// Every extension type means an unknown value. Terraform reads type 0. It writes type 12 if it knows something
/// about the value, which a reader may ignore.
const UNKNOWN: i8 = 0;

pub(crate) fn decode(bytes: &[u8], of: &Type) -> Result<Val, CodecError> {
    let mut rest = bytes;
    let value = rmpv::decode::read_value(&mut rest).map_err(|e| CodecError::Msgpack(e.to_string()))?;
    if !rest.is_empty() {
        return Err(CodecError::Msgpack(format!("{} bytes too many", rest.len())));
    }
    read(value, of, &Path::root())
}

pub(crate) fn encode(value: &Val) -> Vec<u8> {
    let mut out = Vec::new();
    // Writing to a vector cannot fail, and writing is the only source of errors.
    let _ = rmpv::encode::write_value(&mut out, &write(value));
    out
}

fn read(value: Value, of: &Type, at: &Path) -> Result<Val, CodecError> {
    Ok(match (value, of) {
        (Value::Nil, _) => Val::Null,
        (Value::Ext(..), _) => Val::Unknown,
        (Value::Boolean(value), Type::Bool) => Val::Bool(value),
        (Value::Integer(value), Type::Number) => number(&value.to_string(), at)?,
        (Value::F32(value), Type::Number) => float(f64::from(value), at)?,
        (Value::F64(value), Type::Number) => float(value, at)?,
        (Value::String(text), Type::Number) => number(text.as_str().unwrap_or_default(), at)?,
        (Value::String(text), Type::String) => match text.into_str() {
            Some(text) => Val::Str(text),
            None => return Err(CodecError::Msgpack(format!("{at}: text is not UTF-8"))),
        },
        (Value::Array(items), Type::List(element) | Type::Set(element)) => Val::List(
            items
                .into_iter()
                .enumerate()
                .map(|(i, item)| read(item, element, &at.index(i)))
                .collect::<Result<_, _>>()?,
        ),
        (Value::Map(items), Type::Map(element)) => {
            let mut map = Object::new();
            for (key, item) in items {
                let key = key_of(key, at)?;
                let item = read(item, element, &at.key(&key))?;
                map.insert(key, item);
            }
            Val::Map(map)
        }
        (Value::Map(items), Type::Object(attributes)) => {
            let mut map = Object::new();
            for (key, item) in items {
                let name = key_of(key, at)?;
                let at = at.attr(&name);
                let Some(of) = attributes.get(&name) else {
                    return Err(mismatch(
                        &at,
                        &Type::Object(attributes.clone()),
                        "an attribute unknown to the schema",
                    ));
                };
                map.insert(name, read(item, of, &at)?);
            }
            if let Some(name) = attributes.keys().find(|name| !map.contains_key(*name)) {
                return Err(CodecError::Missing { at: at.attr(name) });
            }
            Val::Map(map)
        }
        (Value::Array(items), Type::Tuple(elements)) if items.len() == elements.len() => {
            let items = items.into_iter().zip(elements).enumerate();
            let items = items.map(|(i, (item, of))| read(item, of, &at.index(i)));
            Val::List(items.collect::<Result<_, _>>()?)
        }
        // A value of any type is a pair: its type as JSON, and the value.
        (Value::Array(items), Type::Dynamic) => match <[Value; 2]>::try_from(items) {
            Ok([Value::Binary(json), value]) => {
                let of = Type::from_json(&serde_json::from_slice(&json)?);
                let of = of.ok_or_else(|| mismatch(at, &Type::Dynamic, "something that is no type"))?;
                let value = read(value, &of, at)?;
                Val::Dynamic(Box::new(Dynamic { of, value }))
            }
            _ => return Err(mismatch(at, &Type::Dynamic, "an array")),
        },
        (other, of) => return Err(mismatch(at, of, kind(&other))),
    })
}

fn key_of(key: Value, at: &Path) -> Result<String, CodecError> {
    match key {
        Value::String(text) => text.into_str(),
        _ => None,
    }
    .ok_or_else(|| CodecError::Msgpack(format!("{at}: a key is not text")))
}

fn number(text: &str, at: &Path) -> Result<Val, CodecError> {
    Num::parse(text).map(Val::Num).ok_or_else(|| CodecError::Number { at: at.clone(), text: text.to_owned() })
}

fn float(value: f64, at: &Path) -> Result<Val, CodecError> {
    Num::from_f64(value)
        .map(Val::Num)
        .ok_or_else(|| CodecError::Number { at: at.clone(), text: value.to_string() })
}

fn mismatch(at: &Path, want: &Type, got: &str) -> CodecError {
    CodecError::Mismatch { at: at.clone(), want: want.clone(), got: got.to_owned() }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Boolean(_) => "a bool",
        Value::Integer(_) | Value::F32(_) | Value::F64(_) => "a number",
        Value::String(_) => "text",
        Value::Binary(_) => "bytes",
        Value::Array(_) => "an array",
        Value::Map(_) => "a map",
        Value::Nil | Value::Ext(..) => "nothing",
    }
}

fn write(value: &Val) -> Value {
    match value {
        Val::Null => Value::Nil,
        Val::Unknown => Value::Ext(UNKNOWN, vec![0]),
        Val::Bool(value) => Value::Boolean(*value),
        Val::Num(Num::Int(value)) => Value::from(*value),
        // Text keeps every digit; a double would not.
        Val::Num(Num::Dec(text)) => Value::from(text.as_str()),
        Val::Str(text) => Value::from(text.as_str()),
        Val::List(items) => Value::Array(items.iter().map(write).collect()),
        Val::Map(items) => {
            Value::Map(items.iter().map(|(key, item)| (Value::from(key.as_str()), write(item))).collect())
        }
        Val::Dynamic(it) => {
            Value::Array(vec![Value::Binary(it.of.to_json().to_string().into_bytes()), write(&it.value)])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_unknown_is_extension_zero_with_one_byte() {
        assert_eq!(encode(&Val::Unknown), [0xd4, 0, 0]);
    }

    #[test]
    fn every_extension_is_read_as_unknown() {
        // Extension 12: "not null, begins with pre-", as Terraform 1.11 sends for "pre-${unknown}".
        let refined = [0xc7, 0x09, 0x0c, 0x82, 0x01, 0xc2, 0x02, 0xa4, b'p', b'r', b'e', b'-'];
        assert!(matches!(decode(&refined, &Type::String), Ok(Val::Unknown)));
    }

    #[test]
    fn a_number_too_large_for_msgpack_arrives_as_text() {
        let bytes = encode(&Val::from("18446744073709551615"));
        let value = decode(&bytes, &Type::Number).expect("a number");
        assert_eq!(value, Val::Num(Num::Dec("18446744073709551615".into())));
        assert_eq!(encode(&value), bytes);
    }

    #[test]
    fn a_mismatch_says_where_and_what() {
        let bytes = encode(&Val::from([("nics", vec![Val::from("x"), Val::from(true)].into())]));
        let of = Type::Object([("nics".to_owned(), Type::list(Type::String))].into());
        let error = decode(&bytes, &of).expect_err("a bool is no string");
        assert_eq!(error.to_string(), "nics[1]: string expected, a bool found");
    }

    #[test]
    fn a_value_of_any_type_is_a_pair_of_its_type_and_itself() {
        let bytes = encode(&Val::from("x").dynamic());
        assert_eq!(bytes, [&[0x92, 0xc4, 8], br#""string""#.as_slice(), &[0xa1, b'x']].concat());
        let error = decode(&encode(&Val::from("x")), &Type::Dynamic).expect_err("it brings no type");
        assert_eq!(error.to_string(), ": any value with its type expected, text found");
    }

    #[test]
    fn an_object_has_all_its_attributes() {
        let of = Type::Object([("name".to_owned(), Type::String)].into());
        let error = decode(&encode(&Val::Map(Object::new())), &of).expect_err("name is missing");
        assert_eq!(error.to_string(), "name: the attribute is missing");
    }

    /// A type and a value of it.
    pub(crate) fn typed() -> impl Strategy<Value = (Type, Val)> {
        types().prop_flat_map(|of| {
            let values = values(&of);
            (Just(of), values)
        })
    }

    fn types() -> impl Strategy<Value = Type> {
        let leaf = prop_oneof![Just(Type::Bool), Just(Type::Number), Just(Type::String), Just(Type::Dynamic)];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                inner.clone().prop_map(Type::list),
                inner.clone().prop_map(Type::set),
                inner.clone().prop_map(Type::map),
                prop::collection::btree_map("[a-z_]{1,6}", inner.clone(), 0..4).prop_map(Type::Object),
                prop::collection::vec(inner, 0..3).prop_map(Type::Tuple),
            ]
        })
    }

    fn values(of: &Type) -> BoxedStrategy<Val> {
        let known = match of {
            Type::Bool => any::<bool>().prop_map(Val::Bool).boxed(),
            Type::Number => prop_oneof![
                any::<i64>().prop_map(Val::from),
                "-?[0-9]{1,30}(\\.[0-9]{1,10})?"
                    .prop_filter_map("a number", |text| Num::parse(&text).map(Val::Num)),
            ]
            .boxed(),
            Type::String => any::<String>().prop_map(Val::Str).boxed(),
            Type::List(element) | Type::Set(element) => {
                prop::collection::vec(values(element), 0..4).prop_map(Val::List).boxed()
            }
            Type::Map(element) => {
                prop::collection::btree_map(any::<String>(), values(element), 0..4).prop_map(Val::Map).boxed()
            }
            Type::Object(attributes) => attributes
                .iter()
                .map(|(name, of)| (Just(name.clone()), values(of)))
                .collect::<Vec<_>>()
                .prop_map(|items| Val::Map(items.into_iter().collect()))
                .boxed(),
            Type::Tuple(elements) => {
                elements.iter().map(values).collect::<Vec<_>>().prop_map(Val::List).boxed()
            }
            Type::Dynamic => prop_oneof![
                any::<bool>().prop_map(|it| Val::from(it).dynamic()),
                prop::collection::vec(any::<i64>().prop_map(Val::from), 0..3)
                    .prop_map(|it| Val::from(it).dynamic()),
                Just(Val::Dynamic(Box::new(Dynamic { of: Type::String, value: Val::Null }))),
            ]
            .boxed(),
        };
        prop_oneof![1 => Just(Val::Null), 1 => Just(Val::Unknown), 8 => known].boxed()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back((of, value) in typed()) {
            prop_assert_eq!(decode(&encode(&value), &of).expect("own bytes"), value);
        }

        #[test]
        fn json_keeps_every_known_value((of, value) in typed()) {
            let value = value.without_unknowns();
            prop_assume!(!has_long_decimal(&value));
            let json = crate::codec::json::to_json(&value);
            prop_assert_eq!(crate::codec::json::from_json(&json, &of).expect("own JSON"), value);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), (of, _) in typed()) {
            let _ = decode(&bytes, &of);
        }
    }

    /// JSON numbers pass through a double in `serde_json`; longer decimals are not for state JSON.
    fn has_long_decimal(value: &Val) -> bool {
        match value {
            Val::Num(Num::Dec(text)) => text.len() > 15,
            Val::List(items) => items.iter().any(has_long_decimal),
            Val::Map(items) => items.values().any(has_long_decimal),
            Val::Dynamic(it) => has_long_decimal(&it.value),
            _ => false,
        }
    }
}
