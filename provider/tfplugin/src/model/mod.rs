//! Values as Rust types: a struct holds the attributes of a resource, a data source or the provider's block.
//!
//! ```text
//! #[derive(Model)] struct File  ── File::schema() ──────────> Schema
//!   path: String                   <── File::from_val(&Val) ──    errors, each at its attribute
//!   mode: Tf<String>               ── file.to_val() ────────> Val
//! ```
//!
//! [`Typed`] is a type of one attribute or element; [`Model`] is a struct of attributes.

mod net;
mod tf;
mod values;

use crate::diag::{Diag, Diags};
use crate::path::{Path, Step};
use crate::same::Semantics;
use crate::schema::{Nesting, Schema};
use crate::types::Type;
use crate::value::{Object, Val};

pub use net::{Cidr, Mac, Unreadable};
pub use tf::Tf;
pub use values::Text;

/// A struct whose fields are attributes. Derived:
///
/// ```
/// use std::collections::BTreeMap;
/// use tfplugin::{Model, Tf, Val};
///
/// /// A file.
/// #[derive(Model, Clone, Debug)]
/// struct File {
///     /// Where it is.
///     #[tf(required, replace)]
///     path: String,
///     /// Who may do what with it.
///     #[tf(optional, default = "0644")]
///     mode: Tf<String>,
///     #[tf(optional, write_only, sensitive)]
///     secret: Tf<String>,
///     #[tf(computed, use_state)]
///     id: Tf<String>,
///     #[tf(optional)]
///     labels: Option<BTreeMap<String, String>>,
///     #[tf(optional, nested)]
///     owner: Option<Owner>,
/// }
///
/// /// Whose it is.
/// #[derive(Model, Clone, Debug)]
/// struct Owner {
///     #[tf(required)]
///     name: String,
/// }
///
/// let planned = Val::from([("path", "/etc/motd".into()), ("mode", "0600".into()), ("id", Val::Unknown)]);
/// let mut file = File::from_val(&planned)?;
/// assert!(file.id.is_unknown() && file.secret.is_null() && file.owner.is_none());
/// file.id = "17".to_owned().into();
/// assert_eq!(file.to_val().get("id"), &Val::from("17"));
///
/// let wrong = File::from_val(&Val::from([("path", true.into())])).unwrap_err();
/// assert_eq!(wrong.0[0].path.to_string(), "path");
/// # Ok::<(), tfplugin::Diags>(())
/// ```
///
/// The type of a field decides which values the attribute accepts:
///
/// - `String`, `bool`, the integers, `f64` and [`Num`](crate::Num) are plain values.
/// - [`IpAddr`](std::net::IpAddr), `Ipv4Addr`, `Ipv6Addr`, [`Mac`], [`Cidr`], [`Duration`](std::time::Duration) (`1h 30m`),
///   [`serde_json::Value`] (JSON text) and [`Text`] are text. Different spellings of one value are equal.
/// - `Vec`, `BTreeSet` and `BTreeMap<String, …>` are collections.
///
/// All of these values must be known and not null. `Option` accepts null. [`Tf`] accepts null and unknown values: any value of a
/// configuration, and a computed value of a plan, may be unknown.
///
/// A struct as a field is an object, which a configuration gives whole; with `nested` its fields are attributes of their own.
/// Every word of `#[tf(…)]` is in the table of [the macro](derive@crate::Model).
///
/// An attribute that can be null needs a type that accepts null:
///
/// ```compile_fail,E0080
/// #[derive(tfplugin::Model)]
/// struct File {
///     #[tf(optional)]
///     mode: String,
/// }
/// ```
///
/// ```compile_fail,E0080
/// #[derive(tfplugin::Model)]
/// struct File {
///     #[tf(required, write_only)]
///     secret: String,
/// }
/// ```
///
/// A computed attribute is null in a configuration and unknown in a plan:
///
/// ```compile_fail,E0080
/// #[derive(tfplugin::Model)]
/// struct File {
///     #[tf(computed)]
///     id: String,
/// }
/// ```
///
/// In an object that is given whole, an attribute has only its type: defaults and other words of `#[tf(…)]` would be lost.
///
/// ```compile_fail,E0080
/// #[derive(tfplugin::Model)]
/// struct File {
///     #[tf(required)]
///     owner: Owner,
/// }
/// #[derive(tfplugin::Model)]
/// struct Owner {
///     #[tf(required)]
///     address: std::net::IpAddr,
/// }
/// ```
///
/// A field must be a [`Typed`], a [`Tf`] cannot hold an `Option`, and only models can be `nested`:
///
/// ```compile_fail,E0277
/// #[derive(tfplugin::Model)]
/// struct File {
///     #[tf(required)]
///     at: std::time::SystemTime,
/// }
/// ```
///
/// ```compile_fail,E0080
/// #[derive(tfplugin::Model)]
/// struct File {
///     #[tf(optional)]
///     mode: tfplugin::Tf<Option<String>>,
/// }
/// ```
///
/// ```compile_fail,E0277
/// #[derive(tfplugin::Model)]
/// struct File {
///     #[tf(required, nested)]
///     paths: Vec<String>,
/// }
/// ```
pub trait Model: Sized {
    /// True if an attribute has more than a type, for example a default. Such a struct must be `nested`.
    #[doc(hidden)]
    const SAYS_MORE: bool;

