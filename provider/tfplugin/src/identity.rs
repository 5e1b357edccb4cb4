//! The identity of an object: values that distinguish it from all others while it exists.
//!
//! Terraform (1.12 and later) keeps it beside the state, and can import an object by it. It consists of attributes of the
//! state, so a provider only names them:
//!
//! ```
//! # use tfplugin::Identity;
//! let of_a_disk = Identity::default().required("serial").optional("shelf");
//! ```

use crate::pb;
use crate::schema::Schema;
use crate::types::Type;
use crate::value::Val;

/// The attributes of a resource's state that identify an object. They never change, and are known once the object is
/// created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    version: i64,
    attributes: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    name: String,
    is_required: bool,
}

impl Identity {
    /// Sets the version of an identity whose attributes have changed since older versions: see
    /// [`Resource::upgrade_identity`](crate::Resource::upgrade_identity).
    #[must_use]
    pub fn version(mut self, version: i64) -> Self {
        self.version = version;
        self
    }

    /// Adds an attribute that an import must give.
    #[must_use]
    pub fn required(self, name: &str) -> Self {
        self.with(name, true)
    }

    /// Adds an attribute that an import may omit, and that may be null.
    #[must_use]
    pub fn optional(self, name: &str) -> Self {
        self.with(name, false)
    }

    fn with(mut self, name: &str, is_required: bool) -> Self {
        self.attributes.push(Part { name: name.to_owned(), is_required });
        self
    }

    /// The only required attribute, if it is text: the one that `import` by an id fills.
    pub(crate) fn import_id(&self, schema: &Schema) -> Option<&str> {
        let required: Vec<_> = self.attributes.iter().filter(|part| part.is_required).collect();
        let [only] = required.as_slice() else { return None };
        let attribute = schema.attributes.iter().find(|attribute| attribute.name == only.name)?;
        (attribute.value_type() == Type::String).then_some(only.name.as_str())
    }

    /// True if the resource has no identity.
    pub(crate) fn is_empty(&self) -> bool {
        self.attributes.is_empty()
    }

    pub(crate) fn current_version(&self) -> i64 {
        self.version
    }

    /// The type of an identity, with the types of the schema.
    pub(crate) fn value_type(&self, schema: &Schema) -> Type {
        let types = self.attributes.iter().filter_map(|part| {
            let attribute = schema.attributes.iter().find(|attribute| attribute.name == part.name)?;
            Some((part.name.clone(), attribute.value_type()))
        });
        Type::Object(types.collect())
    }

    /// The identity of the object with this state, once all its values are known.
    pub(crate) fn of(&self, state: &Val) -> Option<Val> {
        let parts = self.attributes.iter().map(|part| {
            let value = state.get(&part.name);
            let is_there = value.is_wholly_known() && !(part.is_required && value.is_null());
            is_there.then(|| (part.name.clone(), value.clone()))
        });
        let parts = parts.collect::<Option<_>>()?;
        (!self.is_empty()).then_some(Val::Map(parts))
    }

    /// Errors that Terraform would report for this identity of a resource with this schema. For a test of each provider.
    #[must_use]
    pub fn problems(&self, schema: &Schema) -> Vec<String> {
        let named = self.attributes.iter().map(|part| {
            let found = schema.attributes.iter().find(|attribute| attribute.name == part.name);
            match found.map(|attribute| attribute.value_type()) {
                Some(Type::Bool | Type::Number | Type::String) => None,
                Some(Type::List(of)) if matches!(*of, Type::Bool | Type::Number | Type::String) => None,
                Some(other) => Some(format!("{}: {other} identifies nothing", part.name)),
                None => Some(format!("{}: the schema has no such attribute", part.name)),
            }
        });
        named.flatten().collect()
    }

    pub(crate) fn to_pb(&self, schema: &Schema) -> pb::ResourceIdentitySchema {
        let attributes = self.attributes.iter().filter_map(|part| {
            let attribute = schema.attributes.iter().find(|attribute| attribute.name == part.name)?;
            Some(pb::resource_identity_schema::IdentityAttribute {
                name: part.name.clone(),
                r#type: attribute.value_type().to_json().to_string().into_bytes(),
                required_for_import: part.is_required,
                optional_for_import: !part.is_required,
                description: attribute.description.clone(),
            })
        });
        pb::ResourceIdentitySchema { version: self.version, identity_attributes: attributes.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Attribute;

    fn schema() -> Schema {
        let disk = vec![
            Attribute::computed("serial", Type::String),
            Attribute::optional("shelf", Type::Number),
            Attribute::optional("labels", Type::map(Type::String)),
        ];
        Schema { attributes: disk, ..Schema::default() }
    }

    fn identity() -> Identity {
        Identity::default().required("serial").optional("shelf")
    }

    #[test]
    fn an_identity_is_there_once_all_of_it_is_known_and_what_is_required_is_not_null() {
        let state = |serial: Val, shelf: Val| Val::from([("serial", serial), ("shelf", shelf)]);
        let whole = state("s1".into(), Val::Null);
        assert_eq!(identity().of(&whole), Some(whole));
        assert_eq!(identity().of(&state(Val::Null, Val::Null)), None);
        assert_eq!(identity().of(&state("s1".into(), Val::Unknown)), None);
        assert_eq!(Identity::default().of(&state("s1".into(), Val::Null)), None, "there is none");
    }

    #[test]
    fn only_what_is_there_and_simple_identifies_anything() {
        assert_eq!(identity().problems(&schema()), Vec::<String>::new());
        let wrong = Identity::default().required("labels").required("colour");
        assert_eq!(
            wrong.problems(&schema()),
            ["labels: map of string identifies nothing", "colour: the schema has no such attribute"]
        );
    }
}
