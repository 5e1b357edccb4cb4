//! The schema of a resource, a data source or the provider block: its attributes, and the effect of a change of each one.

use std::sync::Arc;

use crate::check::Check;
use crate::contract::check_type;
use crate::path::Path;
use crate::pb;
use crate::rule::Rule;
use crate::same::{Semantics, same_element, same_object, same_plain};
use crate::types::Type;
use crate::value::{Val, same_elements};

/// The description of one block.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Rises when states of the old shape can no longer be read by name.
    pub version: i64,
    /// Description in Markdown.
    pub description: String,
    /// Reason for the deprecation, and the replacement. Terraform shows it as a warning to users of the block.
    pub deprecated: Option<String>,
    /// The attributes; their order does not matter.
    pub attributes: Vec<Attribute>,
}

/// The source of an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The configuration must give it.
    Required,
    /// The configuration may give it; otherwise it is null.
    Optional,
    /// The configuration may give it; otherwise the provider does.
    OptionalComputed,
    /// The provider gives it.
    Computed,
}

/// The collection that holds nested objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nesting {
    /// A single object.
    Single,
    /// A list of objects.
    List,
    /// A set of objects.
    Set,
    /// A map of objects, by natural key.
    Map,
}

/// The type or the nested attributes of an attribute.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A value of a type.
    Plain(Type),
    /// Objects with attributes of their own.
    Nested(Nesting, Vec<Attribute>),
}

/// A condition under which a change of an attribute replaces the resource; see [`Attribute::replace_if`].
#[derive(Clone)]
pub struct ReplaceIf(Arc<Condition>);

/// A condition on the value before and the planned value.
type Condition = dyn Fn(&Val, &Val) -> bool + Send + Sync;

impl std::fmt::Debug for ReplaceIf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReplaceIf(…)")
    }
}

/// One attribute. Made with [`Attribute::required`] and its siblings, refined with the methods
/// that take `self`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attribute {
    /// Lower-case letters, digits and underscores.
    pub name: String,
    /// Description in Markdown.
    pub description: String,
    /// The type or the nested attributes.
    pub shape: Shape,
    /// The source of the value.
    pub mode: Mode,
    /// Not shown in plans.
    pub sensitive: bool,
    /// The value is only in the configuration: never in a plan, never in a state.
    pub write_only: bool,
    /// Reason for the deprecation, and the replacement. Terraform shows it as a warning when the attribute is given.
    pub deprecated: Option<String>,
    /// The value where the configuration has none; the mode is then `OptionalComputed`.
    pub default: Option<Val>,
    /// A computed value that an update does not change.
    pub use_state: bool,
    /// Every change of the value replaces the resource.
    pub replace: bool,
    /// Changes that meet this condition replace the resource.
    pub replace_if: Option<ReplaceIf>,
    /// The rule that decides which spellings are equal.
    pub semantics: Semantics,
    /// Checks of a configured value, beyond its type.
    pub checks: Vec<Check>,
    /// Rules between this attribute and the attributes beside it.
    pub rules: Vec<Rule>,
}

