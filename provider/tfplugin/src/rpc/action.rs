//! The calls about actions.

use std::sync::Arc;

use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::codegen::BoxStream;

use super::{Rpc, Types, checked, decoded, guarded, no_such_type, outcome};
use crate::action::{Action, Progress};
use crate::diag::Diags;
use crate::pb;
use crate::pb::invoke_action::{Event, Request, event};
use crate::provider::{Cx, Deferral};
use crate::types::Type;

/// Capacity of the queue of progress lines for Terraform.
const WAITING: usize = 16;

impl Types {
    fn action(&self, name: &str) -> Result<(&dyn Action, &Type), Diags> {
        match self.actions.get(name) {
            Some((action, of)) => Ok((action.as_ref(), of)),
            None => Err(no_such_type("action", name)),
        }
    }

    async fn invoke(
        &self,
        cx: &Cx,
        request: &Request,
        events: &Sender<Result<Event, Status>>,
    ) -> Result<(), Diags> {
        let (action, of) = self.action(&request.action_type)?;
        let config = decoded(request.config.as_ref(), of)?;
        action.invoke(cx, &config, &Progress::new(events)).await
    }
}

impl Rpc {
    pub(super) async fn validate_action(
        &self,
        request: pb::validate_action_config::Request,
    ) -> pb::validate_action_config::Response {
        let diags = guarded("ValidateActionConfig", &request.action_type, async {
            let (action, of) = self.types().action(&request.action_type)?;
            let config = decoded(request.config.as_ref(), of)?;
            Ok(checked(action.schema(), &config, action.validate(&config).await))
        })
        .await
        .unwrap_or_else(|diags| diags);
        pb::validate_action_config::Response { diagnostics: diags.to_pb() }
    }

    pub(super) async fn plan_one_action(
        &self,
        request: pb::plan_action::Request,
    ) -> pb::plan_action::Response {
        let cx = self.cx_of(Vec::new(), request.client_capabilities.as_ref());
        let failed = guarded("PlanAction", &request.action_type, async {
            let (action, of) = self.types().action(&request.action_type)?;
            if cx.deferral().is_some() {
                return Ok(());
            }
            action.plan(&cx, &decoded(request.config.as_ref(), of)?).await
        })
        .await
        .err();
        let deferred = cx.deferral().map(Deferral::to_pb);
        pb::plan_action::Response { diagnostics: outcome(&cx, failed).0.to_pb(), deferred }
    }

    /// The events of an action: its progress, and finally its end, also after an error.
    pub(super) fn invoke_one_action(&self, request: Request) -> BoxStream<Event> {
        let (events, stream) = channel(WAITING);
        let (types, cx) = (Arc::clone(self.types()), self.cx(Vec::new()));
        tokio::spawn(async move {
            let work = types.invoke(&cx, &request, &events);
            let mut work = std::pin::pin!(guarded("InvokeAction", &request.action_type, work));
            let result = tokio::select! {
                result = &mut work => result,
                // The action is cancelled but not dropped: it may have to clean up.
                () = events.closed() => {
                    cx.cancel();
                    work.await
                }
            };
            let diagnostics = outcome(&cx, result.err()).0.to_pb();
            let completed = event::Type::Completed(event::Completed { diagnostics });
            let _ = events.send(Ok(Event { r#type: Some(completed) })).await;
        });
        Box::pin(ReceiverStream::new(stream))
    }
}
