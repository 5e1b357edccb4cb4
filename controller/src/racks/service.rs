//! The gRPC services for enrolled racks: the link, and blobs.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use basalt_api::values::{Generation, RackId, Timestamp, Uid, UntrustedMessage, UntrustedName};
use basalt_db::{ConcernAck, Key, LeasesSeen, NewFact, Store, StoreError, trace};
use basalt_proto::LINK;
use basalt_proto::rack_v1::concern_reply::Outcome;
use basalt_proto::rack_v1::from_rack::Message as Said;
use basalt_proto::rack_v1::from_region::Message;
use basalt_proto::rack_v1::rack_lease::Grantor;
use basalt_proto::rack_v1::rack_link_server::RackLink;
use basalt_proto::rack_v1::{
    BlobChunk, ConcernReply, FactAck, FactBatch, FetchBlobRequest, Forget, FromRack, FromRegion, Hello,
    Leases, LogAck, LogBatch, RackLease, RenewReply, RenewRequest, Welcome,
};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::authority::Authority;
use super::concerns::Sent;
use super::listener::{Enrolled, Peer, Retired};
use super::observed::{self, Observed};
use super::sessions::{BACKLOG, Known, Sessions};
use crate::blobs::Blobs;
use crate::logs::{LogError, Logs};
use crate::proxy::RegionProxy;

/// How often facts are stored again if their transaction meets another one.
const STORE_TRIES: usize = 5;
/// The number of bytes of a blob per message.
const CHUNK: usize = 256 * 1024;
/// The pause after a change before concerns are read, so that a burst of changes is sent once.
const COALESCE: Duration = Duration::from_millis(10);
/// The shortest interval at which a rack gets the other racks' leases.
const SHARE: Duration = Duration::from_secs(1);
/// The number of leases per message.
const SHARED: usize = 2000;
/// The longest wait for a wake-up, in case one was lost.
const LOOK_ANYWAY: Duration = Duration::from_secs(5);

/// The answer to a rack that was removed.
pub(super) const REVOKED: &str =
    "the rack's certificate is revoked or unknown: enrol it again with a new join token";

/// The parts that the services use. Cheap to clone.
#[derive(Clone)]
pub struct Racks {
    /// The region's store.
    pub store: Store,
    /// The id of this process.
    pub process: Uid,
    /// The racks' streams to this process.
    pub sessions: Sessions,
    /// The authority that signs racks' certificates.
    pub authority: Arc<Authority>,
    /// The bytes of images.
    pub blobs: Blobs,
    /// The logs of machines.
    pub logs: Logs,
    /// The caching proxy of this process.
    pub proxy: Arc<RegionProxy>,
}

impl std::fmt::Debug for Racks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Racks").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

pub(super) fn unavailable(error: &StoreError) -> Status {
    tracing::warn!(%error, "a rack could not be served");
    Status::unavailable(format!("the region's store did not answer: {error}"))
}

impl Racks {
    /// The enrolled rack at the other end of a connection.
    pub(super) async fn rack_behind(&self, peer: &Peer) -> Result<RackId, Status> {
        let Some(spki) = peer.spki_sha256 else { return Err(no_certificate()) };
        let enrolled = self.store.enrolled(&spki).await.map_err(|e| unavailable(&e))?;
        enrolled.map(|e| e.rack).ok_or_else(|| Status::unauthenticated(REVOKED))
    }

    /// True if a deleted rack is at the other end of a connection. If the store does not answer, the rack asks again.
    pub(super) async fn is_retired(&self, peer: &Peer) -> bool {
        let Some(spki) = peer.spki_sha256 else { return false };
        self.store.is_retired(&spki).await.unwrap_or(false)
    }
}

/// The rack that makes a call. The listener has found it before the call is read.
pub(super) fn caller<T>(request: &Request<T>) -> Result<RackId, Status> {
    request.extensions().get::<Enrolled>().map(|rack| rack.0).ok_or_else(no_certificate)
}