impl Attribute {
    fn new(name: &str, mode: Mode, shape: Shape) -> Self {
        Self {
            name: name.to_owned(),
            description: String::new(),
            shape,
            mode,
            sensitive: false,
            write_only: false,
            deprecated: None,
            default: None,
            use_state: false,
            replace: false,
            replace_if: None,
            semantics: Semantics::Exact,
            checks: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// An attribute of a type.
    #[must_use]
    pub fn plain(name: &str, mode: Mode, of: Type) -> Self {
        Self::new(name, mode, Shape::Plain(of))
    }

    /// An attribute that holds objects.
    #[must_use]
    pub fn nested(name: &str, mode: Mode, nesting: Nesting, attributes: Vec<Self>) -> Self {
        Self::new(name, mode, Shape::Nested(nesting, attributes))
    }

    /// A required attribute of a type.
    #[must_use]
    pub fn required(name: &str, of: Type) -> Self {
        Self::plain(name, Mode::Required, of)
    }

    /// An optional attribute of a type.
    #[must_use]
    pub fn optional(name: &str, of: Type) -> Self {
        Self::plain(name, Mode::Optional, of)
    }

    /// A computed attribute of a type.
    #[must_use]
    pub fn computed(name: &str, of: Type) -> Self {
        Self::plain(name, Mode::Computed, of)
    }

    /// Sets the documentation (Markdown).
    #[must_use]
    pub fn doc(mut self, text: impl Into<String>) -> Self {
        self.description = text.into();
        self
    }

    /// Not shown in plans.
    #[must_use]
    pub fn sensitive(mut self) -> Self {
        self.sensitive = true;
        self
    }

    /// Only in the configuration.
    #[must_use]
    pub fn write_only(mut self) -> Self {
        self.write_only = true;
        self
    }

    /// The value where the configuration has none.
    #[must_use]
    pub fn default(mut self, value: impl Into<Val>) -> Self {
        self.default = Some(value.into());
        self.mode = Mode::OptionalComputed;
        self
    }

    /// An update does not change this computed value.
    #[must_use]
    pub fn use_state(mut self) -> Self {
        self.use_state = true;
        self
    }

    /// A change replaces the resource.
    #[must_use]
    pub fn replace(mut self) -> Self {
        self.replace = true;
        self
    }

    /// A change replaces the resource if this condition is true. Its arguments are the value before and the planned value,
    /// which may be unknown.
    ///
    /// ```
    /// use tfplugin::{Attribute, Type};
    ///
    /// // A disk grows, and does not shrink.
    /// let size = Attribute::required("size", Type::Number)
    ///     .replace_if(|before, planned| planned.as_i64() < before.as_i64());
    /// ```
    #[must_use]
    pub fn replace_if(mut self, holds: impl Fn(&Val, &Val) -> bool + Send + Sync + 'static) -> Self {
        self.replace_if = Some(ReplaceIf(Arc::new(holds)));
        self
    }

    /// True if this change replaces the resource.
    pub(crate) fn replaces(&self, before: &Val, planned: &Val) -> bool {
        let holds = self.replace_if.as_ref().is_some_and(|replace_if| (replace_if.0)(before, planned));
        (self.replace || holds) && !self.same(planned, before)
    }

    /// Marks the attribute as deprecated. Terraform shows `why` as a warning when the attribute is given. It gives the
    /// reason and the replacement, in full sentences.
    #[must_use]
    pub fn deprecated(mut self, why: impl Into<String>) -> Self {
        self.deprecated = Some(why.into());
        self
    }

    /// Sets the rule that decides which spellings are equal.
    #[must_use]
    pub fn semantics(mut self, semantics: Semantics) -> Self {
        self.semantics = semantics;
        self
    }

    /// Adds a check of configured values, beyond the type.
    #[must_use]
    pub fn check(mut self, check: Check) -> Self {
        self.checks.push(check);
        self
    }

    fn rule<const N: usize>(mut self, rule: fn(Vec<String>) -> Rule, others: [&str; N]) -> Self {
        self.rules.push(rule(others.map(str::to_owned).to_vec()));
        self
    }

    /// If this attribute is given, none of the `others` may be given.
    #[must_use]
    pub fn conflicts_with<const N: usize>(self, others: [&str; N]) -> Self {
        self.rule(Rule::ConflictsWith, others)
    }

    /// If this attribute is given, all of the `others` must be given.
    #[must_use]
    pub fn required_with<const N: usize>(self, others: [&str; N]) -> Self {
        self.rule(Rule::RequiredWith, others)
    }

    /// Exactly one attribute is given, of this one and the `others`. One attribute of the group needs to have this rule.
    #[must_use]
    pub fn exactly_one_of<const N: usize>(self, others: [&str; N]) -> Self {
        self.rule(Rule::ExactlyOneOf, others)
    }

    /// At least one attribute is given, of this one and the `others`. One attribute of the group needs to have this rule.
    #[must_use]
    pub fn at_least_one_of<const N: usize>(self, others: [&str; N]) -> Self {
        self.rule(Rule::AtLeastOneOf, others)
    }

    /// True if the provider may give the value.
    #[must_use]
    pub fn is_computed(&self) -> bool {
        matches!(self.mode, Mode::Computed | Mode::OptionalComputed)
    }

    /// The type of its value.
    #[must_use]
    pub fn value_type(&self) -> Type {
        match &self.shape {
            Shape::Plain(of) => of.clone(),
            Shape::Nested(nesting, attributes) => {
                let object = object_type(attributes);
                match nesting {
                    Nesting::Single => object,
                    Nesting::List => Type::list(object),
                    Nesting::Set => Type::set(object),
                    Nesting::Map => Type::map(object),
                }
            }
        }
    }

    /// True if two values of this attribute are equal: sets in any order, text by its semantics.
    #[must_use]
    pub fn same(&self, a: &Val, b: &Val) -> bool {
        match &self.shape {
            Shape::Plain(of) => same_plain(of, self.semantics, a, b),
            Shape::Nested(nesting, attributes) => match (nesting, a, b) {
                (Nesting::Single, Val::Map(a), Val::Map(b)) => same_object(attributes, a, b),
                (Nesting::Map, Val::Map(a), Val::Map(b)) => {
                    a.len() == b.len()
                        && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same_element(attributes, a, b)))
                }
                (Nesting::List, Val::List(a), Val::List(b)) => {
                    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_element(attributes, a, b))
                }
                (Nesting::Set, Val::List(a), Val::List(b)) => {
                    same_elements(a, b, |a, b| same_element(attributes, a, b))
                }
                (_, a, b) => a == b,
            },
        }
    }

    fn to_pb(&self) -> pb::schema::Attribute {
        let (of, nested) = match &self.shape {
            Shape::Plain(of) => (of.to_json().to_string().into_bytes(), None),
            Shape::Nested(nesting, attributes) => {
                use pb::schema::object::NestingMode;
                let nesting = match nesting {
                    Nesting::Single => NestingMode::Single,
                    Nesting::List => NestingMode::List,
                    Nesting::Set => NestingMode::Set,
                    Nesting::Map => NestingMode::Map,
                };
                let object = pb::schema::Object {
                    attributes: attributes.iter().map(Self::to_pb).collect(),
                    nesting: nesting.into(),
                };
                (Vec::new(), Some(object))
            }
        };
        pb::schema::Attribute {
            name: self.name.clone(),
            r#type: of,
            description: self.description.clone(),
            required: self.mode == Mode::Required,
            optional: matches!(self.mode, Mode::Optional | Mode::OptionalComputed),
            computed: self.is_computed(),
            sensitive: self.sensitive,
            description_kind: pb::StringKind::Markdown.into(),
            deprecated: self.deprecated.is_some(),
            nested_type: nested,
            write_only: self.write_only,
            deprecation_message: self.deprecated.clone().unwrap_or_default(),
        }
    }
}

