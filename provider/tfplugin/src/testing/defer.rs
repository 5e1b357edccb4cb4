//! Requests that need values of an unknown provider block, which a provider should defer.

use super::mini::{State, answered, broken_at, filled};
use super::{Broken, MiniCore, rules};
use crate::codec;
use crate::path::Path;
use crate::pb;
use crate::value::Val;

impl MiniCore {
    /// Checks that every operation of a resource is deferred while the provider's block is unknown, and that none is
    /// deferred if Terraform does not allow it.
    ///
    /// # Errors
    /// A rule that was broken.
    pub async fn put_off(&mut self, type_name: &str, config: &Val) -> Result<(), Broken> {
        let attributes = self.schema(type_name)?.attributes.clone();
        let config = filled(&attributes, config);
        for deferral_allowed in [false, true] {
            let client = Some(pb::ClientCapabilities { deferral_allowed, ..Default::default() });
            let request = pb::plan_resource_change::Request {
                client_capabilities: client,
                ..Self::planning(type_name, &attributes, &State::default(), &config)
            };
            let planned = self.client.plan_resource_change(request).await;
            let planned = answered("PlanResourceChange", planned, |planned| &planned.diagnostics)?;
            let during = format!("PlanResourceChange of {type_name}");
            put_off(&during, deferral_allowed, planned.deferred)?;
            let state = self.decoded(type_name, planned.planned_state.as_ref())?;
            broken_at(&during, rules::plan(&attributes, &Val::Null, &config, &state, &Path::root()))?;
        }
        let request = pb::import_resource_state::Request {
            type_name: type_name.to_owned(),
            id: "any".to_owned(),
            client_capabilities: Some(pb::ClientCapabilities {
                deferral_allowed: true,
                ..Default::default()
            }),
            ..Default::default()
        };
        let imported = self.client.import_resource_state(request).await;
        let imported = answered("ImportResourceState", imported, |imported| &imported.diagnostics)?;
        put_off(&format!("ImportResourceState of {type_name}"), true, imported.deferred)?;
        let request = pb::read_resource::Request {
            type_name: type_name.to_owned(),
            current_state: Some(codec::encode(&config)),
            client_capabilities: Some(pb::ClientCapabilities {
                deferral_allowed: true,
                ..Default::default()
            }),
            ..Default::default()
        };
        let read = self.client.read_resource(request).await;
        let read = answered("ReadResource", read, |read| &read.diagnostics)?;
        put_off(&format!("ReadResource of {type_name}"), true, read.deferred)?;
        let now = self.decoded(type_name, read.new_state.as_ref())?;
        self.same(type_name, "what nobody could read", &config, &now)
    }
}

/// An error if an answer is not deferred although it must be, or is deferred although it must not be.
pub(super) fn put_off(during: &str, may: bool, deferred: Option<pb::Deferred>) -> Result<(), Broken> {
    let wrong = match (may, deferred) {
        (true, None) => Some("it is not put off"),
        (false, Some(_)) => Some("it is put off, which Terraform does not take"),
        _ => None,
    };
    broken_at(during, wrong.map(str::to_owned).into_iter().collect())
}
