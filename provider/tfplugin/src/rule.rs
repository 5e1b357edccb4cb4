//! Rules between attributes of one object. `terraform validate` reports violations, and the documentation lists the rules.

use crate::diag::Diag;
use crate::path::Path;
use crate::schema::{Attribute, Mode};
use crate::value::Val;

/// A rule of an attribute about other attributes of the same object, by their names. An attribute counts as given if the configuration
/// has it and it is not null. A rule reports no violation while an unknown attribute could still satisfy it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// If this attribute is given, none of these may be given.
    ConflictsWith(Vec<String>),
    /// If this attribute is given, all of these must be given.
    RequiredWith(Vec<String>),
    /// Exactly one is given, of this attribute and these.
    ExactlyOneOf(Vec<String>),
    /// One or more are given, of this attribute and these.
    AtLeastOneOf(Vec<String>),
}

/// Names in a sentence.
fn shown<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl Rule {
    fn others(&self) -> &[String] {
        match self {
            Self::ConflictsWith(others)
            | Self::RequiredWith(others)
            | Self::ExactlyOneOf(others)
            | Self::AtLeastOneOf(others) => others,
        }
    }

    /// Checks the rule of attribute `name` in `object`. `at` is the path of the object.
    pub(crate) fn check(&self, name: &str, object: &Val, at: &Path) -> Option<Diag> {
        let all = || std::iter::once(name).chain(self.others().iter().map(String::as_str));
        let is_given = |name: &str| !object.get(name).is_null() && !object.get(name).is_unknown();
        let is_open = all().any(|name| object.get(name).is_unknown());
        let given: Vec<_> = all().filter(|name| is_given(name)).collect();
        let wrong = |title: &str, detail: String| Some(Diag::error(title, detail).at(at.attr(name)));
        let excluded = |what: &str| {
            wrong(
                "They exclude each other",
                format!("{} are given together. {what}", shown(given.iter().copied())),
            )
        };
        let missing =
            |what: &str| wrong("Something is missing", format!("None of {} is given. {what}", shown(all())));
        match self {
            Self::ConflictsWith(_) if is_given(name) && given.len() > 1 => {
                excluded(&format!("Leave out {}, or the rest.", shown([name])))
            }
            Self::RequiredWith(others) if is_given(name) => {
                let absent = others.iter().map(String::as_str).filter(|other| object.get(other).is_null());
                let absent = shown(absent);
                if absent.is_empty() {
                    return None;
                }
                let detail =
                    format!("`{name}` is given without {absent}. Give that as well, or leave out `{name}`.");
                wrong("Something is missing", detail)
            }
            Self::ExactlyOneOf(_) if given.len() > 1 => excluded("Give exactly one of them."),
            Self::ExactlyOneOf(_) if given.is_empty() && !is_open => missing("Give exactly one of them."),
            Self::AtLeastOneOf(_) if given.is_empty() && !is_open => missing("Give at least one of them."),
            _ => None,
        }
    }

    /// An error in the rule itself: the name of an attribute that nobody can give together with this one.
    pub(crate) fn problem(&self, name: &str, beside: &[Attribute]) -> Option<String> {
        let can_be_given = |other: &&String| {
            other.as_str() != name && beside.iter().any(|it| it.name == **other && it.mode != Mode::Computed)
        };
        let wrong = self.others().iter().find(|other| !can_be_given(other))?;
        Some(format!("it demands something of {wrong}, which nobody can give beside it"))
    }
}

