//! Renews the rack's certificate before it expires, over any link that is up. The key stays: agents pin it.

use std::convert::Infallible;
use std::time::Duration;

use basalt_proto::rack_v1::RenewRequest;
use basalt_proto::rack_v1::rack_link_client::RackLinkClient;
use tonic::transport::Channel;

use super::Context;
use super::stream::words;
use crate::clock::wall_ms;
use crate::facts::health;
use crate::identity::{IdentityError, Membership};

/// How long before its expiry a certificate is renewed: a third of its lifetime.
const BEFORE: Duration = Duration::from_secs(30 * 86_400);
/// The interval of the check. A failed renewal is tried again after it.
const LOOK: Duration = Duration::from_secs(3600);
/// The longest wait for a region's answer.
const ANSWER: Duration = Duration::from_secs(20);

/// The reason why a certificate was not renewed. It is tried again.
#[derive(Debug, thiserror::Error)]
enum RenewError {
    #[error("the region says: {}", words(.0))]
    Refused(Box<tonic::Status>),
    #[error("the region did not answer within {} seconds", ANSWER.as_secs())]
    Silent,
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// True if a certificate with this expiry must be renewed now; both in Unix milliseconds.
const fn is_due(not_after_ms: i64, now_ms: i64) -> bool {
    not_after_ms.saturating_sub(now_ms) < BEFORE.as_millis() as i64
}

/// Keeps the certificate valid as long as the link lasts.
pub(super) async fn keep_valid(context: &Context, channel: Channel) -> Infallible {
    loop {
        let not_after_ms = context.membership.lock().await.not_after_unix_ms;
        if is_due(not_after_ms, wall_ms()) {
            let problem = match renewed(context, channel.clone()).await {
                Ok(until_unix_ms) => {
                    tracing::info!(until_unix_ms, "certificate renewed");
                    None
                }
                Err(error) => {
                    let problem =
                        format!("it {} and could not be renewed: {error}", end(not_after_ms - wall_ms()));
                    tracing::warn!(problem, "certificate");
                    Some(problem)
                }
            };
            context.facts.tell(health("certificate", problem.as_deref()));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn end(rest_ms: i64) -> String {
    match rest_ms / 3_600_000 {
        _ if rest_ms <= 0 => "has ended".to_owned(),
        hours @ ..48 => format!("ends in {hours} hours"),
        hours => format!("ends in {} days", hours / 24),
    }
}

/// Asks the region for a certificate and keeps it. Returns its end in Unix milliseconds.
///
/// Requests that are forwarded to regions need the membership, so no lock is held while the region answers. If two links ask at the same
/// time, the certificate that comes last is kept: both are of the rack's key.
async fn renewed(context: &Context, channel: Channel) -> Result<i64, RenewError> {
    let csr_der = context.identity.certificate_request(&context.membership.lock().await.name)?;
    let mut region = RackLinkClient::new(channel);
    let answer = tokio::time::timeout(ANSWER, region.renew(RenewRequest { csr_der })).await;
    let answer =
        answer.map_err(|_| RenewError::Silent)?.map_err(|status| RenewError::Refused(Box::new(status)))?;
    let answer = answer.into_inner();
    let mut membership = context.membership.lock().await;
    let renewed = Membership { not_after_unix_ms: answer.not_after_unix_ms, ..membership.clone() };
    context.identity.renew(&renewed, &answer.certificate_der)?;
    *membership = renewed;
    Ok(answer.not_after_unix_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_in_its_last_thirty_days_and_after_its_end() {
        const DAY: i64 = 86_400_000;
        assert!(!is_due(90 * DAY, 59 * DAY));
        assert!(is_due(90 * DAY, 61 * DAY));
        assert!(is_due(90 * DAY, 91 * DAY));
        assert!(!is_due(i64::MAX, -1), "one that never ends");
    }
}
