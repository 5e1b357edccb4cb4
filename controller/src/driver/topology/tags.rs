//! Tags: the machines that have a tag by its expression, and the kernel options of tags. Pure.
//!
//! This region may refuse a stored expression, if a version with other limits accepted it. No machine is evaluated with such an expression.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use basalt_api::expression::{Expression, ExpressionError, Subject};
use basalt_api::kinds::{Inventory, MachineSpec, TagSpec};
use basalt_api::values::{MachineId, Uid};
use basalt_db::{Object, StoreError, Tagged};

use crate::driver::stored::spec;

/// The number of parsed expressions that are kept.
const MOST_READ: usize = 1000;
/// The zone and pool of machines that name none.
const DEFAULT: &str = "default";

/// A tag, with the fields that matter for machines.
#[derive(Clone, Debug)]
pub struct TagSeen {
    /// The tag's id.
    pub uid: Uid,
    /// The tag's name.
    pub name: String,
    /// The declared spec.
    pub spec: TagSpec,
}

impl TagSeen {
    /// The tag of an object.
    ///
    /// # Errors
    /// Fails if the spec cannot be read: another version wrote it.
    pub fn of(object: &Object) -> Result<Self, StoreError> {
        Ok(Self::new(object, spec(object)?))
    }

    /// The tag of an object whose spec is already read.
    #[must_use]
    pub fn new(object: &Object, spec: TagSpec) -> Self {
        Self { uid: object.uid, name: object.name.clone(), spec }
    }
}

pub(crate) type Read = Arc<Result<Expression, ExpressionError>>;

/// Parsed expressions: a text has the same meaning everywhere.
static READ: LazyLock<Mutex<HashMap<String, Read>>> = LazyLock::new(Mutex::default);

pub(crate) fn read(text: &str) -> Read {
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = read.get(text) {
        return known.clone();
    }
    if read.len() >= MOST_READ {
        read.clear();
    }
    let parsed = Arc::new(Expression::parse(text));
    read.insert(text.to_owned(), parsed.clone());
    parsed
}

/// The reason why no machine is evaluated with the tag's expression.
pub(crate) fn refusal(tag: &TagSpec) -> Option<ExpressionError> {
    read(tag.expression.as_ref()?).as_ref().as_ref().err().cloned()
}

/// The tags that a machine has by their expressions, and the tags whose expressions cannot be computed for it. Refused expressions are
/// skipped.
#[must_use]
pub fn evaluate(uid: MachineId, subject: &Subject<'_>, tags: &[TagSeen]) -> Vec<Tagged> {
    let of = |tag: &TagSeen, error| Tagged { machine: uid, tag: tag.uid, name: tag.name.clone(), error };
    let mut held = Vec::new();
    for tag in tags {
        let Some(text) = &tag.spec.expression else { continue };
        let known = read(text);
        let Ok(expression) = known.as_ref() else { continue };
        match expression.holds(subject) {
            Ok(true) => held.push(of(tag, None)),
            Ok(false) => {}
            Err(error) => held.push(of(tag, Some(error.to_string()))),
        }
    }
    held.sort_by(|a, b| (&a.name, a.tag).cmp(&(&b.name, b.tag)));
    held
}

/// The number of these tags with an expression. [`evaluate`] evaluates a machine as often.
pub(crate) fn expressions(tags: &[TagSeen]) -> usize {
    tags.iter().filter(|tag| tag.spec.expression.is_some()).count()
}

/// A machine, in the form that expressions read.
pub(crate) fn subject<'a>(
    name: &'a str,
    machine: &'a MachineSpec,
    inventory: Option<&'a Inventory>,
) -> Subject<'a> {
    Subject {
        name,
        architecture: machine.architecture,
        zone: machine.zone.as_ref().map_or(DEFAULT, |zone| zone.as_str()),
        pool: machine.pool.as_ref().map_or(DEFAULT, |pool| pool.as_str()),
        inventory,
    }
}

/// The kernel parameters of a machine: the region's, those of its tags in the order of the tags' names, then its own.
#[must_use]
pub fn kernel_options(
    region: Option<&String>,
    tags: &[TagSeen],
    has: &BTreeSet<String>,
    own: Option<String>,
) -> Option<String> {
    let of = tags.iter().filter(|tag| has.contains(&tag.name));
    let of = of.filter_map(|tag| tag.spec.kernel_options.clone());
    let options: Vec<_> = region.cloned().into_iter().chain(of).chain(own).collect();
    (!options.is_empty()).then(|| options.join(" "))
}
