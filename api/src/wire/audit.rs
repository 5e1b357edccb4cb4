//! The audit log: the writes of objects and their authors.

use crate::values::{Generation, Timestamp, Uid};
use basalt_api_derive::Shape;
use serde::{Deserialize, Serialize};
use serde_json::Value;
/// Answer to `GET /api/v1/audit`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Shape)]
pub struct AuditPage {
    /// This page's entries, the newest first.
    pub items: Vec<AuditEntry>,
    /// Goes into the next request; absent on the last page.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One write of one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct AuditEntry {
    /// When, by the database's clock.
    pub at: Timestamp,
    /// The author: `token NAME`, `user NAME`, `peer uid 0`, `rack NAME`.
    pub actor: String,
    /// Network address of the author.
    pub address: String,
    /// Method and path of the request.
    pub request: String,
    /// Kind of the object, or a word for a thing that is no object.
    pub kind: String,
    /// Uid of the object; absent for a thing that is no object, like a blob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// Its name at that time.
    pub name: String,
    /// Its generation after the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// The spec before the write, secrets in read form. If the write changed something else, like a name or a layer: that.
    #[serde(default)]
    pub before: Option<Value>,
    /// The same after the write.
    #[serde(default)]
    pub after: Option<Value>,
}
