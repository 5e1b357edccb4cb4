//! The calls about ephemeral resources, and the end of those that are still open.
//!
//! Terraform closes no ephemeral resource if an operation that used it failed, and none when it is killed. This
//! process closes the open ones when it ends.

use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::warn;

use super::{Rpc, checked, decoded, guarded, no_such_type, outcome};
use crate::codec;
use crate::contract;
use crate::diag::Diags;
use crate::ephemeral::Ephemeral;
use crate::pb;
use crate::types::Type;
use crate::value::Val;

/// A type's name, and the private data with which it is closed.
pub(super) type Open = (String, Vec<u8>);

impl Rpc {
    fn open(&self) -> MutexGuard<'_, BTreeSet<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes all ephemeral resources that Terraform left open.
    pub(crate) async fn close_ephemerals(&self) {
        let open = std::mem::take(&mut *self.open());
        let closing = open.into_iter().map(|(type_name, private)| async move {
            let request = pb::close_ephemeral_resource::Request {
                type_name: type_name.clone(),
                private: Some(private),
            };
            for diag in self.close_ephemeral(request).await.diagnostics {
                warn!(type_name, summary = diag.summary, detail = diag.detail, "it stays open");
            }
        });
        futures_util::future::join_all(closing).await;
    }

    fn ephemeral(&self, name: &str) -> Result<(&dyn Ephemeral, &Type), Diags> {
        match self.types().ephemerals.get(name) {
            Some((ephemeral, of)) => Ok((ephemeral.as_ref(), of)),
            None => Err(no_such_type("ephemeral resource", name)),
        }
    }

    pub(super) async fn validate_ephemeral(
        &self,
        request: pb::validate_ephemeral_resource_config::Request,
    ) -> pb::validate_ephemeral_resource_config::Response {
        let diags = guarded("ValidateEphemeralResourceConfig", &request.type_name, async {
            let (ephemeral, of) = self.ephemeral(&request.type_name)?;
            let config = decoded(request.config.as_ref(), of)?;
            Ok(checked(ephemeral.schema(), &config, ephemeral.validate(&config).await))
        })
        .await
        .unwrap_or_else(|diags| diags);
        pb::validate_ephemeral_resource_config::Response { diagnostics: diags.to_pb() }
    }

    pub(super) async fn open_ephemeral(
        &self,
        request: pb::open_ephemeral_resource::Request,
    ) -> pb::open_ephemeral_resource::Response {
        let cx = self.cx_of(Vec::new(), request.client_capabilities.as_ref());
        if let Some(deferral) = cx.deferral() {
            return pb::open_ephemeral_resource::Response {
                result: Some(codec::encode(&Val::Unknown)),
                deferred: Some(deferral.to_pb()),
                ..Default::default()
            };
        }
        let result = guarded("OpenEphemeralResource", &request.type_name, async {
            let (ephemeral, of) = self.ephemeral(&request.type_name)?;
            let opened = ephemeral.open(&cx, &decoded(request.config.as_ref(), of)?).await?;
            let value = contract::conform(ephemeral.schema(), opened.value)?.without_unknowns();
            Ok((value, opened.renew_at))
        })
        .await;
        let (result, renew_at, failed) = match result {
            Ok((value, renew_at)) => (Some(codec::encode(&value)), renew_at, None),
            Err(diags) => (None, None, Some(diags)),
        };
        let (diags, private, _) = outcome(&cx, failed);
        if result.is_some() {
            self.open().insert((request.type_name, private.clone()));
        }
        pb::open_ephemeral_resource::Response {
            diagnostics: diags.to_pb(),
            renew_at: renew_at.map(timestamp),
            result,
            private: Some(private),
            deferred: None,
        }
    }

    pub(super) async fn renew_ephemeral(
        &self,
        request: pb::renew_ephemeral_resource::Request,
    ) -> pb::renew_ephemeral_resource::Response {
        let before = request.private.unwrap_or_default();
        let cx = self.cx(before.clone());
        let result = guarded("RenewEphemeralResource", &request.type_name, async {
            self.ephemeral(&request.type_name)?.0.renew(&cx).await
        })
        .await;
        let (renew_at, failed) = match result {
            Ok(renew_at) => (renew_at, None),
            Err(diags) => (None, Some(diags)),
        };
        let (diags, private, _) = outcome(&cx, failed);
        let mut open = self.open();
        if open.remove(&(request.type_name.clone(), before)) {
            open.insert((request.type_name, private.clone()));
        }
        drop(open);
        pb::renew_ephemeral_resource::Response {
            diagnostics: diags.to_pb(),
            renew_at: renew_at.map(timestamp),
            private: Some(private),
        }
    }

    pub(super) async fn close_ephemeral(
        &self,
        request: pb::close_ephemeral_resource::Request,
    ) -> pb::close_ephemeral_resource::Response {
        let private = request.private.unwrap_or_default();
        self.open().remove(&(request.type_name.clone(), private.clone()));
        let cx = self.cx(private);
        let failed = guarded("CloseEphemeralResource", &request.type_name, async {
            self.ephemeral(&request.type_name)?.0.close(&cx).await
        })
        .await
        .err();
        pb::close_ephemeral_resource::Response { diagnostics: outcome(&cx, failed).0.to_pb() }
    }
}

/// A point in time in the protocol's form. Times before 1970 become 1970.
fn timestamp(at: SystemTime) -> pb::Timestamp {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    pb::Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_nanos()).unwrap_or_default(),
    }
}
