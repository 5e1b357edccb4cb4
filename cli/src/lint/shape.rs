//! The keys that a value may have: by the fields of a kind in the provider, or by the type of a variable.

use std::collections::BTreeMap;

use basalt_api::values::Naming;
use basalt_api::{Field, Kind, Schema, Type};
use hcl_edit::expr::Expression;

use super::module::key_name;

/// The keys that a value may have.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    /// A scalar, or a value with any keys.
    Any,
    /// An object with these keys.
    Object(BTreeMap<String, Self>),
    /// A list, a set or a map. Each element has this shape.
    Each(Box<Self>),
}

/// Operations whose timeout a configuration can set. A test compares all shapes with the provider's schemas.
const TIMEOUTS: &[(&str, &[&str])] =
    &[("Deployment", &["create", "update", "delete"]), ("Machine", &["delete"])];

/// The attributes of a kind's resource.
pub(super) fn resource(kind: &Kind) -> Shape {
    let mut attributes = fields(kind.spec);
    if kind.naming != Naming::FabricVid {
        attributes.insert("name".to_owned(), Shape::Any);
    }
    attributes.insert("labels".to_owned(), Shape::Each(Box::new(Shape::Any)));
    if let Some((_, operations)) = TIMEOUTS.iter().find(|(name, _)| *name == kind.name) {
        let operations = operations.iter().map(|operation| ((*operation).to_owned(), Shape::Any));
        attributes.insert("timeouts".to_owned(), Shape::Object(operations.collect()));
    }
    Shape::Object(attributes)
}

fn fields(schema: &Schema) -> BTreeMap<String, Shape> {
    schema.fields.iter().flat_map(attributes).collect()
}

/// The attributes of a field. A secret has three: its value, its write-only value, and a version of that.
fn attributes(field: &Field) -> Vec<(String, Shape)> {
    let name = field.name.to_owned();
    match field.ty {
        Type::Secret => {
            let others = ["_wo", "_wo_version"].map(|end| (format!("{name}{end}"), Shape::Any));
            [vec![(name, Shape::Any)], others.to_vec()].concat()
        }
        _ => vec![(name, of_field(&field.ty))],
    }
}

fn of_field(ty: &Type) -> Shape {
    match ty {
        Type::Object(schema) => Shape::Object(fields(schema)),
        Type::List(item) | Type::Set(item) | Type::Map { value: item, .. } => {
            Shape::Each(Box::new(of_field(item)))
        }
        _ => Shape::Any,
    }
}

/// The shape of a type expression, as in `type` of a variable.
pub(super) fn of_type(ty: &Expression) -> Shape {
    let Expression::FuncCall(call) = ty else { return Shape::Any };
    match (call.name.name.as_str(), call.args.get(0)) {
        ("object", Some(Expression::Object(attributes))) => {
            let named = attributes.iter().filter_map(|(key, value)| Some((key_name(key)?, value)));
            Shape::Object(named.map(|(name, value)| (name.to_owned(), of_type(value.expr()))).collect())
        }
        ("list" | "set" | "map", Some(item)) => Shape::Each(Box::new(of_type(item))),
        ("optional", Some(ty)) => of_type(ty),
        _ => Shape::Any,
    }
}
