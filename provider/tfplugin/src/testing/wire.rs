//! Decodes the schemas and identities of a provider, and encodes states like Terraform.

use crate::codec;
use crate::pb;
use crate::pb::schema::object::NestingMode;
use crate::schema::{Attribute, Mode, Nesting, Schema};
use crate::types::Type;
use crate::value::Val;

/// A schema, as far as Terraform's rules need it. Blocks, which are not attributes, are refused.
pub(super) fn schema(schema: &pb::Schema) -> Result<Schema, String> {
    let block = schema.block.as_ref().ok_or("there is no block in it")?;
    if let Some(nested) = block.block_types.first() {
        return Err(format!("{:?} is a nested block, and not an attribute", nested.type_name));
    }
    Ok(Schema { version: schema.version, attributes: attributes(&block.attributes)?, ..Schema::default() })
}

fn attributes(all: &[pb::schema::Attribute]) -> Result<Vec<Attribute>, String> {
    all.iter().map(|one| attribute(one).map_err(|why| format!("{}: {why}", one.name))).collect()
}

fn attribute(sent: &pb::schema::Attribute) -> Result<Attribute, String> {
    let mode = match (sent.required, sent.optional, sent.computed) {
        (true, false, false) => Mode::Required,
        (false, true, false) => Mode::Optional,
        (false, true, true) => Mode::OptionalComputed,
        (false, false, true) => Mode::Computed,
        _ => {
            return Err(
                "it is not exactly one of required, optional, computed, optional and computed".to_owned()
            );
        }
    };
    let mut attribute = match &sent.nested_type {
        None => {
            let json = serde_json::from_slice(&sent.r#type).map_err(|error| error.to_string())?;
            Attribute::plain(
                &sent.name,
                mode,
                Type::from_json(&json).ok_or_else(|| format!("{json} is no type"))?,
            )
        }
        Some(nested) => {
            let nesting = match nested.nesting() {
                NestingMode::Single => Nesting::Single,
                NestingMode::List => Nesting::List,
                NestingMode::Set => Nesting::Set,
                NestingMode::Map => Nesting::Map,
                NestingMode::Invalid => return Err("its nesting is not said".to_owned()),
            };
            Attribute::nested(&sent.name, mode, nesting, attributes(&nested.attributes)?)
        }
    };
    attribute.write_only = sent.write_only;
    attribute.sensitive = sent.sensitive;
    Ok(attribute)
}

/// The result type of a function.
pub(super) fn returned(function: &pb::Function) -> Result<Type, String> {
    let returns = function.r#return.as_ref().ok_or("it returns nothing")?;
    let json = serde_json::from_slice(&returns.r#type).map_err(|error| error.to_string())?;
    Type::from_json(&json).ok_or_else(|| format!("{json} is no type"))
}

/// The identity schema of a resource.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) version: i64,
    pub(super) of: Type,
    /// The attributes that an import must give.
    required: Vec<String>,
}

/// The schema of an identity, if Terraform takes it.
pub(super) fn identity(sent: &pb::ResourceIdentitySchema) -> Result<Identity, String> {
    let (mut types, mut required) = (std::collections::BTreeMap::new(), Vec::new());
    for attribute in &sent.identity_attributes {
        let name = &attribute.name;
        if attribute.required_for_import == attribute.optional_for_import {
            return Err(format!("{name}: it is not exactly one of required and optional"));
        }
        let json = serde_json::from_slice(&attribute.r#type).map_err(|error| format!("{name}: {error}"))?;
        let found = Type::from_json(&json).ok_or_else(|| format!("{name}: {json} is no type"))?;
        let simple = if let Type::List(element) = &found { element.as_ref() } else { &found };
        if !matches!(simple, Type::Bool | Type::Number | Type::String) {
            return Err(format!("{name}: {found} identifies nothing"));
        }
        if types.insert(name.clone(), found).is_some() {
            return Err(format!("{name}: there are two of this name"));
        }
        required.extend(attribute.required_for_import.then(|| name.clone()));
    }
    if types.is_empty() {
        return Err("nothing is in it".to_owned());
    }
    Ok(Identity { version: sent.version, of: Type::Object(types), required })
}

impl Identity {
    /// The errors in an identity of this schema.
    pub(super) fn wrong(&self, identity: &pb::ResourceIdentityData) -> Vec<String> {
        match codec::decode(identity.identity_data.as_ref(), &self.of) {
            Err(error) => vec![format!("the identity: {error}")],
            Ok(value) if !value.is_wholly_known() => {
                vec![format!("the identity {value} is not known as a whole")]
            }
            Ok(value) => {
                let missing = self.required.iter().filter(|name| value.get(name).is_null());
                missing.map(|name| format!("the identity has no {name}")).collect()
            }
        }
    }

    /// The value of an identity of this schema.
    pub(super) fn read(&self, identity: &pb::ResourceIdentityData) -> Val {
        codec::decode(identity.identity_data.as_ref(), &self.of).unwrap_or(Val::Null)
    }
}

/// A state in Terraform's storage format, with all digits of its numbers.
pub(super) fn stored(value: &Val) -> String {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    match value {
        Val::Null | Val::Unknown => "null".to_owned(),
        Val::Bool(value) => value.to_string(),
        Val::Num(value) => value.to_string(),
        Val::Str(value) => text(value),
        Val::List(items) => format!("[{}]", items.iter().map(stored).collect::<Vec<_>>().join(",")),
        Val::Map(items) => {
            let items = items.iter().map(|(key, item)| format!("{}:{}", text(key), stored(item)));
            format!("{{{}}}", items.collect::<Vec<_>>().join(","))
        }
        Val::Dynamic(it) => format!("{{\"value\":{},\"type\":{}}}", stored(&it.value), it.of.to_json()),
    }
}
