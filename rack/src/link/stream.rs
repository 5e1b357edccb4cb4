//! One link: hello, welcome, then messages in both directions until it breaks.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use basalt_proto::rack_v1::rack_link_client::RackLinkClient;
use basalt_proto::rack_v1::{
    ConcernReply, ConcernVersion, Fact, FactAck, FactBatch, FromRack, Pong, Welcome, fact, from_rack,
    from_region,
};
use basalt_proto::{LINK, trace_id};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tracing::Instrument;

use super::{Context, hello, join, renew, tls};
use crate::concern::{self, store::ConcernStore};
use crate::facts::health;
use crate::identity::IdentityError;
use crate::logs::deliver;

/// The longest wait for the region's welcome.
const WELCOME: Duration = Duration::from_secs(10);
/// The longest wait until a batch of facts is stored.
const STORE: Duration = Duration::from_secs(60);
/// The largest message accepted, in bytes.
const MAX_MESSAGE: usize = concern::MOST_BYTES;
/// The most messages that wait to be sent.
const OUTBOX: usize = 64;

/// The identity in the rack's hello.
#[derive(Debug)]
pub struct Me {
    /// The rack's uid in the region.
    pub rack_uid: String,
    /// The rack's name.
    pub name: String,
    /// The regions to dial. A welcome may add some.
    pub regions: Arc<watch::Sender<BTreeSet<String>>>,
}

/// The reason why a link ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The region could not be dialled.
    #[error("{0}")]
    Dial(String),
    /// The region ended the link with a status.
    #[error("the region ended the link: {}", words(.0))]
    Status(#[from] Box<tonic::Status>),
    /// The region closed the stream.
    #[error("the region closed the link")]
    Closed,
    /// The region has deleted this rack.
    #[error("the region has deleted this rack")]
    Deleted,
    /// The welcome or an acknowledgement did not arrive in time.
    #[error("the region did not answer in time: {0}")]
    Silent(&'static str),
    /// The incarnation of the region's database was replaced by another one.
    #[error(
        "the region runs on incarnation {0} of its database, which another one has replaced; restart that region process"
    )]
    Retired(String),
    /// This rack's certificate cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// This rack's disk failed.
    #[error("this rack's disk: {0}")]
    Disk(#[from] std::io::Error),
}

/// The message of a status, for people. The text of the whole status names structures of libraries. Without a message: the meaning of the
/// code.
pub(crate) fn words(status: &tonic::Status) -> &str {
    if status.message().is_empty() { status.code().description() } else { status.message() }
}

/// Dials a region and serves the link until it ends.
///
/// # Errors
/// `LinkError`: the reason for the end.
pub async fn run(context: &Arc<Context>, address: &str, me: &Me) -> Result<Infallible, LinkError> {
    let config = Arc::new(context.identity.region_tls()?);
    let channel = tls::connect(address, config)
        .await
        .map_err(|error| LinkError::Dial(basalt_api::in_one_line(&error)))?;
    let mut client = RackLinkClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE);
    let (outbox, messages) = mpsc::channel(OUTBOX);
    let hello = hello::of(context, me)?;
    send(&outbox, from_rack::Message::Hello(hello.clone())).await?;
    let opened = tokio::time::timeout(WELCOME, client.link(ReceiverStream::new(messages))).await;
    let mut inbox = opened.map_err(|_| LinkError::Silent("hello"))?.map_err(Box::new)?.into_inner();
    let welcome = tokio::time::timeout(WELCOME, welcome(&mut inbox))
        .await
        .map_err(|_| LinkError::Silent("hello"))??;
    enter(context, address, me, &welcome)?;
    context.origin.insert(address, channel.clone());
    tracing::info!(region = %address, incarnation = %welcome.incarnation, "linked to the region");
    context.facts.tell(health(&format!("{LINK}{address}"), None));
    told(context, welcome.unix_ms);
    context.dhcp.repeat_in_force();
    let (acknowledge, acknowledged) = mpsc::channel(OUTBOX);
    tokio::select! {
        ended = listen(context, (address, me), &mut inbox, &outbox, &acknowledge) => ended,
        ended = deliver(context, &outbox, acknowledged, welcome.boot_traces) => ended,
        ended = hello::again(context, me, hello, &outbox) => ended,
        never = renew::keep_valid(context, channel.clone()) => match never {},
        never = deliver::deliver(&context.logs, address, channel) => match never {},
        // A retired incarnation must not acknowledge facts: they would be lost. End the link.
        () = context.epochs.replaced(&welcome.incarnation) => Err(LinkError::Retired(welcome.incarnation)),
    }
}

