//! What admins ask: who wrote what.

use super::transport::Call;
use super::{Client, ClientError};
use crate::values::Timestamp;
use crate::wire::AuditPage;

/// Which entries of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditOptions {
    /// Not older than this.
    pub since: Option<Timestamp>,
    /// Of this object: `uid:UUID`, `KIND/NAME`, or `KIND` for all of them.
    pub object: Option<String>,
    /// By this actor: `token NAME`, `user NAME`.
    pub actor: Option<String>,
    /// Most entries of a page; the region's choice when absent.
    pub limit: Option<u32>,
    /// `next` of the page before.
    pub next: Option<String>,
}

impl Client {
    /// A page of the audit log, the newest entry first.
    ///
    /// # Errors
    /// `forbidden` unless the caller is an admin, and see [`ClientError`].
    pub async fn audit(&self, options: &AuditOptions) -> Result<AuditPage, ClientError> {
        let mut call = Call::get("/api/v1/audit");
        let pairs = [
            ("since", options.since.map(|at| at.to_string())),
            ("object", options.object.clone()),
            ("actor", options.actor.clone()),
            ("limit", options.limit.map(|n| n.to_string())),
            ("continue", options.next.clone()),
        ];
        for (name, value) in pairs {
            if let Some(value) = value {
                call = call.query(name, &value);
            }
        }
        self.transport.json(call).await
    }
}
