//! Enrolment of racks with a join token, and renewal of their certificates.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use basalt_api::Kind;
use basalt_api::values::{RackId, Timestamp};
use basalt_db::{Actor, Enrolment, Joined, Key, Precondition, Put, StoreError, splice};
use basalt_proto::rack_v1::enrolment_server::Enrolment as EnrolmentService;
use basalt_proto::rack_v1::{EnrolReply, EnrolRequest, RenewReply, RenewRequest};
use tonic::{Request, Response, Status};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use super::listener::Peer;
use super::service::{REVOKED, Racks, caller, unavailable};

/// The SHA-256 of the public key in a certificate request (PKCS#10, DER).
fn key_of(csr_der: &[u8]) -> Result<[u8; 32], Status> {
    let (_, csr) = X509CertificationRequest::from_der(csr_der)
        .map_err(|_| Status::invalid_argument("the certificate request is not PKCS#10 in DER"))?;
    Ok(sha256(csr.certification_request_info.subject_pki.raw))
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref());
    digest
}

#[tonic::async_trait]
impl EnrolmentService for Racks {
    async fn enrol(&self, request: Request<EnrolRequest>) -> Result<Response<EnrolReply>, Status> {
        self.sessions.meters().rpc("Enrol", self.enrolled(request)).await
    }
}

impl Racks {
    async fn enrolled(&self, request: Request<EnrolRequest>) -> Result<Response<EnrolReply>, Status> {
        let address = request.extensions().get::<Peer>().and_then(|peer| peer.address);
        let EnrolRequest { secret, name, csr_der } = request.into_inner();
        let spki = key_of(&csr_der)?;
        match self.store.use_join_secret(&secret, &name, &spki).await.map_err(|e| unavailable(&e))? {
            Joined::Yes => {}
            Joined::Unknown => {
                return Err(Status::permission_denied(
                    "the join token is unknown or its time is over: make a new one with `basalt rack join-token`",
                ));
            }
            Joined::Used => {
                return Err(Status::permission_denied(
                    "the join token was used by another rack: make a new one with `basalt rack join-token`",
                ));
            }
            Joined::Taken => {
                return Err(Status::permission_denied(format!(
                    "a rack is enrolled as {name:?}: give this one another name, or have it take that one's place with a join token of that name, by `basalt rack join-token {name}`"
                )));
            }
            Joined::OtherName => {
                return Err(Status::permission_denied(format!(
                    "the join token is for a rack of another name than {name:?}"
                )));
            }
        }
        let (rack, replaces) = self.rack_object(&name, address).await?;
        let enrolment = self.signed(rack, spki, &csr_der)?;
        self.store.put_enrolment(&enrolment).await.map_err(|e| unavailable(&e))?;
        tracing::info!(rack = name, uid = %rack, "rack enrolled");
        Ok(Response::new(EnrolReply {
            rack_uid: rack.to_string(),
            certificate_der: enrolment.certificate_der,
            ca_der: self.authority.certificate().to_vec(),
            not_after_unix_ms: enrolment.not_after.as_millisecond(),
            replaces,
        }))
    }

    /// A new certificate for an enrolled rack, for the same key: only the rack itself can have asked with it.
    pub(super) async fn renewed(
        &self,
        request: Request<RenewRequest>,
    ) -> Result<Response<RenewReply>, Status> {
        let rack = caller(&request)?;
        let peer = request.extensions().get::<Peer>().and_then(|peer| peer.spki_sha256);
        let RenewRequest { csr_der } = request.into_inner();
        let spki = key_of(&csr_der)?;
        if peer != Some(spki) {
            return Err(Status::invalid_argument(
                "the certificate request is of another key than the rack's: a rack with a new key enrols with a join token",
            ));
        }
        let enrolment = self.signed(rack, spki, &csr_der)?;
        if !self.store.renew_enrolment(&enrolment).await.map_err(|e| unavailable(&e))? {
            return Err(Status::unauthenticated(REVOKED));
        }
        tracing::info!(uid = %rack, until = %enrolment.not_after, "the rack's certificate was renewed");
        Ok(Response::new(RenewReply {
            certificate_der: enrolment.certificate_der,
            not_after_unix_ms: enrolment.not_after.as_millisecond(),
        }))
    }

    fn signed(&self, rack: RackId, spki_sha256: [u8; 32], csr_der: &[u8]) -> Result<Enrolment, Status> {
        let (certificate_der, not_after) = self
            .authority
            .sign_rack(csr_der, &rack.to_string(), SystemTime::now())
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let not_after =
            Timestamp::try_from(not_after).map_err(|error| Status::internal(error.to_string()))?;
        Ok(Enrolment { rack, spki_sha256, certificate_der, not_after })
    }

    /// The rack's object, created if needed. The flag is true if it existed.
    async fn rack_object(&self, name: &str, from: Option<SocketAddr>) -> Result<(RackId, bool), Status> {
        let kind = Kind::find("Rack").ok_or_else(|| Status::internal("the kind Rack is not described"))?;
        kind.naming.check(name).map_err(|error| {
            Status::invalid_argument(format!("a rack cannot be called {name:?}: {error}"))
        })?;
        let spec = splice::Text::parse("{}").map_err(|error| Status::internal(error.to_string()))?;
        let put = Put {
            kind,
            key: Key::Name(name),
            spec: &spec,
            at: "",
            labels: None,
            manager: Some("region"),
            adopt: true,
            precondition: Precondition::Absent,
            first_status: &serde_json::json!({}),
        };
        let actor = Actor {
            name: format!("rack {name}"),
            address: from.map_or_else(|| "unknown".to_owned(), |from| from.ip().to_string()),
            request: "Enrol".to_owned(),
        };
        match self.store.acting(Arc::new(actor)).put(&put).await {
            Ok(stored) => Ok((RackId::from(stored.object.uid), false)),
            Err(StoreError::Exists { .. }) => {
                let rack = self.store.get("Rack", Key::Name(name)).await.map_err(|e| unavailable(&e))?;
                Ok((RackId::from(rack.uid), true))
            }
            Err(error) => Err(unavailable(&error)),
        }
    }
}
