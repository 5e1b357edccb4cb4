//! Standard output. Whoever reads it may have read enough (`basalt explain … | head`): that is no failure.

use std::io::Write;

/// Writes text to standard output.
pub(crate) fn show(text: &str) {
    let _read_enough = std::io::stdout().write_all(text.as_bytes());
}
