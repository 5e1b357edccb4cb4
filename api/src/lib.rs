//! The kinds of Basalt and their descriptions, validation, plans, and the wire types that all parts share.
//!
//! Each kind is described once: as a pair of Rust structs under [`kinds`]. `#[derive(Model)]` turns them into static data ([`Kind`],
//! [`Schema`], [`Field`], [`Type`]). Code for objects of all kinds walks that data: [`validate()`], [`diff()`], [`openapi()`], the region's
//! REST API, and the Terraform provider. A new field of such a struct therefore appears in all of these.
//!
//! Code for a single kind uses the structs: [`Object::typed`] gives a [`Typed`] of it.
//!
//! ```
//! use basalt_api::{Kind, validate};
//! use serde_json::json;
//!
//! let subnet = Kind::find("Subnet").unwrap();
//! let errors = validate(subnet, &json!({"vlan": "default.0", "cidr": "10.77.0.0/24", "gatway": "10.77.0.1"}));
//! assert_eq!(errors[0].pointer, "/gatway");
//! assert_eq!(errors[0].hint.as_deref(), Some(r#"did you mean "gateway"?"#));
//! ```
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

// The derive macro's output names this crate from outside, here too.
extern crate self as basalt_api;

pub mod agent;
#[cfg(feature = "client")]
pub mod client;
pub mod disk;
#[cfg(feature = "expressions")]
pub mod expression;
pub mod filter;
pub mod glob;
pub mod hardware;
pub mod kinds;
#[cfg(feature = "pin")]
pub mod pin;
pub mod plan;
pub mod pointer;
pub mod problem;
pub mod routes;
#[cfg(feature = "pin")]
pub mod sealing;
pub mod values;
pub mod watch;
pub mod wire;

mod causes;
mod destination;
mod diff;
mod dormant;
mod effective;
mod find;
mod model;
mod object;
mod openapi;
mod schema;
mod validate;

pub use basalt_api_derive::Model;
pub use causes::in_one_line;
pub use destination::redirections;
pub use diff::{
    FieldChange, HIDDEN, HIDDEN_CHANGE, canonical, diff, diff_fields, equal, has_sensitive, mask, masked,
    masked_write,
};
pub use dormant::{dormant, may_be_dormant};
pub use effective::effective;
pub use find::{Reference, SecretAt, SecretWrite, has_secrets, references, secrets};
pub use kinds::KINDS;
#[doc(hidden)]
pub use model::private as __private;
pub use model::{Described, KindOf, Model, Ref};
pub use object::{Metadata, NotOfKind, Object, Typed};
pub use openapi::{Example, examples, openapi, openapi_text};
pub use problem::{FieldCode, FieldError, Problem, ProblemCode};
pub use schema::{Const, Dormant, Effect, Field, Kind, MAX_INT, Presence, Schema, Semantic, Stability, Type};
pub use validate::{
    MAX_DEPTH, MAX_ITEMS, MAX_SPEC_BYTES, MAX_STRING_BYTES, MAX_TEXT_BYTES, validate, validate_labels,
    validate_name, validate_partial,
};
pub use values::BadValue;
