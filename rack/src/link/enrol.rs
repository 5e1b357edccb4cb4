//! Enrolment: the rack exchanges a one-time secret and a certificate request for a certificate of the region's CA.

use std::sync::Arc;
use std::time::Duration;

use basalt_api::in_one_line;
use basalt_proto::rack_v1::enrolment_client::EnrolmentClient;
use basalt_proto::rack_v1::{EnrolReply, EnrolRequest};
use tonic::Code;

use super::join::JoinToken;
use super::stream::words;
use super::tls;
use crate::clock::Clock;
use crate::hash::sha256;
use crate::identity::{Identity, IdentityError, Membership};
use crate::lease_file;

/// How long to go on trying if no region answers.
const PATIENCE: Duration = Duration::from_secs(60);
/// The wait between two rounds over all regions.
const PAUSE: Duration = Duration::from_secs(2);
/// The longest wait for the answer of one region.
const ANSWER: Duration = Duration::from_secs(20);

/// The reason why the rack did not enrol.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// A region refused the rack.
    #[error("region {0} refuses to enrol this rack: {1}; ask for a new join token")]
    Refused(String, String),
    /// No region could be reached.
    #[error("no region could be asked for 60 seconds; the last one, {0}, said: {1}")]
    Unreachable(String, String),
    /// The region's CA is not the one in the join token.
    #[error("region {0} answered with another CA than the join token names")]
    WrongCa(String),
    /// This rack's files or key cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// TLS could not be set up.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// Enrols, and stores the answer.
///
/// # Errors
/// `EnrolError`: no region enrolled the rack, or the answer cannot be stored.
pub async fn enrol(
    identity: &Identity,
    name: &str,
    token: &JoinToken,
    clock: &Clock,
) -> Result<Membership, EnrolError> {
    let config = Arc::new(tls::pinned(&token.ca_sha256)?);
    let request = EnrolRequest {
        secret: token.secret.clone(),
        name: name.to_owned(),
        csr_der: identity.certificate_request(name)?,
    };
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut last = (String::new(), String::new());
    loop {
        for address in &token.urls {
            match ask(address, Arc::clone(&config), request.clone()).await {
                Ok(reply) => return keep(identity, name, token, address, reply, clock),
                Err(Ask::Refused(reason)) => return Err(EnrolError::Refused(address.clone(), reason)),
                Err(Ask::Unreachable(reason)) => {
                    tracing::warn!(region = %address, reason, "region could not be asked to enrol this rack");
                    last = (address.clone(), reason);
                }
            }
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(EnrolError::Unreachable(last.0, last.1));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

enum Ask {
    Refused(String),
    Unreachable(String),
}

async fn ask(
    address: &str,
    config: Arc<rustls::ClientConfig>,
    request: EnrolRequest,
) -> Result<EnrolReply, Ask> {
    let unreachable = |error: &dyn std::error::Error| Ask::Unreachable(in_one_line(error));
    let channel = tls::connect(address, config).await.map_err(|error| unreachable(&error))?;
    let mut client = EnrolmentClient::new(channel);
    let answer = tokio::time::timeout(ANSWER, client.enrol(request)).await;
    let answer = answer.map_err(|_| Ask::Unreachable("no answer".to_owned()))?;
    answer.map(tonic::Response::into_inner).map_err(|status| match status.code() {
        Code::PermissionDenied
        | Code::Unauthenticated
        | Code::InvalidArgument
        | Code::AlreadyExists
        | Code::NotFound => Ask::Refused(words(&status).to_owned()),
        _ => Ask::Unreachable(words(&status).to_owned()),
    })
}

fn keep(
    identity: &Identity,
    name: &str,
    token: &JoinToken,
    address: &str,
    reply: EnrolReply,
    clock: &Clock,
) -> Result<Membership, EnrolError> {
    if hex::encode(sha256(&reply.ca_der)) != token.ca_sha256 {
        return Err(EnrolError::WrongCa(address.to_owned()));
    }
    let membership = Membership {
        rack_uid: reply.rack_uid,
        name: name.to_owned(),
        regions: token.urls.clone(),
        not_after_unix_ms: reply.not_after_unix_ms,
    };
    let before = identity.membership()?;
    if reply.replaces && before.is_none_or(|before| before.rack_uid != membership.rack_uid) {
        // The leases of the replaced rack are not here. Note the loss before this rack takes its place.
        let data_dir = identity.data_dir();
        lease_file::note_loss(data_dir, clock.now())
            .map_err(|error| IdentityError::File(data_dir.to_owned(), error))?;
    }
    identity.join(&membership, &reply.certificate_der, &reply.ca_der)?;
    tracing::info!(rack = %membership.rack_uid, region = address, "enrolled");
    Ok(membership)
}
