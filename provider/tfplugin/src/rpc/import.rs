//! The calls that bring an object under Terraform's management: import, move from another type, and generation of its
//! configuration.

use super::{Rpc, decoded, guarded, identity, outcome, undecodable};
use crate::codec;
use crate::contract;
use crate::diag::Diags;
use crate::generate;
use crate::pb;
use crate::provider::{Deferral, Moved};
use crate::value::Val;

impl Rpc {
    pub(super) async fn import_state(
        &self,
        request: pb::import_resource_state::Request,
    ) -> pb::import_resource_state::Response {
        let cx = self.cx_of(Vec::new(), request.client_capabilities.as_ref());
        let result = guarded("ImportResourceState", &request.type_name, async {
            let (resource, _) = self.resource(&request.type_name)?;
            if cx.deferral().is_some() {
                return Ok((Val::Unknown, request.identity.clone()));
            }
            let state = match identity::given(resource, request.identity.as_ref())? {
                Some(identity) => resource.import_identity(&cx, &identity).await?,
                None => resource.import(&cx, &request.id).await?,
            };
            let state = contract::conform(resource.schema(), state)?.without_unknowns();
            let identity = identity::of(resource, &state).or_else(|| request.identity.clone());
            Ok((state, identity))
        })
        .await;
        let (imported, failed) = match result {
            Ok(imported) => (Some(imported), None),
            Err(diags) => (None, Some(diags)),
        };
        let deferred = cx.deferral().map(Deferral::to_pb);
        let (diags, private, _) = outcome(&cx, failed);
        let imported = imported.map(|(state, identity)| pb::import_resource_state::ImportedResource {
            type_name: request.type_name,
            state: Some(codec::encode(&state)),
            private,
            identity,
        });
        pb::import_resource_state::Response {
            imported_resources: imported.into_iter().collect(),
            diagnostics: diags.to_pb(),
            deferred,
        }
    }

    pub(super) async fn move_state(
        &self,
        request: pb::move_resource_state::Request,
    ) -> pb::move_resource_state::Response {
        let cx = self.cx(Vec::new());
        let result = guarded("MoveResourceState", &request.target_type_name, async {
            let (resource, _) = self.resource(&request.target_type_name)?;
            let raw = request.source_state.unwrap_or_default().json;
            let state = serde_json::from_slice(&raw).map_err(|e| undecodable(e.into()))?;
            let from = Moved {
                provider: &request.source_provider_address,
                type_name: &request.source_type_name,
                version: request.source_schema_version,
                state: &state,
            };
            let state = resource.take_over(&cx, from).await?;
            let state = contract::conform(resource.schema(), state)?.without_unknowns();
            let identity = identity::of(resource, &state);
            Ok((state, identity))
        })
        .await;
        let (state, identity, failed) = match result {
            Ok((state, identity)) => (Some(codec::encode(&state)), identity, None),
            Err(diags) => (None, None, Some(diags)),
        };
        let (diags, private, _) = outcome(&cx, failed);
        pb::move_resource_state::Response {
            target_state: state,
            diagnostics: diags.to_pb(),
            target_private: private,
            target_identity: identity,
        }
    }

    pub(super) async fn generate_config(
        &self,
        request: pb::generate_resource_config::Request,
    ) -> pb::generate_resource_config::Response {
        let result = guarded("GenerateResourceConfig", &request.type_name, async {
            let (resource, of) = self.resource(&request.type_name)?;
            Ok(generate::configuration(resource.schema(), &decoded(request.state.as_ref(), of)?))
        })
        .await;
        let (config, diags) = match result {
            Ok(config) => (Some(codec::encode(&config)), Diags::default()),
            Err(diags) => (None, diags),
        };
        pb::generate_resource_config::Response { config, diagnostics: diags.to_pb() }
    }
}
