//! The calls about existing objects: upgrades of old states, reads of resources, and reads of data
//! sources.

use super::{Rpc, decoded, guarded, identity, outcome, undecodable};
use crate::codec;
use crate::contract;
use crate::diag::Diags;
use crate::pb;
use crate::provider::Deferral;
use crate::schema::{Attribute, Nesting, Shape};
use crate::value::{Object, Val};

impl Rpc {
    pub(super) async fn upgrade_state(
        &self,
        request: pb::upgrade_resource_state::Request,
    ) -> pb::upgrade_resource_state::Response {
        let result = guarded("UpgradeResourceState", &request.type_name, async {
            let (resource, of) = self.resource(&request.type_name)?;
            let raw = request.raw_state.unwrap_or_default().json;
            if request.version >= resource.schema().version {
                return codec::json::decode(&raw, of).map_err(undecodable);
            }
            let mut json = serde_json::from_slice(&raw).map_err(|e| undecodable(e.into()))?;
            for version in request.version..resource.schema().version {
                json = resource.upgrade(version, json)?;
            }
            codec::json::from_json(&json, of).map_err(undecodable)
        })
        .await;
        let (state, diags) = match result {
            Ok(state) => (Some(codec::encode(&state)), Diags::default()),
            Err(diags) => (None, diags),
        };
        pb::upgrade_resource_state::Response { upgraded_state: state, diagnostics: diags.to_pb() }
    }

    pub(super) async fn read_state(
        &self,
        request: pb::read_resource::Request,
    ) -> pb::read_resource::Response {
        let cx = self.cx_of(request.private.clone(), request.client_capabilities.as_ref());
        if let Some(deferral) = cx.deferral() {
            return pb::read_resource::Response {
                new_state: request.current_state,
                diagnostics: Vec::new(),
                private: request.private,
                deferred: Some(deferral.to_pb()),
                new_identity: request.current_identity,
            };
        }
        let result = guarded("ReadResource", &request.type_name, async {
            let (resource, of) = self.resource(&request.type_name)?;
            let prior = decoded(request.current_state.as_ref(), of)?;
            let Some(now) = resource.read(&cx, &prior).await? else {
                return Ok((Val::Null, None));
            };
            let now = contract::conform(resource.schema(), now)?.without_unknowns();
            let now = match (&prior, now) {
                (Val::Map(prior), Val::Map(now)) => {
                    Val::Map(respell(&resource.schema().attributes, prior, now))
                }
                (_, now) => now,
            };
            match identity::contradiction(resource, request.current_identity.as_ref(), &now)? {
                Some(contradiction) => Err(contradiction.into()),
                None => {
                    let identity = identity::of(resource, &now);
                    Ok((now, identity))
                }
            }
        })
        .await;
        let (new_state, new_identity, failed) = match result {
            Ok((state, identity)) => (Some(codec::encode(&state)), identity, None),
            Err(diags) => (request.current_state, request.current_identity, Some(diags)),
        };
        let deferred = cx.deferral().map(Deferral::to_pb);
        let (diags, private, _) = outcome(&cx, failed);
        pb::read_resource::Response { new_state, diagnostics: diags.to_pb(), private, deferred, new_identity }
    }

    pub(super) async fn look_up(
        &self,
        request: pb::read_data_source::Request,
    ) -> pb::read_data_source::Response {
        let cx = self.cx_of(Vec::new(), request.client_capabilities.as_ref());
        let result = guarded("ReadDataSource", &request.type_name, async {
            let (source, of) = self.data_source(&request.type_name)?;
            let config = decoded(request.config.as_ref(), of)?;
            if cx.deferral().is_some() {
                return Ok(Val::Unknown);
            }
            let value = contract::conform(source.schema(), source.read(&cx, &config).await?)?;
            Ok(if cx.deferral().is_some() { value } else { value.without_unknowns() })
        })
        .await;
        let (state, failed) = match result {
            Ok(state) => (Some(codec::encode(&state)), None),
            Err(diags) => (None, Some(diags)),
        };
        let deferred = cx.deferral().map(Deferral::to_pb);
        pb::read_data_source::Response { state, diagnostics: outcome(&cx, failed).0.to_pb(), deferred }
    }
}

/// Restores the prior spelling of each value that is equal to the prior one.
fn respell(attributes: &[Attribute], prior: &Object, mut now: Object) -> Object {
    for attribute in attributes {
        let (Some(was), Some(is)) = (prior.get(&attribute.name), now.get_mut(&attribute.name)) else {
            continue;
        };
        if attribute.same(was, is) {
            is.clone_from(was);
            continue;
        }
        let Shape::Nested(nesting, children) = &attribute.shape else {
            continue;
        };
        let one = |was: &Val, is: &mut Val| {
            if let (Val::Map(was), Val::Map(object)) = (was, &mut *is) {
                *is = Val::Map(respell(children, was, std::mem::take(object)));
            }
        };
        match (nesting, was, is) {
            (Nesting::Single, was, is) => one(was, is),
            (Nesting::Map, Val::Map(was), Val::Map(is)) => {
                for (key, is) in is.iter_mut() {
                    if let Some(was) = was.get(key) {
                        one(was, is);
                    }
                }
            }
            (Nesting::List, Val::List(was), Val::List(is)) => {
                was.iter().zip(is.iter_mut()).for_each(|(was, is)| one(was, is));
            }
            _ => {}
        }
    }
    now
}