fn no_certificate() -> Status {
    Status::unauthenticated("this call needs the certificate that enrolment gave")
}

#[tonic::async_trait]
impl RackLink for Racks {
    type LinkStream = Pin<Box<dyn Stream<Item = Result<FromRegion, Status>> + Send>>;
    type FetchBlobStream = Pin<Box<dyn Stream<Item = Result<BlobChunk, Status>> + Send>>;

    async fn link(
        &self,
        request: Request<Streaming<FromRack>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        self.sessions.meters().rpc("Link", self.linked(request)).await
    }

    async fn fetch_blob(
        &self,
        request: Request<FetchBlobRequest>,
    ) -> Result<Response<Self::FetchBlobStream>, Status> {
        self.sessions.meters().rpc("FetchBlob", self.blob(request)).await
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<RenewReply>, Status> {
        self.sessions.meters().rpc("Renew", self.renewed(request)).await
    }

    async fn store_logs(&self, request: Request<LogBatch>) -> Result<Response<LogAck>, Status> {
        self.sessions.meters().rpc("StoreLogs", self.logged(request)).await
    }
}

impl Racks {
    async fn linked(
        &self,
        request: Request<Streaming<FromRack>>,
    ) -> Result<Response<<Self as RackLink>::LinkStream>, Status> {
        if request.extensions().get::<Retired>().is_some() {
            let forget = FromRegion { message: Some(Message::Forget(Forget {})) };
            return Ok(Response::new(Box::pin(tokio_stream::once(Ok(forget)))));
        }
        let rack = caller(&request)?;
        let peer = request.extensions().get::<Peer>();
        let spki = peer.and_then(|peer| peer.spki_sha256).ok_or_else(no_certificate)?;
        let object = self.store.get("Rack", Key::Uid(rack.into())).await.map_err(|e| unavailable(&e))?;
        let mut said = request.into_inner();
        let hello = match tokio::time::timeout(Duration::from_secs(10), said.next()).await {
            Ok(Some(Ok(FromRack { message: Some(Said::Hello(hello)) }))) => hello,
            Ok(_) => return Err(Status::invalid_argument("the first message of a link is Hello")),
            Err(_) => return Err(Status::deadline_exceeded("no Hello within 10 seconds")),
        };
        let (sender, receiver) = mpsc::channel(BACKLOG);
        let session = Session { racks: self.clone(), rack, spki, name: object.name, sender };
        tokio::spawn(session.run(hello, said));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn logged(&self, request: Request<LogBatch>) -> Result<Response<LogAck>, Status> {
        let (rack, logs) = (caller(&request)?, self.logs.clone());
        let batch = request.into_inner();
        if batch.spool_uid.parse::<uuid::Uuid>().is_err() {
            return Err(Status::invalid_argument("the spool of logs has no readable uid"));
        }
        let stored = tokio::task::spawn_blocking(move || logs.store(rack, batch)).await;
        match stored.map_err(|error| Status::internal(error.to_string()))? {
            Ok(through_seq) => Ok(Response::new(LogAck { through_seq })),
            Err(error @ LogError::Full { .. }) => Err(Status::resource_exhausted(error.to_string())),
            Err(error) => Err(Status::unavailable(error.to_string())),
        }
    }

    async fn blob(
        &self,
        request: Request<FetchBlobRequest>,
    ) -> Result<Response<<Self as RackLink>::FetchBlobStream>, Status> {
        caller(&request)?;
        let FetchBlobRequest { sha256, offset } = request.into_inner();
        let name: basalt_api::values::Sha256 = sha256
            .parse()
            .map_err(|_| Status::invalid_argument(format!("{sha256:?} is not a SHA-256 in hex")))?;
        let missing = || Status::not_found(format!("blob {name} was not uploaded to the region"));
        self.blobs
            .find(name.bytes())
            .await
            .map_err(|e| Status::unavailable(e.to_string()))?
            .ok_or_else(missing)?;
        let mut file =
            self.blobs.read(name.bytes(), offset).await.map_err(|e| Status::internal(e.to_string()))?;
        let (sender, receiver) = mpsc::channel(4);
        tokio::spawn(async move {
            loop {
                let mut data = vec![0; CHUNK];
                let chunk = match file.read(&mut data).await {
                    Ok(0) => return,
                    Ok(length) => {
                        data.truncate(length);
                        Ok(BlobChunk { data })
                    }
                    Err(error) => Err(Status::internal(error.to_string())),
                };
                if sender.send(chunk).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// The stream of one rack.
struct Session {
    racks: Racks,
    rack: RackId,
    spki: [u8; 32],
    name: String,
    sender: mpsc::Sender<Result<FromRegion, Status>>,
}

impl Session {
    async fn run(self, hello: Hello, said: Streaming<FromRack>) {
        let store = self.racks.store.clone();
        let version = UntrustedName::new(&hello.version);
        tracing::info!(rack = self.name, %version, "rack connected");
        if let Err(error) = self.serve(hello, said).await {
            tracing::warn!(rack = self.name, %error, "the link with the rack broke");
        }
        // If the rack was deleted, its facts and answers cannot be stored, and that ended the link as an error.
        if store.is_retired(&self.spki).await.unwrap_or(false) {
            self.send(Message::Forget(Forget {})).await;
        }
        if let Err(error) = self.note_end().await {
            tracing::debug!(rack = self.name, %error, "the end of a link is not stored; the rack says it itself");
        }
        tracing::info!(rack = self.name, "rack disconnected");
        if self.racks.sessions.since(self.rack).is_none() {
            self.racks.sessions.meters().left(&self.name);
        }
        // Wake the objects that wait for the rack: it is away now.
        let _ = store.enqueue(self.rack.into(), Duration::ZERO).await;
        let _ = store.enqueue_kind("Machine").await;
    }

    async fn serve(&self, hello: Hello, mut said: Streaming<FromRack>) -> Result<(), StoreError> {
        let store = &self.racks.store;
        let since = store.now().await?;
        store.store_own_fact(&introduced(self.rack, &hello, since)).await?;
        let mut regions = self.racks.sessions.regions();
        let Known { all: mut told, mut own, .. } = regions.borrow_and_update().clone();
        self.welcome(&told).await;
        let _registered = self.racks.sessions.register(self.rack, self.sender.clone(), since);
        self.note_link("").await?;
        store.enqueue(self.rack.into(), Duration::ZERO).await?;
        store.enqueue_kind("Machine").await?;

        let (incarnation, bodies) = (store.incarnation().to_string(), self.racks.sessions.bodies());
        let mut sent = Sent::new(incarnation, bodies, hello.held);
        self.note_held(&sent).await?;
        let mut woken = store.woken();
        let mut closed = std::pin::pin!(self.racks.sessions.closed());
        let mut shared: Option<(LeasesSeen, Instant)> = None;
        loop {
            let is_told = self.push(&mut sent).await?;
            // A deleted rack has no concerns any more.
            if !is_told && store.is_retired(&self.spki).await? {
                return Ok(());
            }
            if shared.as_ref().is_none_or(|(_, at)| at.elapsed() >= SHARE) {
                let at = Instant::now();
                let seen = self.share(shared.as_ref().map(|(seen, _)| seen)).await?;
                shared = Some((seen, at));
            }
            tokio::select! {
                message = said.next() => match message {
                    Some(Ok(FromRack { message: Some(message) })) => self.heard(message, &mut sent).await?,
                    Some(Ok(FromRack { message: None })) => {}
                    Some(Err(_)) | None => return Ok(()),
                },
                _ = tokio::time::timeout(LOOK_ANYWAY, woken.changed()) => {
                    tokio::time::sleep(COALESCE).await;
                    woken.mark_unchanged();
                }
                Ok(()) = regions.changed() => {
                    let known = regions.borrow_and_update().clone();
                    if known.all != told {
                        self.welcome(&known.all).await;
                        told = known.all;
                    }
                    // The address of this process was not known until now, so the link is reported now.
                    if known.own != own {
                        own = known.own;
                        self.note_link("").await?;
                    }
                }
                () = self.sender.closed() => return Ok(()),
                () = &mut closed => return Ok(()),
            }
        }
    }

    /// Answers a Hello, and later reports new regions, which the rack then dials.
    async fn welcome(&self, regions: &BTreeSet<String>) {
        let welcome = Welcome {
            incarnation: self.racks.store.incarnation().to_string(),
            regions: regions.iter().cloned().collect(),
            boot_traces: true,
            unix_ms: Timestamp::now().as_millisecond(),
        };
        self.send(Message::Welcome(welcome)).await;
    }

    /// Reports to the other processes that the rack is linked to this one, as the rack does itself if it can. A process that
    /// does not know its own address reports nothing.
    async fn note_link(&self, problem: &str) -> Result<(), StoreError> {
        let Some(own) = self.racks.sessions.regions().borrow().own.clone() else { return Ok(()) };
        let store = &self.racks.store;
        store.store_own_fact(&link_fact(self.rack, &own, problem, store.now().await?)).await
    }

    /// Reports the end of the link. If the rack has reconnected meanwhile, the last report is that.
    async fn note_end(&self) -> Result<(), StoreError> {
        if self.racks.sessions.since(self.rack).is_some() {
            return Ok(());
        }
        self.note_link("the link ended").await?;
        if self.racks.sessions.since(self.rack).is_some() { self.note_link("").await } else { Ok(()) }
    }

    /// Sends every concern whose bytes differ from those last sent. `false`: this rack has no concern.
    async fn push(&self, sent: &mut Sent) -> Result<bool, StoreError> {
        let heads = self.racks.store.concern_heads(self.rack).await?;
        for head in heads.iter().filter(|head| !sent.has(head)).collect::<Vec<_>>() {
            // Opens only the changed concerns. This one may have changed again, and is then sent once.
            let Some(concern) = self.racks.store.concern(self.rack, &head.name).await? else { continue };
            let trace = concern.trace.clone();
            trace::within(trace, self.send(sent.next(concern))).await;
        }
        Ok(!heads.is_empty())
    }

    /// Sends leases in the subnets where the rack grants addresses: all leases, or those that other racks granted since.
    async fn share(&self, seen: Option<&LeasesSeen>) -> Result<LeasesSeen, StoreError> {
        let (leases, now) = self.racks.store.leases_for(self.rack, seen).await?;
        let mut leases: Vec<_> = leases.into_iter().map(told).collect();
        while leases.len() > SHARED {
            let rest = leases.split_off(SHARED);
            let part = std::mem::replace(&mut leases, rest);
            self.send(Message::Leases(Leases { leases: part, complete: false })).await;
        }
        if seen.is_none() || !leases.is_empty() {
            self.send(Message::Leases(Leases { leases, complete: true })).await;
        }
        Ok(now)
    }

    /// Notes that a rack reconnected with the present bytes: it has applied them, and will not answer again.
    async fn note_held(&self, held: &Sent) -> Result<(), StoreError> {
        let store = &self.racks.store;
        let known = store.concern_acks(self.rack).await?;
        for head in store.concern_heads(self.rack).await? {
            let is_same = |ack: &&ConcernAck| ack.concern == head.name && ack.generation == head.generation;
            // Keep the stored answer: its message lists the parts that the rack left out.
            if known.iter().find(is_same).is_some_and(ConcernAck::is_applied) {
                continue;
            }
            if held.has(&head) {
                let outcome = "already_there".to_owned();
                let (concern, generation) = (head.name, head.generation);
                let ack = ConcernAck { concern, generation, outcome, message: String::new() };
                store.put_concern_ack(self.rack, &ack).await?;
            }
        }
        Ok(())
    }

    async fn heard(&self, message: Said, sent: &mut Sent) -> Result<(), StoreError> {
        let (meters, began) = (self.racks.sessions.meters(), Instant::now());
        let kind = meters.heard(self.rack, &self.name, &message);
        let handled = match message {
            Said::ConcernReply(reply) => self.answered(reply, sent).await,
            Said::Facts(batch) => self.observed(batch).await,
            Said::Hello(hello) => self.moved(&hello).await,
            Said::Pong(_) => Ok(()),
        };
        meters.handled(kind, began.elapsed());
        handled
    }

    /// Handles a Hello with other addresses than before.
    async fn moved(&self, hello: &Hello) -> Result<(), StoreError> {
        let store = &self.racks.store;
        let serves = |hello: &observed::Hello| hello.reached().collect::<BTreeSet<_>>();
        let before = store.latest_facts(self.rack.into()).await?;
        let before = before.iter().filter_map(Observed::of).find_map(|observed| match observed {
            Observed::Hello(hello) => Some(serves(&hello)),
            _ => None,
        });
        let now = store.now().await?;
        let is_elsewhere = before != Some(serves(&observed::Hello::from(hello)));
        store.store_own_fact(&introduced(self.rack, hello, now)).await?;
        store.enqueue(self.rack.into(), Duration::ZERO).await?;
        if is_elsewhere {
            store.enqueue_kind("Machine").await?;
        }
        Ok(())
    }

    async fn answered(&self, reply: ConcernReply, sent: &mut Sent) -> Result<(), StoreError> {
        // The rack's texts are shown on terminals, and racks are not trusted.
        let name = UntrustedName::new(&reply.concern);
        let message = UntrustedMessage::new(&reply.message);
        let outcome = match reply.outcome() {
            Outcome::Applied => "applied",
            Outcome::AlreadyThere => "already_there",
            Outcome::RefusedOlder => "refused_older",
            Outcome::RefusedConflict => "refused_conflict",
            Outcome::NeedsWhole => "needs_whole",
            Outcome::Failed | Outcome::Unspecified => "failed",
        };
        self.racks.sessions.meters().answered(self.rack, &reply, outcome);
        if reply.outcome() == Outcome::NeedsWhole {
            // Not an answer to the version: that follows, once the rack has it whole.
            tracing::warn!(
                rack = self.name,
                concern = %name,
                generation = reply.generation,
                %message,
                "the rack cannot apply a delta; the concern is sent whole"
            );
            sent.needs_whole(&reply.concern, reply.generation);
            return Ok(());
        }
        if !matches!(reply.outcome(), Outcome::Applied | Outcome::AlreadyThere) {
            sent.refused(&reply.concern, reply.generation);
            tracing::error!(
                rack = self.name,
                concern = %name,
                generation = reply.generation,
                outcome,
                mine = reply.mine,
                %message,
                "the rack does not apply a concern"
            );
        }
        let ack = ConcernAck {
            concern: name.into(),
            generation: Generation::new(reply.generation),
            outcome: outcome.to_owned(),
            message: message.into(),
        };
        self.racks.store.put_concern_ack(self.rack, &ack).await
    }

    async fn observed(&self, batch: FactBatch) -> Result<(), StoreError> {
        let Ok(spool) = batch.spool_uid.parse() else {
            tracing::error!(
                rack = self.name,
                spool = batch.spool_uid,
                "the rack's spool has no readable uid"
            );
            return Ok(());
        };
        let waited = i64::try_from(batch.oldest_ms).unwrap_or(i64::MAX);
        let first = batch.facts.first().map_or(0, |first| first.observed_unix_ms);
        let rack_now_ms = first.saturating_add(waited);
        let facts: Vec<NewFact> = batch
            .facts
            .into_iter()
            .map(|fact| at_home(self.rack, observed::new_fact(fact, rack_now_ms)))
            .collect();
        let through = self.stored(spool, &facts).await?;
        let unix_ms = Timestamp::now().as_millisecond();
        self.send(Message::FactAck(FactAck { spool_uid: batch.spool_uid, through_seq: through, unix_ms }))
            .await;
        Ok(())
    }

    /// Stores facts. A transaction that meets another one is repeated, and does not end the link.
    async fn stored(&self, spool: uuid::Uuid, facts: &[NewFact]) -> Result<u64, StoreError> {
        let mut tries = 1;
        loop {
            match self.racks.store.store_facts(self.rack, &self.name, spool, facts).await {
                Err(error) if error.is_race() && tries < STORE_TRIES => tries += 1,
                result => return result,
            }
        }
    }

    async fn send(&self, message: Message) {
        self.racks.sessions.meters().told(self.rack, &message);
        // If the stream is closed, the caller's loop notices that.
        let _ = self.sender.send(Ok(FromRegion { message: Some(message) })).await;
    }
}

/// Makes the rack the object of a fact without machine and MAC. A lease or boot request without them is from an unknown client, not from
/// the rack.
fn at_home(rack: RackId, mut fact: NewFact) -> NewFact {
    let is_of_client = fact.kind.starts_with("lease") || fact.kind == "boot_request";
    if fact.object.is_none() && fact.mac.is_none() && !is_of_client {
        fact.object = Some(rack.into());
    }
    fact
}

fn told(lease: basalt_db::RackLease) -> RackLease {
    let by = match lease.by {
        basalt_db::Grantor::Itself => Grantor::Self_,
        basalt_db::Grantor::Owner => Grantor::Owner,
        basalt_db::Grantor::Another => Grantor::Unspecified,
    };
    RackLease {
        subnet_uid: lease.subnet.to_string(),
        address: lease.address,
        mac: lease.mac,
        hostname: lease.hostname,
        ends_in_ms: lease.ends_in_ms,
        given_back: lease.given_back,
        kept_for_ms: lease.kept_for_ms.unwrap_or_default(),
        by: by.into(),
    }
}

fn introduced(rack: RackId, hello: &Hello, now: Timestamp) -> NewFact {
    of_rack(rack, &Observed::Hello(hello.into()), now)
}

fn link_fact(rack: RackId, region: &str, problem: &str, now: Timestamp) -> NewFact {
    let service = UntrustedName::new(&format!("{LINK}{region}"));
    let message = UntrustedMessage::new(problem);
    of_rack(rack, &Observed::Health(observed::Health::new(service, problem.is_empty(), message)), now)
}

fn of_rack(rack: RackId, observed: &Observed, now: Timestamp) -> NewFact {
    let (kind, body) = observed.stored();
    NewFact {
        seq: 0,
        object: Some(Uid::from(rack)),
        mac: None,
        kind,
        step_key: None,
        attempt: None,
        body,
        observed_at: now,
        wakes: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_proto::rack_v1::{BootRequestFact, Fact, LeaseFact, ServiceHealth, fact::Body};

    #[test]
    fn a_client_that_nobody_knows_is_not_the_rack() {
        let rack = RackId::from(Uid::generate());
        let owner =
            |body| at_home(rack, observed::new_fact(Fact { body: Some(body), ..Fact::default() }, 0)).object;
        assert_eq!(owner(Body::Health(ServiceHealth::default())), Some(rack.into()));
        let lease = LeaseFact { address: "2001:db8::1".into(), ..LeaseFact::default() };
        assert_eq!(owner(Body::Lease(lease)), None);
        let tftp = BootRequestFact { service: "tftp".into(), ..BootRequestFact::default() };
        assert_eq!(owner(Body::BootRequest(tftp)), None);
    }
}
