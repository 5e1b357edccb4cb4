//! Values from other resources that are unknown until those exist: in every field of every kind.

use serde_json::{Map, Value, json};

use crate::kinds::{Declared, apart, declared, quick};
use crate::world::{World, flat, provider, within};

/// The unknown parts of a configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Unknown {
    /// Each field as a whole.
    Fields,
    /// Values without nested values.
    Leaves,
}

/// The value as an expression, with its parts taken from `from`.
fn expression(value: &Value, from: &str) -> String {
    let inside: Vec<_> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| format!("{key:?} = {}", expression(value, &format!("{from}[{key:?}]"))))
            .collect(),
        Value::Array(items) => {
            items.iter().enumerate().map(|(i, item)| expression(item, &format!("{from}[{i}]"))).collect()
        }
        _ => return from.to_owned(),
    };
    let inside = inside.join(", ");
    if value.is_object() { format!("{{ {inside} }}") } else { format!("[{inside}]") }
}

/// A configuration of all these resources, whose values come from a resource of another provider, which is not
/// created yet.
fn text(world: &World, all: &[Declared], unknown: Unknown) -> String {
    let mut values = Map::new();
    let blocks: String = all
        .iter()
        .map(|one| {
            let mut fields = one.spec.clone();
            if one.has_name() {
                fields["name"] = json!(one.name);
            }
            let from = format!("terraform_data.elsewhere.output[{:?}]", one.address());
            let lines = fields.as_object().expect("a spec").iter().map(|(field, value)| {
                let from = format!("{from}[{field:?}]");
                let value = if unknown == Unknown::Fields { from } else { expression(value, &from) };
                format!("  {field} = {value}\n")
            });
            let lines: String = lines.collect();
            let block =
                one.with_fields(&format!("{lines}  depends_on = [{}]\n", one.refers_to(all).join(", ")));
            values.insert(one.address(), fields);
            block
        })
        .collect();
    let elsewhere =
        format!("resource \"terraform_data\" \"elsewhere\" {{\n  input = {}\n}}\n", Value::Object(values));
    format!("{}{elsewhere}{blocks}", provider(world))
}

#[test]
fn nothing_need_be_known_of_any_kind_to_plan_it() {
    within(async |world| {
        let all = declared();
        for unknown in [Unknown::Fields, Unknown::Leaves] {
            world.config(&text(&world, &all, unknown));
            world.ok(&["validate"]).await;
            let said = flat(&world.ok(&["plan"]).await);
            let want = format!("Plan: {} to add, 0 to change, 0 to destroy.", all.len() + 1);
            assert!(said.contains(&want), "{unknown:?}: {want} {said}");
        }
        world.end().await;
    });
}

#[test]
fn what_becomes_known_during_an_apply_is_made_as_if_it_had_been_known() {
    for unknown in [Unknown::Fields, Unknown::Leaves] {
        within(async |world| {
            let (_, all) = apart(&world, quick()).await;
            let said = world.config(&text(&world, &all, unknown)).apply().await;
            let want = format!("{} added", all.len() + 1);
            assert!(said.contains(&want), "{unknown:?}: {want} {said}");
            world.end().await;
        });
    }
}
