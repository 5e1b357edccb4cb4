//! Values as Rust types: a struct is what a resource, a data source or the provider's block holds.
//!
//! ```text
//! #[derive(Model)] struct File  ── File::schema() ──────────> Schema
//!   path: String                   <── File::from_val(&Val) ──    what is wrong is told at its attribute
//!   mode: Tf<String>               ── file.to_val() ────────> Val
//! ```
//!
//! [`Typed`] is what one attribute or element can be, and [`Model`] is all of them together.

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
/// A field's type says what can be there. `String`, `bool`, the integers, `f64` and [`Num`](crate::Num) are themselves;
/// [`IpAddr`](std::net::IpAddr) and its two sorts, [`Mac`], [`Cidr`], [`Duration`](std::time::Duration) (`1h 30m`), [`serde_json::Value`] (JSON
/// text) and [`Text`] of whatever else can be parsed and shown are text, of which the spelling does not matter. `Vec`,
/// `BTreeSet` and `BTreeMap<String, …>` are collections. All of these are there and known; `Option` is for what may be
/// null, and [`Tf`] for what may be unknown as well, as anything may in a configuration and what is computed is in a plan.
///
/// A struct that is a field is an object, to be given whole; with `nested` its fields are attributes of their own.
/// Every word of `#[tf(…)]` is in the table of [the macro](derive@crate::Model).
///
/// What can be null cannot be in a type that cannot:
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
/// What is computed is null in a configuration, and unknown in a plan:
///
/// ```compile_fail,E0080
/// #[derive(tfplugin::Model)]
/// struct File {
///     #[tf(computed)]
///     id: String,
/// }
/// ```
///
/// What an attribute says beside its type, such as a default, is lost in an object that is given whole:
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
/// Nor can anything be a field, an `Option` be within a [`Tf`], or other than models be `nested`:
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
    /// Whether some attribute of it says more than its type, and so has to be an attribute of its own.
    #[doc(hidden)]
    const SAYS_MORE: bool;

    /// What Terraform sees of it.
    fn schema() -> Schema;

    /// Reads a value that is at this place of a whole.
    ///
    /// # Errors
    /// Whatever of it is not of its type, each with its path.
    fn from_val_at(val: &Val, at: &Path) -> Result<Self, Diags>;

    /// Reads a value. Attributes that are not there are null, others than those of the model are passed over.
    ///
    /// # Errors
    /// Whatever of it is not of its type, each with its path.
    fn from_val(val: &Val) -> Result<Self, Diags> {
        Self::from_val_at(val, &Path::root())
    }

    /// The value.
    fn to_val(&self) -> Val;
}

/// What an attribute of a [`Model`], or an element of one, can be.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be in a model",
    label = "Terraform has no such value",
    note = "what can be parsed and shown can be there as `tfplugin::Text<{Self}>`, everything else as a `tfplugin::Typed`"
)]
pub trait Typed: Sized {
    /// Whether it can be null.
    const NULLABLE: bool = false;
    /// Whether its elements are in no order, and none is there twice.
    const IS_SET: bool = false;
    /// Whether it is text whose spelling does not matter.
    const IS_SPELLED: bool = false;
    /// Whether there are models in it of which some attribute says more than its type.
    const SAYS_MORE: bool = false;

    /// Its type for Terraform.
    fn of() -> Type;

    /// Which of its spellings mean the same.
    #[must_use]
    fn semantics() -> Semantics {
        Semantics::Exact
    }

    /// Reads the value at this place.
    ///
    /// # Errors
    /// What is wrong with it, with its path.
    fn read(val: &Val, at: &Path) -> Result<Self, Diags>;

    /// The value.
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
    /// What each of them is.
    type Of: Model;
    /// How they are held.
    const NESTING: Nesting;
}

impl<M: Model> Nested for M {
    type Of = M;
    const NESTING: Nesting = Nesting::Single;
}

/// Reads the attributes of an object, and remembers what is wrong with them.
#[derive(Debug)]
pub struct Reader<'a> {
    object: &'a Object,
    at: &'a Path,
    wrong: Diags,
}

impl<'a> Reader<'a> {
    /// Of an object.
    ///
    /// # Errors
    /// It is none.
    pub fn new(val: &'a Val, at: &'a Path) -> Result<Self, Diags> {
        let object = val.as_map().ok_or_else(|| wrong_kind("an object", val, at))?;
        Ok(Self { object, at, wrong: Diags::default() })
    }

    /// One attribute. Nothing is told of the value of a secret one.
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

    /// What is wrong.
    #[must_use]
    pub fn wrong(self) -> Diags {
        self.wrong
    }
}

/// What a sentence about the value at this place begins with.
fn subject(at: &Path) -> String {
    match at.0.last() {
        None => "The whole".to_owned(),
        Some(Step::Attr(name)) => format!("`{name}`"),
        Some(Step::Key(_) | Step::Index(_)) => "An element".to_owned(),
    }
}

/// That something else is there than `want`, or nothing, or what is not known yet.
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

/// That a value of the right kind is not good for more than that.
fn wrong_value(want: &str, why: &str, at: &Path) -> Diags {
    Diag::error(format!("Not {want}"), format!("{} is {why}.", subject(at))).at(at.clone()).into()
}
