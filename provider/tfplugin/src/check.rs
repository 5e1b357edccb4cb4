//! Checks of values beyond their type. `terraform validate` reports violations, and the documentation lists the checks. Terraform
//! itself is weaker: it accepts null for a required attribute, and lets a configuration give a read-only one.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::diag::{Diag, Diags};
use crate::model::Typed;
use crate::number::Num;
use crate::path::Path;
use crate::schema::{Attribute, Mode, Nesting, Schema, Shape};
use crate::value::Val;

/// A check of an attribute's value. Null and unknown values are not checked.
///
/// ```
/// use tfplugin::{Attribute, Check, Type};
///
/// Attribute::optional("mode", Type::String).check(Check::one_of(["bios", "uefi"]));
/// Attribute::required("port", Type::Number).check(Check::between(1..=65_535));
/// Attribute::required("even", Type::Number)
///     .check(Check::new("an even number", |value| value.as_i64().is_some_and(|it| it % 2 == 0)));
/// ```
#[derive(Clone)]
pub struct Check {
    want: String,
    holds: Arc<dyn Fn(&Val) -> bool + Send + Sync>,
    samples: Vec<Val>,
}

impl Check {
    /// A check with the predicate `holds`. `want` describes a good value; it follows "must be" in the error.
    pub fn new(want: impl Into<String>, holds: impl Fn(&Val) -> bool + Send + Sync + 'static) -> Self {
        Self { want: want.into(), holds: Arc::new(holds), samples: Vec::new() }
    }

    /// The value must be one of these.
    pub fn one_of<T: Into<Val>>(values: impl IntoIterator<Item = T>) -> Self {
        let samples: Vec<Val> = values.into_iter().map(Into::into).collect();
        let shown: Vec<_> = samples.iter().map(|value| shown(value).replace('"', "`")).collect();
        let want = match shown.as_slice() {
            [one] => one.clone(),
            _ => format!("one of {}", shown.join(", ")),
        };
        let values = samples.clone();
        Self { samples, ..Self::new(want, move |value| values.contains(value)) }
    }

    /// The number must be in this range, bounds included.
    #[must_use]
    pub fn between(range: RangeInclusive<i64>) -> Self {
        let (first, last) = (*range.start(), *range.end());
        let is_in = move |number: f64| number >= first as f64 && number <= last as f64;
        let holds = move |value: &Val| match value {
            Val::Num(Num::Int(whole)) => range.contains(whole),
            // A whole number beyond 64 bits is in no such range.
            Val::Num(Num::Dec(text)) => text.contains('.') && text.parse().is_ok_and(is_in),
            _ => false,
        };
        let samples = vec![first.into(), last.into()];
        Self { samples, ..Self::new(format!("a number from {first} to {last}"), holds) }
    }

    /// The text must have this number of characters.
    #[must_use]
    pub fn characters(range: RangeInclusive<usize>) -> Self {
        let want = format!("a text of {} to {} characters", range.start(), range.end());
        Self::new(want, move |value| value.as_str().is_some_and(|it| range.contains(&it.chars().count())))
    }

    /// The list, set or map must have this number of elements.
    #[must_use]
    pub fn elements(range: RangeInclusive<usize>) -> Self {
        let want = format!("of {} to {} elements", range.start(), range.end());
        Self::new(want, move |value| match value {
            Val::List(items) => range.contains(&items.len()),
            Val::Map(items) => range.contains(&items.len()),
            _ => false,
        })
    }

    /// The value must be readable as a `T`.
    pub fn is<T: Typed>(want: impl Into<String>) -> Self {
        Self::new(want, |value| T::read(value, &Path::root()).is_ok())
    }

    /// The description of a good value, which follows "must be".
    #[must_use]
    pub fn want(&self) -> &str {
        &self.want
    }

    /// Good values, if some are known.
    #[must_use]
    pub fn samples(&self) -> &[Val] {
        &self.samples
    }

    pub(crate) fn holds(&self, value: &Val) -> bool {
        (self.holds)(value.inner())
    }

    fn of(&self, attribute: &Attribute, value: &Val, at: &Path, is_secret: bool) -> Option<Diag> {
        if self.holds(value) {
            return None;
        }
        let name = &attribute.name;
        let detail = match is_secret {
            true => format!("`{name}` must be {}; it is sensitive, and so not shown.", self.want),
            false => format!("`{name}` is {}, and must be {}.", shown(value), self.want),
        };
        Some(Diag::error("The value is wrong", detail).at(at.clone()))
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Check({})", self.want)
    }
}

