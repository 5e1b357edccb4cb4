//! Messages for the user: errors and warnings, each with a path into the configuration.

use crate::path::{Path, Step};
use crate::pb;

/// The effect of a diagnostic on the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The operation fails.
    Error,
    /// The operation continues.
    Warning,
}

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diag {
    /// Error or warning.
    pub severity: Severity,
    /// A short sentence without a full stop.
    pub summary: String,
    /// The cause and the remedy.
    pub detail: String,
    /// The path of the value; the root for the block as a whole.
    pub path: Path,
}

impl Diag {
    /// An error about the whole block.
    pub fn error(summary: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { severity: Severity::Error, summary: summary.into(), detail: detail.into(), path: Path::root() }
    }

    /// A warning about the whole block.
    pub fn warning(summary: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(summary, detail) }
    }

    /// The same diagnostic, about the value at `path`.
    #[must_use]
    pub fn at(mut self, path: Path) -> Self {
        self.path = path;
        self
    }

    /// On the wire the path is cut to its root attribute and the whole of it is put in the text:
    /// Terraform before 1.15 drops the location of a diagnostic whose path leads into a nested
    /// attribute.
    fn to_pb(&self) -> pb::Diagnostic {
        let nested = self.path.0.len() > 1;
        let root = match self.path.0.first() {
            Some(Step::Attr(name)) => Some(Path::root().attr(name)),
            _ => None,
        };
        pb::Diagnostic {
            severity: match self.severity {
                Severity::Error => pb::diagnostic::Severity::Error,
                Severity::Warning => pb::diagnostic::Severity::Warning,
            }
            .into(),
            summary: self.summary.clone(),
            detail: if nested { format!("{}: {}", self.path, self.detail) } else { self.detail.clone() },
            attribute: root.map(|path| path.to_pb()),
        }
    }
}

/// Errors and warnings together. As the `Err` of a result it holds at least one error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diags(pub Vec<Diag>);

impl Diags {
    /// Adds a diagnostic.
    pub fn push(&mut self, diag: Diag) {
        self.0.push(diag);
    }

    /// True if there is at least one error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|diag| diag.severity == Severity::Error)
    }

    /// True if there are neither errors nor warnings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn to_pb(&self) -> Vec<pb::Diagnostic> {
        self.0.iter().map(Diag::to_pb).collect()
    }
}

impl From<Diag> for Diags {
    fn from(diag: Diag) -> Self {
        Self(vec![diag])
    }
}

impl Extend<Diag> for Diags {
    fn extend<T: IntoIterator<Item = Diag>>(&mut self, iter: T) {
        self.0.extend(iter);
    }
}

impl IntoIterator for Diags {
    type Item = Diag;
    type IntoIter = std::vec::IntoIter<Diag>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_path_points_at_its_root_attribute_and_is_spelled_out() {
        let path = Path::root().attr("bmc").attr("address");
        let diag = Diag::error("Bad address", "\"x\" is not an address.").at(path).to_pb();
        assert_eq!(diag.detail, "bmc.address: \"x\" is not an address.");
        assert_eq!(diag.attribute, Some(Path::root().attr("bmc").to_pb()));
    }
}
