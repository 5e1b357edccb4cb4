//! Identities in the protocol's calls.

use super::{Rpc, guarded, undecodable};
use crate::codec;
use crate::diag::{Diag, Diags};
use crate::pb;
use crate::provider::Resource;
use crate::value::Val;

/// The identity of the object with this state, once all of it is known.
pub(super) fn of(resource: &dyn Resource, state: &Val) -> Option<pb::ResourceIdentityData> {
    resource.identity().of(state).map(|identity| sent(&identity))
}

fn sent(identity: &Val) -> pb::ResourceIdentityData {
    pb::ResourceIdentityData { identity_data: Some(codec::encode(identity)) }
}

/// The identity that Terraform sent, if there is one.
pub(super) fn given(
    resource: &dyn Resource,
    identity: Option<&pb::ResourceIdentityData>,
) -> Result<Option<Val>, Diags> {
    let Some(identity) = identity else { return Ok(None) };
    let of = resource.identity().value_type(resource.schema());
    let value = codec::decode(identity.identity_data.as_ref(), &of).map_err(undecodable)?;
    Ok((!value.is_null()).then_some(value))
}

/// The error if the identity of the new state differs from the known one.
pub(super) fn contradiction(
    resource: &dyn Resource,
    before: Option<&pb::ResourceIdentityData>,
    state: &Val,
) -> Result<Option<Diag>, Diags> {
    let (Some(before), false) = (given(resource, before)?, state.is_null()) else { return Ok(None) };
    let now = resource.identity().of(state);
    Ok((now.as_ref() != Some(&before)).then(|| {
        let now = now.map_or("nothing".to_owned(), |now| now.to_string());
        Diag::error(
            "It is another object now",
            format!("Its identity was {before}, and is {now}. An identity never changes: this is a bug in the provider."),
        )
    }))
}

impl Rpc {
    pub(super) fn identity_schemas(&self) -> pb::get_resource_identity_schemas::Response {
        let resources = self.types().resources.iter();
        let schemas = resources
            .map(|(name, (resource, _))| (name, resource.identity(), resource.schema()))
            .filter(|(_, identity, _)| !identity.is_empty())
            .map(|(name, identity, schema)| (name.clone(), identity.to_pb(schema)));
        pb::get_resource_identity_schemas::Response {
            identity_schemas: schemas.collect(),
            diagnostics: Vec::new(),
        }
    }

    /// The identity of the object after an apply.
    pub(super) fn identity_of(
        &self,
        type_name: &str,
        state: Option<&pb::DynamicValue>,
    ) -> Option<pb::ResourceIdentityData> {
        let (resource, ty) = self.resource(type_name).ok()?;
        of(resource, &codec::decode(state, ty).ok()?)
    }

    pub(super) async fn upgrade_identity(
        &self,
        request: pb::upgrade_resource_identity::Request,
    ) -> pb::upgrade_resource_identity::Response {
        let result = guarded("UpgradeResourceIdentity", &request.type_name, async {
            let (resource, _) = self.resource(&request.type_name)?;
            let raw = request.raw_identity.unwrap_or_default().json;
            let identity = resource.identity();
            let of = identity.value_type(resource.schema());
            if request.version >= identity.current_version() {
                return codec::json::decode(&raw, &of).map_err(undecodable);
            }
            let mut json = serde_json::from_slice(&raw).map_err(|e| undecodable(e.into()))?;
            for version in request.version..identity.current_version() {
                json = resource.upgrade_identity(version, json)?;
            }
            codec::json::from_json(&json, &of).map_err(undecodable)
        })
        .await;
        let (identity, diags) = match result {
            Ok(identity) => (Some(sent(&identity)), Diags::default()),
            Err(diags) => (None, diags),
        };
        pb::upgrade_resource_identity::Response { upgraded_identity: identity, diagnostics: diags.to_pb() }
    }
}