fn object_type(attributes: &[Attribute]) -> Type {
    Type::Object(
        attributes.iter().map(|attribute| (attribute.name.clone(), attribute.value_type())).collect(),
    )
}

impl Schema {
    /// The type of the whole block.
    #[must_use]
    pub fn value_type(&self) -> Type {
        object_type(&self.attributes)
    }

    /// Errors that Terraform would report for this schema. For a test of each provider.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        const RESERVED: &[&str] =
            &["connection", "count", "depends_on", "for_each", "lifecycle", "provider", "provisioner"];
        let mut problems = Vec::new();
        for attribute in &self.attributes {
            if RESERVED.contains(&attribute.name.as_str()) {
                problems.push(format!("{}: the name is Terraform's own", attribute.name));
            }
        }
        collect_problems(&self.attributes, "", false, &mut problems);
        problems
    }

    /// Errors that Terraform would report for it as the schema of a list resource or an action, which have no computed
    /// attributes.
    #[must_use]
    pub fn problems_of_config(&self) -> Vec<String> {
        let mut problems = self.problems();
        let computed = self.attributes.iter().filter(|attribute| attribute.is_computed());
        problems.extend(computed.map(|it| format!("{}: nothing here is computed", it.name)));
        problems
    }

    pub(crate) fn to_pb(&self) -> pb::Schema {
        pb::Schema {
            version: self.version,
            block: Some(pb::schema::Block {
                version: self.version,
                attributes: self.attributes.iter().map(Attribute::to_pb).collect(),
                block_types: Vec::new(),
                description: self.description.clone(),
                description_kind: pb::StringKind::Markdown.into(),
                deprecated: self.deprecated.is_some(),
                deprecation_message: self.deprecated.clone().unwrap_or_default(),
            }),
        }
    }
}