/// A value as part of a sentence.
fn shown(value: &Val) -> String {
    match value.inner() {
        Val::Str(text) => format!("{text:?}"),
        Val::List(items) => format!("of {} elements", items.len()),
        Val::Map(items) => format!("of {} elements", items.len()),
        other => crate::to_json(other).to_string(),
    }
}

impl Schema {
    /// The errors in a configuration: read-only attributes that are given, required ones that are null, and values that fail their
    /// checks. Use of deprecated attributes is a warning.
    #[must_use]
    pub fn check(&self, config: &Val) -> Diags {
        let mut wrong = Diags::default();
        if let Some(why) = &self.deprecated {
            wrong.push(Diag::warning("It is deprecated", why.clone()));
        }
        object(&self.attributes, config, &Path::root(), false, &mut wrong);
        wrong
    }
}

/// An error if a read-only attribute is given, or a required one is not.
fn by_mode(attribute: &Attribute, value: &Val, at: &Path) -> Option<Diag> {
    let name = &attribute.name;
    let (title, detail) = match (attribute.mode, value.is_null()) {
        (Mode::Computed, false) => (
            "It is read-only",
            format!("`{name}` is given by the provider, and cannot be set. Leave it out."),
        ),
        (Mode::Required, true) => {
            ("Something is missing", format!("`{name}` is required, and is null here. Give it a value."))
        }
        _ => return None,
    };
    Some(Diag::error(title, detail).at(at.clone()))
}

