//! The services that every go-plugin host opens beside the plugin's own. Their streams stay open
//! and silent, and end with the process: a graceful shutdown waits for them.

use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::watch;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, Streaming, async_trait};

use super::until;
use crate::pb_plugin as pb;
use crate::provider::End;
use crate::rpc::Rpc;

/// Ends the process, after the provider has finished its own work.
pub(crate) struct Controller {
    pub(crate) rpc: Arc<Rpc>,
    pub(crate) stop: Arc<watch::Sender<bool>>,
}

#[async_trait]
impl pb::grpc_controller_server::GrpcController for Controller {
    async fn shutdown(&self, _: Request<pb::Empty>) -> Result<Response<pb::Empty>, Status> {
        // Terraform waits for this answer. It kills the process two seconds later.
        self.rpc.end(End::Asked).await;
        let _ = self.stop.send(true);
        Ok(Response::new(pb::Empty {}))
    }
}

/// A stream without messages, which stays open until the process stops.
fn silent<T: Send + 'static>(stopped: watch::Receiver<bool>) -> BoxStream<T> {
    Box::pin(until(stopped).into_stream().filter_map(|()| async { None }))
}

/// The stream of the process's output. It is empty, because output goes to stderr.
pub(crate) struct Stdio(pub(crate) watch::Receiver<bool>);

#[async_trait]
impl pb::grpc_stdio_server::GrpcStdio for Stdio {
    async fn stream_stdio(&self, _: Request<()>) -> Result<Response<BoxStream<pb::StdioData>>, Status> {
        Ok(Response::new(silent(self.0.clone())))
    }
}

/// Further connections between host and plugin. This protocol needs none.
pub(crate) struct Broker(pub(crate) watch::Receiver<bool>);

#[async_trait]
impl pb::grpc_broker_server::GrpcBroker for Broker {
    async fn start_stream(
        &self,
        request: Request<Streaming<pb::ConnInfo>>,
    ) -> Result<Response<BoxStream<pb::ConnInfo>>, Status> {
        // The host's messages are read and dropped.
        let heard = request.into_inner().filter_map(|_| async { None });
        let both = stream::select(heard, silent(self.0.clone())).take_until(until(self.0.clone()));
        Ok(Response::new(Box::pin(both)))
    }
}