/// The sentences about the rules of attribute `name`, for its documentation.
pub(crate) fn sentences(name: &str, beside: &[Attribute]) -> Vec<String> {
    let mut said = Vec::new();
    for attribute in beside {
        for rule in &attribute.rules {
            let (is_own, others) = (attribute.name == name, rule.others());
            let all =
                || shown(std::iter::once(attribute.name.as_str()).chain(others.iter().map(String::as_str)));
            if !is_own && !others.iter().any(|other| other == name) {
                continue;
            }
            said.extend(match rule {
                Rule::ConflictsWith(_) if is_own => {
                    Some(format!("Conflicts with {}.", shown(others.iter().map(String::as_str))))
                }
                Rule::ConflictsWith(_) => Some(format!("Conflicts with `{}`.", attribute.name)),
                Rule::RequiredWith(_) if is_own => {
                    Some(format!("Needs {}.", shown(others.iter().map(String::as_str))))
                }
                Rule::RequiredWith(_) => None,
                Rule::ExactlyOneOf(_) => Some(format!("Exactly one of {} is given.", all())),
                Rule::AtLeastOneOf(_) => Some(format!("At least one of {} is given.", all())),
            });
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Nesting, Schema};
    use crate::types::Type;

    fn text(name: &str) -> Attribute {
        Attribute::optional(name, Type::String)
    }

    /// The errors for `a`, `b` and `c`, each given (`x`), unknown (`?`) or null (`-`).
    fn said(a: Attribute, given: [&str; 3]) -> String {
        let value = |how: &str| match how {
            "x" => Val::from("x"),
            "?" => Val::Unknown,
            _ => Val::Null,
        };
        let [of_a, of_b, of_c] = given.map(value);
        let schema = Schema { attributes: vec![a, text("b"), text("c")], ..Schema::default() };
        assert_eq!(schema.problems(), Vec::<String>::new());
        let told = schema.check(&Val::from([("a", of_a), ("b", of_b), ("c", of_c)]));
        told.into_iter().map(|diag| format!("{}: {}", diag.path, diag.detail)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn each_rule_says_what_is_wrong_and_nothing_while_it_may_be_right() {
        let conflicts = "a: `a`, `b` are given together. Leave out `a`, or the rest.";
        let needs = "a: `a` is given without `b`. Give that as well, or leave out `a`.";
        let two = "a: `b`, `c` are given together. Give exactly one of them.";
        let none = |what: &str| format!("a: None of `a`, `b`, `c` is given. Give {what} of them.");
        let (one, some) = (none("exactly one"), none("at least one"));
        for (attribute, given, want) in [
            (text("a").conflicts_with(["b", "c"]), ["x", "x", "-"], conflicts),
            (text("a").conflicts_with(["b", "c"]), ["x", "?", "-"], ""),
            (text("a").conflicts_with(["b", "c"]), ["?", "x", "-"], ""),
            (text("a").conflicts_with(["b", "c"]), ["-", "x", "x"], ""),
            (text("a").required_with(["b", "c"]), ["x", "-", "x"], needs),
            (text("a").required_with(["b", "c"]), ["x", "?", "x"], ""),
            (text("a").required_with(["b", "c"]), ["?", "-", "-"], ""),
            (text("a").required_with(["b", "c"]), ["-", "x", "-"], ""),
            (text("a").exactly_one_of(["b", "c"]), ["-", "x", "x"], two),
            (text("a").exactly_one_of(["b", "c"]), ["?", "x", "x"], two),
            (text("a").exactly_one_of(["b", "c"]), ["-", "-", "-"], &one),
            (text("a").exactly_one_of(["b", "c"]), ["?", "-", "-"], ""),
            (text("a").exactly_one_of(["b", "c"]), ["?", "x", "-"], ""),
            (text("a").exactly_one_of(["b", "c"]), ["x", "-", "-"], ""),
            (text("a").at_least_one_of(["b", "c"]), ["-", "-", "-"], &some),
            (text("a").at_least_one_of(["b", "c"]), ["-", "-", "?"], ""),
            (text("a").at_least_one_of(["b", "c"]), ["x", "x", "-"], ""),
        ] {
            assert_eq!(said(attribute.clone(), given), want, "{:?} {given:?}", attribute.rules);
        }
    }

    #[test]
    fn rules_are_kept_in_whatever_is_nested() {
        let inner = vec![text("a").exactly_one_of(["b"]), text("b")];
        let schema = Schema {
            attributes: vec![Attribute::nested("of", Mode::Optional, Nesting::Map, inner)],
            ..Schema::default()
        };
        let told = schema.check(&Val::from([("of", Val::from([("k", Val::from([("a", Val::Null)]))]))]));
        assert_eq!(told.into_iter().map(|diag| diag.path.to_string()).collect::<Vec<_>>(), ["of[\"k\"].a"]);
    }

    #[test]
    fn the_documentation_says_so_of_each_and_what_nobody_can_give_is_a_problem() {
        let attributes = [
            text("a").conflicts_with(["b"]).required_with(["c"]),
            text("b"),
            text("c").at_least_one_of(["b"]),
        ];
        assert_eq!(sentences("a", &attributes), ["Conflicts with `b`.", "Needs `c`."]);
        assert_eq!(
            sentences("b", &attributes),
            ["Conflicts with `a`.", "At least one of `c`, `b` is given."]
        );
        for other in ["a", "d", "id"] {
            let schema = Schema {
                attributes: vec![text("a").conflicts_with([other]), Attribute::computed("id", Type::String)],
                ..Schema::default()
            };
            let want = format!("a: it demands something of {other}, which nobody can give beside it");
            assert_eq!(schema.problems(), [want]);
        }
    }
}
