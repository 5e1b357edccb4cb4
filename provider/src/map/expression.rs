//! A sentence about the names that an expression can use for a machine.

use basalt_api::expression::VARIABLES;
use basalt_api::expression::variables::Shape;

/// This text in API descriptions stands for the list of names; the provider's pages replace it.
pub(super) const ELSEWHERE: &str = "over the names that the README lists";

/// The names of an expression, each with its fields.
pub(super) fn names() -> String {
    let named = VARIABLES.iter().map(|variable| one(variable.name, &variable.shape)).collect::<Vec<_>>();
    format!("over {}. What the hardware does not say is empty, 0 or false", named.join("; "))
}

fn one(name: &str, shape: &Shape) -> String {
    match shape {
        Shape::Fields(fields) => format!("`{name}` with {}", all(fields)),
        Shape::List(Shape::Fields(fields)) => format!("`{name}`, a list, each with {}", all(fields)),
        Shape::List(_) | Shape::Flags => format!("`{name}`, a list"),
        _ => format!("`{name}`"),
    }
}

fn all(fields: &[(&str, Shape)]) -> String {
    fields.iter().map(|(name, shape)| one(name, shape)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_api::Kind;

    #[test]
    fn the_attribute_of_an_expression_says_every_name() {
        let tag = Kind::find("Tag").expect("a kind");
        let schema = super::super::resource(tag);
        let attribute = schema.attributes.iter().find(|attribute| attribute.name == "expression");
        let doc = &attribute.expect("the attribute").description;
        for want in [
            "CEL, over `name`; ",
            "`cpu` with `model`, `sockets`,",
            "`disks`, a list, each with `name`, `bytes`,",
        ] {
            assert!(doc.contains(want), "{want}: {doc}");
        }
        assert!(VARIABLES.iter().all(|variable| doc.contains(&format!("`{}`", variable.name))), "{doc}");
        assert!(!doc.contains("README"), "{doc}");
    }
}
