//! Terraform plugin protocol 6 for Rust: write a provider as a few traits, [`serve`] it.
//!
//! ```text
//! terraform ── starts, reads one line, mTLS over a socket ───────> serve()      (server/)
//!   PlanResourceChange(prior, config)  ──> plan: pure               (plan, schema)
//!   ApplyResourceChange(planned)       ──> your Resource            (provider)
//!                                      <── contract check, then state (contract)
//!                              a Val, or a struct of yours: #[derive(Model)]   (value, model)
//! ```
//!
//! The crate does what every provider needs: the handshake, values and their encodings, planning, the checks of results,
//! cancellation, panics and logs. A provider supplies schemas, and the code to create, read, update and delete. This crate
//! knows no concrete resource.
//!
//! ```no_run
//! # use tfplugin::{Cx, Diags, Provider, Resource, Schema, Val, async_trait};
//! struct Mine;
//!
//! #[async_trait]
//! impl Provider for Mine {
//!     fn schema(&self) -> Schema {
//!         Schema::default()
//!     }
//!     fn resources(&self) -> Vec<Box<dyn Resource>> {
//!         Vec::new()
//!     }
//!     async fn configure(&self, _: &Cx, _: &Val) -> Result<(), Diags> {
//!         Ok(())
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     tfplugin::serve(Mine, tfplugin::Options::new("registry.terraform.io/me/mine"))
//! }
//! ```
//!
//! A complete provider is in `examples/terraform-provider-notes.rs`; `examples/terraform-provider-pets.rs` has every part
//! of a resource. `testing`, behind the feature of the same name, checks that a provider follows Terraform's rules.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod action;
mod check;
mod codec;
mod contract;
mod diag;
pub mod docs;
mod ephemeral;
mod function;
mod generate;
mod identity;
mod list;
mod log;
mod model;
mod number;
mod path;
mod plan;
mod provider;
mod rpc;
mod rule;
mod same;
mod schema;
mod server;
#[cfg(feature = "testing")]
pub mod testing;
mod timeouts;
mod types;
mod value;

pub use action::{Action, Progress};
pub use check::Check;
pub use codec::CodecError;
pub use diag::{Diag, Diags, Severity};
pub use ephemeral::{Ephemeral, Opened};
pub use function::{Function, Parameter, Refusal, Signature};
pub use identity::Identity;
pub use list::{ListResource, Listed, Listing, Query};
pub use model::{Cidr, Mac, Model, Nested, Text, Tf, Typed, Unreadable};
pub use number::Num;
pub use path::{Path, Step};
pub use provider::{Change, Cx, DataSource, Deferral, End, Moved, Provider, Resource};
pub use rule::Rule;
pub use same::Semantics;
pub use schema::{Attribute, Mode, Nesting, ReplaceIf, Schema, Shape};
pub use server::{Options, Reattached, serve};
#[cfg(feature = "derive")]
pub use tfplugin_derive::Model;
pub use timeouts::{Operation, Timeouts};
pub use tokio_util::sync::CancellationToken;
pub use tonic::async_trait;
pub use types::Type;
pub use value::{Dynamic, Object, Val};

/// Used by derived code.
#[doc(hidden)]
pub mod __private {
    pub use crate::model::Reader;
}

/// Generated from `proto/tfplugin6.proto` by `tests/generated.rs`.
#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
#[rustfmt::skip]
#[path = "gen/tfplugin6.rs"]
mod pb;

/// Generated from `proto/plugin.proto` by `tests/generated.rs`.
#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
#[rustfmt::skip]
#[path = "gen/plugin.rs"]
mod pb_plugin;

/// Reads a state's JSON by type. Attributes that the type does not have are dropped; attributes that the JSON does not have
/// are null.
///
/// # Errors
/// A value of another type.
pub fn from_json(value: &serde_json::Value, of: &Type) -> Result<Val, CodecError> {
    codec::json::from_json(value, of)
}

/// Writes a value as JSON; unknown values become null.
#[must_use]
pub fn to_json(value: &Val) -> serde_json::Value {
    codec::json::to_json(value)
}
