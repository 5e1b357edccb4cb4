//! The services that every go-plugin host opens beside the plugin's own. Their streams stay open
//! and silent until the end, and end with the process: a graceful shutdown waits for them.

use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::watch;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, Streaming, async_trait};

use super::until;
use crate::pb_plugin as pb;
use crate::provider::End;
use crate::rpc::Rpc;

/// Ends the process, once the provider knows of it.
pub(crate) struct Controller {
    pub(crate) rpc: Arc<Rpc>,
    pub(crate) stop: Arc<watch::Sender<bool>>,
}

#[async_trait]
impl pb::grpc_controller_server::GrpcController for Controller {
    async fn shutdown(&self, _: Request<pb::Empty>) -> Result<Response<pb::Empty>, Status> {
        // Terraform waits for this answer; two seconds after it, it kills the process.
        self.rpc.end(End::Asked).await;
        let _ = self.stop.send(true);
        Ok(Response::new(pb::Empty {}))
    }
}

/// A stream that says nothing until the end.
fn silent<T: Send + 'static>(stopped: watch::Receiver<bool>) -> BoxStream<T> {
    Box::pin(until(stopped).into_stream().filter_map(|()| async { None }))
}

/// Output of the process, were it not on stderr already.
pub(crate) struct Stdio(pub(crate) watch::Receiver<bool>);

#[async_trait]
impl pb::grpc_stdio_server::GrpcStdio for Stdio {
    async fn stream_stdio(&self, _: Request<()>) -> Result<Response<BoxStream<pb::StdioData>>, Status> {
        Ok(Response::new(silent(self.0.clone())))
    }
}

/// Further connections between host and plugin, which this protocol does not need.
pub(crate) struct Broker(pub(crate) watch::Receiver<bool>);

#[async_trait]
impl pb::grpc_broker_server::GrpcBroker for Broker {
    async fn start_stream(
        &self,
        request: Request<Streaming<pb::ConnInfo>>,
    ) -> Result<Response<BoxStream<pb::ConnInfo>>, Status> {
        // The host's half is read to its end, and what it says is dropped.
        let heard = request.into_inner().filter_map(|_| async { None });
        let both = stream::select(heard, silent(self.0.clone())).take_until(until(self.0.clone()));
        Ok(Response::new(Box::pin(both)))
    }
}
