//! The API for requests that racks forward. The caller's own token decides about rights, as everywhere. A rack's certificate gives no
//! rights; because of it, the client address that the rack reports is trusted.

use super::App;
use super::guard::Peer;
use super::problem::Refusal;
use super::router::router;
use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use basalt_api::ProblemCode;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

/// The header with the address of the rack's client. The rack replaces a value from the client itself.
const FOR: &str = "x-forwarded-for";

/// The API, answering for racks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Forwarded(Router);

impl Forwarded {
    pub(crate) fn new(app: App) -> Self {
        Self(router(app))
    }

    /// Answers a request from a rack at this address.
    pub async fn answer(self, rack: IpAddr, mut request: Request) -> Response {
        let client = SocketAddr::new(asked_by(request.headers()).unwrap_or(rack), 0);
        request.extensions_mut().insert(ConnectInfo(Peer::Tls(client)));
        match TowerToHyperService::new(self.0).call(request).await {
            Ok(response) => response,
            Err::<_, Infallible>(never) => match never {},
        }
    }

    /// The refusal for a client that is no rack.
    #[must_use]
    pub fn refuse(detail: &str) -> Response {
        Refusal::new(ProblemCode::Forbidden, detail).into_response()
    }
}

/// The address of the rack's client, from the rack's header.
fn asked_by(headers: &HeaderMap) -> Option<IpAddr> {
    headers.get(FOR)?.to_str().ok()?.trim().parse().ok()
}
