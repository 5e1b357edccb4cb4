//! The calls about list resources.

use std::sync::Arc;

use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::codegen::BoxStream;

use super::{Rpc, Types, checked, decoded, guarded, no_such_type, outcome};
use crate::diag::Diags;
use crate::list::{ListResource, Listing, Query};
use crate::pb;
use crate::pb::list_resource::{Event, Request};
use crate::provider::Cx;
use crate::types::Type;

/// Capacity of the queue of objects for Terraform.
const WAITING: usize = 16;

impl Types {
    fn list(&self, name: &str) -> Result<(&dyn ListResource, &Type), Diags> {
        match self.lists.get(name) {
            Some((list, of)) => Ok((list.as_ref(), of)),
            None => Err(no_such_type("list resource", name)),
        }
    }

    async fn list_into(
        &self,
        cx: &Cx,
        request: &Request,
        events: &Sender<Result<Event, Status>>,
    ) -> Result<(), Diags> {
        let (list, of) = self.list(&request.type_name)?;
        let (resource, _) = self.resource(&request.type_name)?;
        let config = decoded(request.config.as_ref(), of)?;
        let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0);
        let query = Query { config: &config, with_states: request.include_resource_object, limit };
        list.list(cx, query, &Listing::new(resource, query, events)).await
    }
}

impl Rpc {
    pub(super) async fn validate_list(
        &self,
        request: pb::validate_list_resource_config::Request,
    ) -> pb::validate_list_resource_config::Response {
        let diags = guarded("ValidateListResourceConfig", &request.type_name, async {
            let (list, of) = self.types().list(&request.type_name)?;
            let config = decoded(request.config.as_ref(), of)?;
            Ok(checked(list.schema(), &config, list.validate(&config).await))
        })
        .await
        .unwrap_or_else(|diags| diags);
        pb::validate_list_resource_config::Response { diagnostics: diags.to_pb() }
    }

    /// The objects, one by one; finally the diagnostics about the whole list, if there are any.
    pub(super) fn list_objects(&self, request: Request) -> BoxStream<Event> {
        let (events, stream) = channel(WAITING);
        let (types, cx) = (Arc::clone(self.types()), self.cx(Vec::new()));
        tokio::spawn(async move {
            let work = types.list_into(&cx, &request, &events);
            let result = tokio::select! {
                result = guarded("ListResource", &request.type_name, work) => result,
                // Terraform wants no more objects.
                () = events.closed() => return,
            };
            let diags = outcome(&cx, result.err()).0;
            if !diags.is_empty() {
                let _ = events.send(Ok(Event { diagnostic: diags.to_pb(), ..Event::default() })).await;
            }
        });
        Box::pin(ReceiverStream::new(stream))
    }
}