    /// The schema that Terraform sees.
    fn schema() -> Schema;

    /// Reads a value that is at this place of a whole.
    ///
    /// # Errors
    /// Every part with the wrong type, each with its path.
    fn from_val_at(val: &Val, at: &Path) -> Result<Self, Diags>;

    /// Reads a value. Missing attributes are null; attributes that the model does not have are ignored.
    ///
    /// # Errors
    /// Every part with the wrong type, each with its path.
    fn from_val(val: &Val) -> Result<Self, Diags> {
        Self::from_val_at(val, &Path::root())
    }

    /// The model as a value, with all its attributes.
    fn to_val(&self) -> Val;
}

/// A type that an attribute of a [`Model`], or an element of a collection, can have.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be in a model",
    label = "Terraform has no such value",
    note = "what can be parsed and shown can be there as `tfplugin::Text<{Self}>`, everything else as a `tfplugin::Typed`"
)]
pub trait Typed: Sized {
    /// True if the value can be null.
    const NULLABLE: bool = false;
    /// True if the elements have no order and each occurs once.
    const IS_SET: bool = false;
    /// True if the value is text with several equal spellings.
    const IS_SPELLED: bool = false;
    /// True if the type contains a model with attributes that have more than a type. See `Model::SAYS_MORE`.
    const SAYS_MORE: bool = false;

    /// The type in Terraform.
    fn of() -> Type;

    /// The rule that decides which spellings are equal.
    #[must_use]
    fn semantics() -> Semantics {
        Semantics::Exact
    }

    /// Reads the value at this place.
    ///
    /// # Errors
    /// Every error in the value, with its path.
    fn read(val: &Val, at: &Path) -> Result<Self, Diags>;

    /// The value for Terraform.
    fn write(&self) -> Val;
}

impl<M: Model> Typed for M {
    const SAYS_MORE: bool = M::SAYS_MORE;
    fn of() -> Type {
        M::schema().value_type()
    }
    fn read(val: &Val, at: &Path) -> Result<Self, Diags> {
        M::from_val_at(val, at)
    }
    fn write(&self) -> Val {
        self.to_val()
    }
}

/// Objects that have attributes of their own.
#[diagnostic::on_unimplemented(
    message = "`{Self}` holds no models, so it cannot be `nested`",
    label = "neither a model nor a `Vec`, `BTreeSet` or `BTreeMap` of models"
)]
pub trait Nested: Typed {
    /// The model of one object.
    type Of: Model;
    /// The collection that holds the objects.
    const NESTING: Nesting;
}

impl<M: Model> Nested for M {
    type Of = M;
    const NESTING: Nesting = Nesting::Single;
}

/// Reads the attributes of an object, and collects the errors.
#[derive(Debug)]
pub struct Reader<'a> {
    object: &'a Object,
    at: &'a Path,
    wrong: Diags,
}

impl<'a> Reader<'a> {
    /// Starts to read an object.
    ///
    /// # Errors
    /// The value is not an object.
    pub fn new(val: &'a Val, at: &'a Path) -> Result<Self, Diags> {
        let object = val.as_map().ok_or_else(|| wrong_kind("an object", val, at))?;
        Ok(Self { object, at, wrong: Diags::default() })
    }

    /// Reads one attribute. If `is_secret`, errors do not contain the value.
    pub fn attribute<T: Typed>(&mut self, name: &str, is_secret: bool) -> Option<T> {
        let val = self.object.get(name).unwrap_or(&Val::Null);
        let mut wrong = match T::read(val, &self.at.attr(name)) {
            Ok(value) => return Some(value),
            Err(wrong) => wrong,
        };
        if is_secret {
            for diag in &mut wrong.0 {
                diag.path = self.at.attr(name);
                diag.detail = format!("{} is sensitive, and so not shown.", subject(&diag.path));
            }
        }
        self.wrong.extend(wrong);
        None
    }

    /// The collected errors.
    #[must_use]
    pub fn wrong(self) -> Diags {
        self.wrong
    }
}

/// The subject of an error message about the value at this path.
fn subject(at: &Path) -> String {
    match at.0.last() {
        None => "The whole".to_owned(),
        Some(Step::Attr(name)) => format!("`{name}`"),
        Some(Step::Key(_) | Step::Index(_)) => "An element".to_owned(),
    }
}

/// Error: the value has another kind than `want`, is null, or is unknown.
fn wrong_kind(want: &str, found: &Val, at: &Path) -> Diags {
    let subject = subject(at);
    let (summary, detail) = match found {
        Val::Null => ("No value".to_owned(), format!("{subject} is null, and {want} is needed.")),
        Val::Unknown => {
            let detail = format!("{subject} is known only after the apply, and is needed before.");
            ("Not known yet".to_owned(), detail)
        }
        other => (format!("Not {want}"), format!("{subject} is {}.", other.kind())),
    };
    Diag::error(summary, detail).at(at.clone()).into()
}

/// Error: the value has the right kind, but a wrong content.
fn wrong_value(want: &str, why: &str, at: &Path) -> Diags {
    Diag::error(format!("Not {want}"), format!("{} is {why}.", subject(at))).at(at.clone()).into()
}