fn collect_problems(attributes: &[Attribute], within: &str, in_set: bool, problems: &mut Vec<String>) {
    for attribute in attributes {
        let name = format!("{within}{}", attribute.name);
        let mut wrong = |what: &str| problems.push(format!("{name}: {what}"));
        let letters = attribute.name.bytes();
        if attribute.name.is_empty()
            || !letters.clone().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            || letters.take(1).all(|b| b.is_ascii_digit())
        {
            wrong("a name is lower-case letters, digits and underscores, and begins with no digit");
        }
        if attributes.iter().filter(|other| other.name == attribute.name).count() > 1 {
            wrong("there are two of this name");
        }
        for check in &attribute.checks {
            if attribute.default.as_ref().is_some_and(|default| !check.holds(default)) {
                wrong(&format!("its default is not {}", check.want()));
            }
        }
        for rule in &attribute.rules {
            if let Some(problem) = rule.problem(&attribute.name, attributes) {
                wrong(&problem);
            }
        }
        if attribute.default.is_some() && attribute.mode != Mode::OptionalComputed {
            wrong("a default needs an attribute that is optional and computed");
        }
        let default = attribute.default.as_ref();
        if default.is_some_and(|it| check_type(&attribute.value_type(), it, &Path::root()).is_err()) {
            wrong("the default is not of its type");
        }
        if default.and_then(Val::as_str).is_some_and(|text| !attribute.semantics.reads(text)) {
            wrong("the default is not of its form");
        }
        let is_open = match &attribute.shape {
            Shape::Plain(of) => of.has_open_elements(),
            Shape::Nested(Nesting::Single, _) => false,
            Shape::Nested(_, children) => children.iter().any(|child| child.value_type().is_open()),
        };
        if is_open {
            wrong("the elements of a collection are of one type, and dynamic is none");
        }
        if attribute.write_only && attribute.is_computed() {
            wrong("write-only and computed exclude each other");
        }
        if attribute.write_only && in_set {
            wrong("a set cannot hold what is write-only");
        }
        if let Shape::Nested(nesting, children) = &attribute.shape {
            collect_problems(children, &format!("{name}."), in_set || *nesting == Nesting::Set, problems);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_terraform_would_refuse() {
        let schema = Schema {
            attributes: vec![
                Attribute::optional("count", Type::Number),
                Attribute::optional("Bad", Type::String),
                Attribute::optional("legs", Type::Number).default("four"),
                Attribute::optional("any", Type::Tuple(vec![Type::list(Type::Dynamic)])),
                Attribute::optional("chip", Type::String).semantics(Semantics::Mac).default("none"),
                Attribute::nested(
                    "keys",
                    Mode::Optional,
                    Nesting::Set,
                    vec![Attribute::optional("secret_wo", Type::String).write_only()],
                ),
                Attribute::nested(
                    "rooms",
                    Mode::Optional,
                    Nesting::Map,
                    vec![Attribute::optional("any", Type::Dynamic)],
                ),
            ],
            ..Schema::default()
        };
        assert_eq!(
            schema.problems(),
            [
                "count: the name is Terraform's own",
                "Bad: a name is lower-case letters, digits and underscores, and begins with no digit",
                "legs: the default is not of its type",
                "any: the elements of a collection are of one type, and dynamic is none",
                "chip: the default is not of its form",
                "keys.secret_wo: a set cannot hold what is write-only",
                "rooms: the elements of a collection are of one type, and dynamic is none",
            ]
        );
    }
}
