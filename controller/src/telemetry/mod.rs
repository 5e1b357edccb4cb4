//! Traces: which request what is done goes back to.
//!
//! A request belongs to the trace that its `traceparent` names, or to a new one; its log lines have `trace_id` and
//! `request_id`, and its answer the latter. A trace that the client named goes on: the store writes it beside what it writes
//! (`basalt_db::trace`), and webhooks are told of it. The driver and the racks do not carry it yet.

pub mod context;

pub use context::Context;
