//! Connections of racks to the caching proxy of this region process: CONNECT on the racks' port (RFC 9113 §8.5).

use std::time::Duration;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use basalt_proto::PROXY_AUTHORITY;
use hyper::StatusCode;
use hyper_util::rt::TokioIo;

use super::listener::Peer;
use super::service::Racks;

/// A connection without a byte for this long ends.
const IDLE: Duration = Duration::from_secs(15 * 60);

/// Connects a rack to Squid. Callers without the certificate of an enrolled rack are refused.
pub(super) async fn open(racks: &Racks, mut request: Request) -> Response {
    let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
    if let Err(status) = racks.rack_behind(&peer).await {
        return (StatusCode::FORBIDDEN, status.message().to_owned()).into_response();
    }
    if request.uri().authority().is_none_or(|it| it.as_str() != PROXY_AUTHORITY) {
        let reason = format!("a region connects racks to its proxy alone, {PROXY_AUTHORITY}");
        return (StatusCode::NOT_FOUND, reason).into_response();
    }
    let squid = match racks.proxy.connect().await {
        Ok(squid) => squid,
        Err(reason) => return (StatusCode::SERVICE_UNAVAILABLE, reason).into_response(),
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let ended = match upgrade.await {
            Ok(rack) => {
                basalt_proxy::relay(TokioIo::new(rack), squid, IDLE).await.map_err(|it| it.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = ended {
            tracing::debug!(error, "a rack's connection to the proxy ended early");
        }
    });
    StatusCode::OK.into_response()
}