async fn welcome(inbox: &mut Streaming<basalt_proto::rack_v1::FromRegion>) -> Result<Welcome, LinkError> {
    loop {
        match inbox.message().await.map_err(Box::new)?.ok_or(LinkError::Closed)?.message {
            Some(from_region::Message::Welcome(welcome)) => return Ok(welcome),
            Some(from_region::Message::Forget(_)) => return Err(LinkError::Deleted),
            _ => tracing::debug!("message before the welcome ignored"),
        }
    }
}

fn enter(context: &Context, address: &str, me: &Me, welcome: &Welcome) -> Result<(), LinkError> {
    if context.epochs.retired().contains(&welcome.incarnation) {
        return Err(LinkError::Retired(welcome.incarnation.clone()));
    }
    context.epochs.enter(&welcome.incarnation)?;
    let mut regions: BTreeSet<String> =
        welcome.regions.iter().filter_map(|url| join::address(url).ok()).collect();
    regions.insert(address.to_owned());
    me.regions.send_if_modified(|known| {
        let changed = *known != regions && !regions.is_subset(known);
        if changed {
            // Keep the addresses that work now, even if this region does not know them.
            known.extend(regions.iter().cloned());
        }
        changed
    });
    Ok(())
}

async fn listen(
    context: &Arc<Context>,
    (address, me): (&str, &Me),
    inbox: &mut Streaming<basalt_proto::rack_v1::FromRegion>,
    outbox: &mpsc::Sender<FromRack>,
    acknowledge: &mpsc::Sender<FactAck>,
) -> Result<Infallible, LinkError> {
    loop {
        let message = inbox.message().await.map_err(Box::new)?.ok_or(LinkError::Closed)?;
        match message.message {
            Some(from_region::Message::Concern(version)) => {
                let span = concern_span(&version);
                let reply = applied(context, span, move |concerns| concerns.apply(&version)).await?;
                send(outbox, from_rack::Message::ConcernReply(reply)).await?;
            }
            Some(from_region::Message::ConcernDelta(delta)) => {
                let span = delta.version.as_ref().map_or(tracing::Span::none(), concern_span);
                let reply = applied(context, span, move |concerns| concerns.apply_delta(delta)).await?;
                context.facts.meters().changed(reply.outcome());
                send(outbox, from_rack::Message::ConcernReply(reply)).await?;
            }
            Some(from_region::Message::Power(command)) => {
                let power = Arc::clone(&context.power);
                let span = tracing::info_span!("power", trace_id = trace_id(&command.traceparent));
                tokio::spawn(async move { power.execute(command).await }.instrument(span));
            }
            Some(from_region::Message::FactAck(ack)) => {
                told(context, ack.unix_ms);
                acknowledge.send(ack).await.map_err(|_| LinkError::Closed)?;
            }
            Some(from_region::Message::Ping(ping)) => {
                send(outbox, from_rack::Message::Pong(Pong { nonce: ping.nonce })).await?;
            }
            Some(from_region::Message::Leases(leases)) => {
                // Run in a task of its own, so that it completes even if the link ends.
                let dhcp = Arc::clone(&context.dhcp);
                tokio::spawn(async move { dhcp.learn(leases).await }).await.map_err(std::io::Error::other)?;
            }
            Some(from_region::Message::Forget(_)) => return Err(LinkError::Deleted),
            // The list of regions has changed.
            Some(from_region::Message::Welcome(welcome)) => enter(context, address, me, &welcome)?,
            None => {}
        }
    }
}

fn concern_span(version: &ConcernVersion) -> tracing::Span {
    let trace_id = trace_id(&version.traceparent);
    tracing::info_span!("concern", trace_id, concern = version.concern)
}

/// Applies a concern, on a thread that may block.
async fn applied(
    context: &Context,
    span: tracing::Span,
    apply: impl FnOnce(&ConcernStore) -> ConcernReply + Send + 'static,
) -> Result<ConcernReply, LinkError> {
    let concerns = Arc::clone(&context.concerns);
    let applied = tokio::task::spawn_blocking(move || span.in_scope(|| apply(&concerns))).await;
    Ok(applied.map_err(std::io::Error::other)?)
}

