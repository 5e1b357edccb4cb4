//! JSON pointers of the API as paths into a Terraform configuration.

use basalt_api::pointer::steps;
use basalt_api::{Kind, Schema, Type};
use tfplugin::Path;

use super::NAME;

/// Where `pointer` leads in a resource of this kind. It may lead into a spec, or into a request that has a spec. What
/// cannot be found there ends the path early.
pub(crate) fn path(kind: &Kind, pointer: &str) -> Path {
    let mut steps = steps(pointer).peekable();
    if steps.peek().is_some_and(|step| step == "metadata") {
        return Path::root().attr(NAME);
    }
    if kind.spec.field("spec").is_none() {
        steps.next_if(|step| step == "spec");
    }
    within(kind.spec, steps, Path::root())
}

fn within(schema: &'static Schema, mut steps: impl Iterator<Item = String>, at: Path) -> Path {
    let mut at = at;
    let mut schema = schema;
    while let Some(field) = steps.next().and_then(|step| schema.field(&step)) {
        at = at.attr(field.name);
        match field.ty {
            Type::Object(inner) => schema = inner,
            Type::Map { value, .. } => {
                let Some(key) = steps.next() else { return at };
                at = at.key(&key);
                match value {
                    Type::Object(inner) => schema = inner,
                    _ => return at,
                }
            }
            Type::List(_) => {
                return match steps.next().and_then(|step| step.parse().ok()) {
                    Some(index) => at.index(index),
                    None => at,
                };
            }
            // The elements of a set have no place.
            _ => return at,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_leads_to_the_attribute_that_it_is_about() {
        let sample = Kind::find("Sample").expect("a kind");
        for (pointer, want) in [
            ("/spec/mac", "mac"),
            ("/mac", "mac"),
            ("/spec/parts/a~1b/weight", r#"parts["a/b"].weight"#),
            ("/spec/parts/lid/notes/2", r#"parts["lid"].notes[2]"#),
            ("/spec/detail/label", "detail.label"),
            ("/spec/macs/0", "macs"),
            ("/spec/colour_of_money", ""),
            ("/metadata/name", "name"),
            ("", ""),
        ] {
            assert_eq!(path(sample, pointer).to_string(), want, "{pointer}");
        }
    }
}
