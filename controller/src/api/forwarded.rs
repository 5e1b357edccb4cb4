//! The API for requests that racks pass on. The caller's own token decides, as everywhere; a rack's certificate gives no rights,
//! and is the reason why its word on where a request came from is taken.

use super::App;
use super::endpoints::router;
use super::guard::Peer;
use super::problem::Refusal;
use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use basalt_api::ProblemCode;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

/// Says who asked the rack. What a client says itself there, the rack replaces.
const FOR: &str = "x-forwarded-for";

/// The API, answering for racks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Forwarded(Router);

impl Forwarded {
    pub(crate) fn new(app: App) -> Self {
        Self(router(app))
    }

    /// Answers a request that came from a rack at this address.
    pub async fn answer(self, rack: IpAddr, mut request: Request) -> Response {
        let client = SocketAddr::new(asked_by(request.headers()).unwrap_or(rack), 0);
        request.extensions_mut().insert(ConnectInfo(Peer::Tls(client)));
        match TowerToHyperService::new(self.0).call(request).await {
            Ok(response) => response,
            Err::<_, Infallible>(never) => match never {},
        }
    }

    /// Answers whoever is no rack.
    #[must_use]
    pub fn refuse(detail: &str) -> Response {
        Refusal::new(ProblemCode::Forbidden, detail).into_response()
    }
}

/// Who asked the rack, as the rack says.
fn asked_by(headers: &HeaderMap) -> Option<IpAddr> {
    headers.get(FOR)?.to_str().ok()?.trim().parse().ok()
}
