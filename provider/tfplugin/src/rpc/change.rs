//! The calls about a change: its plan, and its apply.

use super::{Rpc, decoded, guarded, identity, outcome};
use crate::codec;
use crate::contract;
use crate::diag::{Diag, Diags};
use crate::path::Path;
use crate::pb;
use crate::plan;
use crate::provider::{Change, Cx, Deferral};
use crate::value::Val;

impl Rpc {
    pub(super) async fn plan_change(
        &self,
        request: pb::plan_resource_change::Request,
    ) -> pb::plan_resource_change::Response {
        let cx = self.cx_of(request.prior_private, request.client_capabilities.as_ref());
        // While every operation is deferred, the provider cannot look at the region, so it reviews nothing.
        let is_put_off = cx.deferral().is_some();
        let result = guarded("PlanResourceChange", &request.type_name, async {
            let (resource, of) = self.resource(&request.type_name)?;
            let prior = decoded(request.prior_state.as_ref(), of)?;
            let proposed = decoded(request.proposed_new_state.as_ref(), of)?;
            let config = decoded(request.config.as_ref(), of)?;
            if proposed.is_null() {
                if !is_put_off {
                    resource.review_destroy(&cx, &prior).await?;
                }
                return Ok((Val::Null, Vec::new(), None));
            }
            let derive = |planned: &mut _| resource.derive(planned, prior.as_map());
            let mut planned = plan::plan(resource.schema(), &prior, &config, derive);
            planned.state = contract::conform(resource.schema(), planned.state)?;
            if planned.state != prior && !is_put_off {
                let change = Change {
                    prior: &prior,
                    planned: &planned.state,
                    config: &config,
                    replace: &planned.replace,
                };
                let more = resource.review(&cx, change).await?;
                planned.replace.extend(more);
                planned.replace.sort();
                planned.replace.dedup();
            } else if !is_put_off {
                resource.review_unchanged(&cx, &prior).await?;
            }
            // An existing object keeps its identity, also until it is replaced. Terraform accepts no identity with unknown
            // values.
            let identity = match prior.is_null() {
                true => identity::of(resource, &planned.state),
                false => request.prior_identity.clone().or_else(|| identity::of(resource, &prior)),
            };
            Ok((planned.state, planned.replace, identity))
        })
        .await;
        let (planned_state, replace, planned_identity, failed) = match result {
            Ok((state, replace, identity)) => (Some(codec::encode(&state)), replace, identity, None),
            Err(diags) => (request.prior_state, Vec::new(), request.prior_identity, Some(diags)),
        };
        let deferred = cx.deferral().map(Deferral::to_pb);
        let (diags, private, _) = outcome(&cx, failed);
        pb::plan_resource_change::Response {
            planned_state,
            requires_replace: replace.iter().map(Path::to_pb).collect(),
            planned_private: private,
            diagnostics: diags.to_pb(),
            deferred,
            planned_identity,
        }
    }

    pub(super) async fn apply_change(
        &self,
        request: pb::apply_resource_change::Request,
    ) -> pb::apply_resource_change::Response {
        let cx = self.cx(request.planned_private.clone());
        let result = guarded("ApplyResourceChange", &request.type_name, self.apply(&cx, &request)).await;
        let failed = result.as_ref().err().cloned();
        let (mut diags, private, committed) = outcome(&cx, failed);
        let new_state = match result {
            Ok((state, errors)) => {
                diags.extend(errors);
                Some(codec::encode(&state))
            }
            // After a failure, keep the committed state; without one, keep the prior state.
            Err(_) => match committed.map(|state| self.partial(&request.type_name, state)) {
                Some(state) => Some(codec::encode(&state)),
                None => request.prior_state,
            },
        };
        let new_identity = self.identity_of(&request.type_name, new_state.as_ref());
        pb::apply_resource_change::Response { new_state, private, diagnostics: diags.to_pb(), new_identity }
    }

    /// The state after the change, and an error for each contradiction of the plan.
    async fn apply(
        &self,
        cx: &Cx,
        request: &pb::apply_resource_change::Request,
    ) -> Result<(Val, Vec<Diag>), Diags> {
        let (resource, of) = self.resource(&request.type_name)?;
        let prior = decoded(request.prior_state.as_ref(), of)?;
        let planned = decoded(request.planned_state.as_ref(), of)?;
        let config = decoded(request.config.as_ref(), of)?;
        if planned.is_null() {
            resource.delete(cx, &prior).await?;
            return Ok((Val::Null, Vec::new()));
        }
        let change = Change { prior: &prior, planned: &planned, config: &config, replace: &[] };
        let result = if prior.is_null() {
            resource.create(cx, change).await?
        } else {
            resource.update(cx, change).await?
        };
        // The object exists now in the state that the provider returned, even if that state contradicts the plan.
        cx.commit(result.clone());
        let result = contract::conform(resource.schema(), result)?;
        let (result, mut errors) = contract::honour(resource.schema(), &planned, result);
        errors.extend(identity::contradiction(resource, request.planned_identity.as_ref(), &result)?);
        Ok((result, errors))
    }

