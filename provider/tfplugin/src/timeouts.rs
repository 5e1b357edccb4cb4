//! Time limits of operations, and the attribute `timeouts`, with which configurations change them.

use std::time::Duration;

use crate::check::Check;
use crate::model::Typed;
use crate::path::Path;
use crate::schema::{Attribute, Mode, Nesting};
use crate::types::Type;
use crate::value::Val;

/// The attribute's name.
const NAME: &str = "timeouts";

/// An operation with a time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`Resource::create`](crate::Resource::create).
    Create,
    /// [`Resource::read`](crate::Resource::read), and that of a data source.
    Read,
    /// [`Resource::update`](crate::Resource::update).
    Update,
    /// [`Resource::delete`](crate::Resource::delete).
    Delete,
}

impl Operation {
    /// The name in configurations.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Read => "read",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// The default time limit of each operation of a resource. A configuration cannot set the limit of an operation that has none
/// here.
///
/// ```
/// use std::time::Duration;
/// use tfplugin::{Operation, Timeouts, Val};
///
/// const SERVER: Timeouts = Timeouts { create: Some(Duration::from_secs(600)), ..Timeouts::NONE };
///
/// // In the schema: SERVER.attribute()
/// let planned = Val::from([("timeouts", Val::from([("create", "1h".into())]))]);
/// assert_eq!(SERVER.of(Operation::Create, &planned), Some(Duration::from_secs(3600)));
/// assert_eq!(SERVER.of(Operation::Create, &Val::Null), Some(Duration::from_secs(600)));
/// assert_eq!(SERVER.of(Operation::Delete, &planned), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are operations")]
pub struct Timeouts {
    pub create: Option<Duration>,
    pub read: Option<Duration>,
    pub update: Option<Duration>,
    pub delete: Option<Duration>,
}

impl Timeouts {
    /// No operation has a time limit.
    pub const NONE: Self = Self { create: None, read: None, update: None, delete: None };

    const fn each(&self) -> [(Operation, Option<Duration>, &'static str); 4] {
        [
            (Operation::Create, self.create, "its creation"),
            (Operation::Read, self.read, "it to be read"),
            (Operation::Update, self.update, "a change of it"),
            (Operation::Delete, self.delete, "its end"),
        ]
    }

    /// The attribute `timeouts`, for a schema with at least one time limit.
    #[must_use]
    pub fn attribute(&self) -> Option<Attribute> {
        let own = self.each().into_iter().filter_map(|(operation, default, what)| {
            let default = default?.write();
            let doc = format!("How long to wait for {what}. Default: `{}`.", default.as_str()?);
            let attribute = Attribute::optional(operation.as_str(), Type::String);
            let check = Check::is::<Duration>("a duration, like `90m`");
            Some(attribute.semantics(Duration::semantics()).check(check).doc(doc))
        });
        let own: Vec<_> = own.collect();
        (!own.is_empty()).then(|| {
            Attribute::nested(NAME, Mode::Optional, Nesting::Single, own)
                .doc("How long to wait, like `90m` or `1h 30m`.")
        })
    }

    /// The time limit of an operation by a resource's values. `None` if the operation has no limit here.
    #[must_use]
    pub fn of(&self, operation: Operation, values: &Val) -> Option<Duration> {
        let (_, default, _) = self.each().into_iter().find(|(it, ..)| *it == operation)?;
        let given = Duration::read(values.get(NAME).get(operation.as_str()), &Path::root());
        Some(given.unwrap_or(default?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Schema, Shape};

    const HOUR: Duration = Duration::from_secs(3600);
    const SLOW: Timeouts =
        Timeouts { create: Some(HOUR), delete: Some(Duration::from_secs(90)), ..Timeouts::NONE };

    #[test]
    fn only_what_may_take_long_can_be_given_time() {
        assert!(Timeouts::NONE.attribute().is_none());
        let attribute = SLOW.attribute().expect("an attribute");
        let Shape::Nested(_, own) = &attribute.shape else { panic!("{attribute:?}") };
        let said: Vec<_> = own.iter().map(|it| (it.name.as_str(), it.description.as_str())).collect();
        let create = ("create", "How long to wait for its creation. Default: `1h`.");
        assert_eq!(said, [create, ("delete", "How long to wait for its end. Default: `1m 30s`.")]);
        let [create, _] = own.as_slice() else { panic!("{own:?}") };
        assert!(create.same(&"60m".into(), &"1h".into()), "another spelling is no change");
        for (text, seconds) in [("2d", 172_800), ("1d 30m", 88_200), ("0", 0)] {
            let given = Val::from([(NAME, Val::from([("create", text.into())]))]);
            assert_eq!(SLOW.of(Operation::Create, &given), Some(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn a_time_that_is_none_is_refused_where_it_stands() {
        let schema = Schema { attributes: SLOW.attribute().into_iter().collect(), ..Schema::default() };
        let wrong = schema.check(&Val::from([(NAME, Val::from([("create", "soon".into())]))]));
        let said: Vec<_> = wrong.into_iter().map(|it| format!("{}: {}", it.path, it.detail)).collect();
        assert_eq!(said, ["timeouts.create: `create` is \"soon\", and must be a duration, like `90m`."]);
    }
}
