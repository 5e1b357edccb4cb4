//! Who wrote what.

use crate::values::{Generation, Timestamp, Uid};
use serde::{Deserialize, Serialize};
use serde_json::Value;
/// Answer to `GET /api/v1/audit`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditPage {
    /// This page's entries, the newest first.
    pub items: Vec<AuditEntry>,
    /// Goes into the next request; absent on the last page.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One write of one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// When, by the database's clock.
    pub at: Timestamp,
    /// Who: `token NAME`, `user NAME`, `peer uid 0`, `rack NAME`.
    pub actor: String,
    /// From where.
    pub address: String,
    /// By which request: its method and path.
    pub request: String,
    /// Kind of what was written.
    pub kind: String,
    /// The object; absent for what is no object, like a blob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// Its name then.
    pub name: String,
    /// Its generation after the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// The spec before, secrets in read form; or what else was changed, like a name or a layer.
    #[serde(default)]
    pub before: Option<Value>,
    /// The same after.
    #[serde(default)]
    pub after: Option<Value>,
}