    /// A committed state in the shape that Terraform can keep.
    fn partial(&self, type_name: &str, state: Val) -> Val {
        match self.resource(type_name) {
            Ok((resource, _)) => contract::salvage(resource.schema(), state),
            Err(_) => Val::Null,
        }
        .without_unknowns()
    }
}

#[cfg(test)]
mod tests {
    use tonic::async_trait;

    use super::*;
    use crate::provider::{DataSource, Provider, Resource};
    use crate::schema::{Attribute, Schema};
    use crate::types::Type;

    /// A provider of one resource that panics at the point that `text` names.
    struct Fragile;

    struct Vase(Schema);

    impl Vase {
        /// Runs up to the panic that the change asks for.
        fn go(cx: &Cx, change: Change<'_>) -> Val {
            let mut state = change.planned.clone();
            assert_ne!(state.get("text").as_str(), Some("at once"), "it broke");
            state.set("uid", Val::Unknown);
            cx.set_private(b"glued".to_vec());
            cx.commit(state.clone());
            state.set("uid", 7_i64);
            cx.commit(state.clone());
            assert_ne!(state.get("text").as_str(), Some("halfway"), "it broke");
            state
        }
    }

    #[async_trait]
    impl Provider for Fragile {
        fn schema(&self) -> Schema {
            Schema::default()
        }
        fn resources(&self) -> Vec<Box<dyn Resource>> {
            let attributes =
                vec![Attribute::required("text", Type::String), Attribute::computed("uid", Type::Number)];
            vec![Box::new(Vase(Schema { attributes, ..Schema::default() }))]
        }
        fn data_sources(&self) -> Vec<Box<dyn DataSource>> {
            Vec::new()
        }
        async fn configure(&self, _: &Cx, _: &Val) -> Result<(), Diags> {
            Ok(())
        }
    }

    #[async_trait]
    impl Resource for Vase {
        fn type_name(&self) -> &str {
            "fragile_vase"
        }
        fn schema(&self) -> &Schema {
            &self.0
        }
        async fn read(&self, _: &Cx, state: &Val) -> Result<Option<Val>, Diags> {
            Ok(Some(state.clone()))
        }
        async fn create(&self, cx: &Cx, change: Change<'_>) -> Result<Val, Diags> {
            Ok(Self::go(cx, change))
        }
        async fn update(&self, cx: &Cx, change: Change<'_>) -> Result<Val, Diags> {
            Ok(Self::go(cx, change))
        }
        async fn delete(&self, _: &Cx, state: &Val) -> Result<(), Diags> {
            panic!("{:?} cannot go", state.get("text"))
        }
    }

    fn vase(text: &str, uid: impl Into<Val>) -> Val {
        Val::from([("text", text.into()), ("uid", uid.into())])
    }

    /// Applies a change. Returns the kept state, the private data, and the errors.
    async fn applied(prior: Val, planned: Val) -> (Val, Vec<u8>, Vec<String>) {
        let rpc = Rpc::new(Box::new(Fragile));
        let config = match planned.get("text").as_str() {
            Some(text) => vase(text, Val::Null),
            None => Val::Null,
        };
        let request = pb::apply_resource_change::Request {
            type_name: "fragile_vase".to_owned(),
            prior_state: Some(codec::encode(&prior)),
            planned_state: Some(codec::encode(&planned)),
            config: Some(codec::encode(&config)),
            planned_private: b"whole".to_vec(),
            ..Default::default()
        };
        let answer = rpc.apply_change(request).await;
        let (_, of) = rpc.resource("fragile_vase").expect("a resource");
        let kept = codec::decode(answer.new_state.as_ref(), of).expect("a state");
        (kept, answer.private, answer.diagnostics.into_iter().map(|diagnostic| diagnostic.detail).collect())
    }

    fn says(told: &[String], what: &str) -> bool {
        matches!(told, [one] if one.contains("ApplyResourceChange fragile_vase panicked") && one.contains(what))
    }

    #[tokio::test]
    async fn a_panic_behind_a_commit_keeps_what_was_committed_last() {
        for prior in [Val::Null, vase("whole", 3_i64)] {
            let (kept, private, told) = applied(prior, vase("halfway", Val::Unknown)).await;
            assert_eq!((kept, private.as_slice()), (vase("halfway", 7_i64), b"glued".as_slice()));
            assert!(says(&told, "it broke"), "{told:?}");
        }
        let (kept, _, told) = applied(Val::Null, vase("fine", Val::Unknown)).await;
        assert_eq!((kept, told), (vase("fine", 7_i64), Vec::new()));
    }

    #[tokio::test]
    async fn a_panic_before_any_commit_keeps_what_was_there_before() {
        for prior in [Val::Null, vase("whole", 3_i64)] {
            let (kept, private, told) = applied(prior.clone(), vase("at once", Val::Unknown)).await;
            assert_eq!((kept, private.as_slice()), (prior, b"whole".as_slice()));
            assert!(says(&told, "it broke"), "{told:?}");
        }
        let (kept, private, told) = applied(vase("whole", 3_i64), Val::Null).await;
        assert_eq!((kept, private.as_slice()), (vase("whole", 3_i64), b"whole".as_slice()));
        assert!(says(&told, "cannot go"), "{told:?}");
    }
}