/// Sends facts, one batch at a time, once it is this link's turn. Traces of boots are left out if the region's version
/// does not know them.
async fn deliver(
    context: &Context,
    outbox: &mpsc::Sender<FromRack>,
    mut acknowledged: mpsc::Receiver<FactAck>,
    takes_boot_traces: bool,
) -> Result<Infallible, LinkError> {
    let turn = async {
        // Drop acknowledgements until then: this link has sent no facts.
        loop {
            tokio::select! {
                next = context.delivery.lock() => return Some(next),
                stray = acknowledged.recv() => { stray.as_ref()?; }
            }
        }
    };
    let mut next = turn.await.ok_or(LinkError::Closed)?;
    let mut durable = context.facts.durable();
    loop {
        durable.borrow_and_update();
        let mut facts = context.facts.read(*next).await?;
        let Some(end) = facts.last().map(|fact| fact.seq) else {
            if durable.changed().await.is_err() {
                return Err(LinkError::Closed);
            }
            continue;
        };
        facts.retain(|fact| takes_boot_traces || !matches!(fact.body, Some(fact::Body::BootTrace(_))));
        let Some(last) = facts.last().map(|fact| fact.seq) else {
            *next = end + 1;
            continue;
        };
        let batch = FactBatch {
            spool_uid: context.facts.uid().to_owned(),
            facts: facts.clone(),
            waiting: durable.borrow().saturating_sub(end + 1),
            oldest_ms: facts.first().map_or(0, |first| waited(first, context.facts.clock().unix_now())),
        };
        send(outbox, from_rack::Message::Facts(batch)).await?;
        let deadline = tokio::time::Instant::now() + STORE;
        let mut through = 0;
        while through < last {
            let ack = tokio::time::timeout_at(deadline, acknowledged.recv()).await;
            let ack = ack.map_err(|_| LinkError::Silent("facts"))?.ok_or(LinkError::Closed)?;
            if ack.spool_uid == context.facts.uid() {
                through = through.max(ack.through_seq.min(last));
                *next = (*next).max(through + 1);
            }
        }
        *next = (*next).max(end + 1);
        context.facts.acknowledge(context.facts.uid(), end).await;
        stored(context, facts);
    }
}

/// Takes the time that a region sent; 0: it sent none.
fn told(context: &Context, region_ms: i64) {
    if region_ms != 0 {
        context.facts.clock().told(region_ms);
    }
}

/// How long ago a fact was observed, in milliseconds.
fn waited(fact: &Fact, now_unix_ms: i64) -> u64 {
    u64::try_from(now_unix_ms.saturating_sub(fact.observed_unix_ms)).unwrap_or(0)
}

/// Notes that a region has stored these leases: they may be renewed for their whole time.
fn stored(context: &Context, facts: Vec<Fact>) {
    for fact in facts {
        let Some(fact::Body::Lease(lease)) = fact.body else { continue };
        if lease.released {
            continue;
        }
        match (lease.address.parse(), fact.mac.parse().ok()) {
            (Ok(IpAddr::V4(address)), Some(mac)) => context.dhcp.acknowledge(address, mac),
            (Ok(IpAddr::V6(address)), mac) => context.dhcp.v6.acknowledge(address, mac),
            _ => {}
        }
    }
}

pub(super) async fn send(
    outbox: &mpsc::Sender<FromRack>,
    message: from_rack::Message,
) -> Result<(), LinkError> {
    outbox.send(FromRack { message: Some(message) }).await.map_err(|_| LinkError::Closed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Status;

    #[test]
    fn the_end_of_a_link_is_said_without_structures_of_libraries() {
        let mut broken = Status::unknown("h2 protocol error: error reading a body from connection");
        broken.set_source(Arc::new(std::io::Error::other("hyper")));
        let said = |status| LinkError::from(Box::new(status)).to_string();
        assert_eq!(
            said(broken),
            "the region ended the link: h2 protocol error: error reading a body from connection"
        );
        let nothing = Status::unavailable("");
        assert_eq!(said(nothing), "the region ended the link: The service is currently unavailable");
    }
}
