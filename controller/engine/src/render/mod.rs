//! Renders a machine's network, identity and task. Pure text: the same input gives the same output.

pub mod first_boot;
mod kernel;
pub mod netplan;
pub mod network;
pub mod nocloud;
pub mod task;

pub use kernel::kernel_options;
pub use network::{Addresses, Assigned, Fixed, Network, NetworkError, Route};
pub use task::{ComposeError, Context, ReportTo, compose};

/// A YAML scalar. A JSON string is one, with any content.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A flow sequence of quoted scalars.
pub(crate) fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<_> = items.into_iter().map(|i| quoted(&i.to_string())).collect();
    format!("[{}]", items.join(", "))
}