/// Errors do not show values inside a secret.
fn object(attributes: &[Attribute], config: &Val, at: &Path, in_secret: bool, wrong: &mut Diags) {
    if config.as_map().is_none() {
        return;
    }
    for attribute in attributes {
        wrong.extend(attribute.rules.iter().filter_map(|rule| rule.check(&attribute.name, config, at)));
        let (value, at) = (config.get(&attribute.name), at.attr(&attribute.name));
        if let Some(diag) = by_mode(attribute, value, &at) {
            wrong.push(diag);
            continue;
        }
        if value.is_null() {
            continue;
        }
        if let Some(why) = &attribute.deprecated {
            let detail = format!("`{}` is deprecated. {why}", attribute.name);
            wrong.push(Diag::warning("It is deprecated", detail).at(at.clone()));
        }
        if value.is_unknown() {
            continue;
        }
        let is_secret = in_secret || attribute.sensitive || attribute.write_only;
        if value.is_wholly_known() {
            let checks = attribute.checks.iter();
            wrong.extend(checks.filter_map(|check| check.of(attribute, value, &at, is_secret)));
        }
        let Shape::Nested(nesting, children) = &attribute.shape else { continue };
        let mut inside = |value: &Val, at: &Path| object(children, value, at, is_secret, wrong);
        match (nesting, value) {
            (Nesting::Single, _) => inside(value, &at),
            (Nesting::Map, Val::Map(items)) => {
                items.iter().for_each(|(key, item)| inside(item, &at.key(key)))
            }
            (Nesting::List, Val::List(items)) => {
                items.iter().enumerate().for_each(|(i, item)| inside(item, &at.index(i)));
            }
            // A path cannot name an element of a set.
            (_, Val::List(items)) => items.iter().for_each(|item| {
                let mut inside = Diags::default();
                object(children, item, &at, is_secret, &mut inside);
                wrong.extend(inside.into_iter().map(|diag| diag.at(at.clone())));
            }),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Mode;
    use crate::types::Type;

    fn said(attribute: Attribute, value: impl Into<Val>) -> Vec<String> {
        let (name, schema) =
            (attribute.name.clone(), Schema { attributes: vec![attribute], ..Schema::default() });
        let wrong = schema.check(&Val::from([(name.as_str(), value.into())]));
        wrong.into_iter().map(|diag| format!("{}: {}", diag.path, diag.detail)).collect()
    }

    #[test]
    fn each_check_says_what_there_is_and_what_must_be() {
        let text = |check| Attribute::optional("it", Type::String).check(check);
        let number = |check| Attribute::optional("it", Type::Number).check(check);
        let list = |check| Attribute::optional("it", Type::list(Type::String)).check(check);
        let duration = Check::is::<std::time::Duration>("a duration, like `90m`");
        for (attribute, good, bad, why) in [
            (
                text(Check::one_of(["a", "b"])),
                Val::from("b"),
                Val::from("c"),
                "\"c\", and must be one of `a`, `b`",
            ),
            (number(Check::one_of([7])), 7.into(), 8.into(), "8, and must be 7"),
            (number(Check::between(1..=9)), 9.into(), 10.into(), "10, and must be a number from 1 to 9"),
            (
                number(Check::between(0..=i64::MAX)),
                Val::Num(Num::Dec("33.3333333333333333333333333333".to_owned())),
                Val::Num(Num::Dec("9223372036854775808".to_owned())),
                "9223372036854775808, and must be a number from 0 to 9223372036854775807",
            ),
            (
                Attribute::optional("it", Type::Dynamic).check(Check::one_of(["a"])),
                Val::from("a").dynamic(),
                Val::from("b").dynamic(),
                "\"b\", and must be `a`",
            ),
            (
                text(Check::characters(0..=1)),
                "ü".into(),
                "ab".into(),
                "\"ab\", and must be a text of 0 to 1 characters",
            ),
            (text(duration), "1h 30m".into(), "soon".into(), "\"soon\", and must be a duration, like `90m`"),
            (
                list(Check::elements(1..=2)),
                Val::List(vec!["a".into()]),
                Val::List(Vec::new()),
                "of 0 elements, and must be of 1 to 2 elements",
            ),
        ] {
            for passed_over in [good, Val::Null, Val::Unknown] {
                assert_eq!(said(attribute.clone(), passed_over), Vec::<String>::new(), "{attribute:?}");
            }
            assert_eq!(said(attribute, bad), [format!("it: `it` is {why}.")]);
        }
    }

    #[test]
    fn what_is_read_only_cannot_be_given_and_what_is_required_is_not_null() {
        let by_mode = |mode| Attribute::plain("it", mode, Type::String);
        let read_only = ["it: `it` is given by the provider, and cannot be set. Leave it out."];
        assert_eq!(said(by_mode(Mode::Computed), "x"), read_only);
        assert_eq!(said(by_mode(Mode::Computed), Val::Unknown), read_only);
        assert_eq!(said(by_mode(Mode::Computed), Val::Null), Vec::<String>::new());
        let missing = "`it` is required, and is null here. Give it a value.";
        assert_eq!(said(by_mode(Mode::Required), Val::Null), [format!("it: {missing}")]);
        assert_eq!(said(by_mode(Mode::Required), Val::Unknown), Vec::<String>::new());
        for mode in [Mode::Optional, Mode::OptionalComputed] {
            assert_eq!(said(by_mode(mode), Val::Null), Vec::<String>::new());
            assert_eq!(said(by_mode(mode), "x"), Vec::<String>::new());
        }
        let nested = || Attribute::nested("of", Mode::Optional, Nesting::Map, vec![by_mode(Mode::Required)]);
        let given = Val::from([("k", Val::from([("it", Val::Null)])), ("none", Val::Null)]);
        assert_eq!(said(nested(), given), [format!("of[\"k\"].it: {missing}")]);
        assert_eq!(said(nested(), Val::from([("k", Val::Unknown)])), Vec::<String>::new());
    }

    #[test]
    fn what_is_deprecated_is_a_warning_for_whoever_gives_it() {
        let old = || Attribute::optional("it", Type::String).deprecated("Use `that`.");
        for given in [Val::from("x"), Val::Unknown] {
            assert_eq!(said(old(), given), ["it: `it` is deprecated. Use `that`."]);
        }
        assert_eq!(said(old(), Val::Null), Vec::<String>::new());
        let deprecated = Some("Use a dog.".to_owned());
        let schema = Schema { deprecated, attributes: vec![old()], ..Schema::default() };
        let told = schema.check(&Val::from([("it", "x".into())]));
        let told: Vec<_> = told.0.iter().map(|diag| (diag.severity, diag.detail.as_str())).collect();
        let warnings = ["Use a dog.", "`it` is deprecated. Use `that`."];
        assert_eq!(told, warnings.map(|text| (crate::diag::Severity::Warning, text)));
    }

    #[test]
    fn what_is_sensitive_is_not_shown() {
        let secret = Attribute::optional("it", Type::String).sensitive().check(Check::characters(1..=3));
        let said = said(secret, "a-secret");
        assert_eq!(
            said,
            ["it: `it` must be a text of 1 to 3 characters; it is sensitive, and so not shown."]
        );
    }

    #[test]
    fn checks_are_found_in_whatever_is_nested() {
        let port = || vec![Attribute::optional("port", Type::Number).check(Check::between(1..=9))];
        let bad = || Val::from([("port", 10.into())]);
        for (nesting, value, at) in [
            (Nesting::Single, bad(), "it.port"),
            (Nesting::List, Val::List(vec![Val::Null, bad()]), "it[1].port"),
            (Nesting::Map, Val::from([("k", bad())]), "it[\"k\"].port"),
            (Nesting::Set, Val::List(vec![bad()]), "it"),
        ] {
            let said = said(Attribute::nested("it", Mode::Optional, nesting, port()), value);
            assert_eq!(said, [format!("{at}: `port` is 10, and must be a number from 1 to 9.")]);
        }
    }
}
