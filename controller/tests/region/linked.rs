//! A model of a rack on the region's real port: it enrols, sends a Hello, applies its concerns, and carries out its
//! commands.

use crate::enrolment::NewRack;
use crate::support::Lab;
use basalt_proto::delta;
use basalt_proto::rack_v1::concern_reply::Outcome;
use basalt_proto::rack_v1::{
    ConcernDelta, ConcernReply, ConcernVersion, Fact, FactBatch, FromRack, HeldConcern, Hello, Interface,
    Leases, PowerCommand, PowerResult, Serves, fact, from_rack, from_region,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// The messages from the region to a rack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// The versions, each with its whole body.
    pub(crate) concerns: Vec<ConcernVersion>,
    /// Those of the versions that came as deltas.
    pub(crate) deltas: Vec<ConcernDelta>,
    pub(crate) commands: Vec<PowerCommand>,
    pub(crate) leases: Vec<Leases>,
    /// True if the rack received the message that it is deleted.
    pub(crate) forget: bool,
}

impl Told {
    /// The latest version of each concern, for a Hello.
    fn held(&self) -> Vec<HeldConcern> {
        let held = |it: &ConcernVersion| HeldConcern {
            concern: it.concern.clone(),
            generation: it.generation,
            sha256: it.sha256.clone(),
            incarnation: it.incarnation.clone(),
        };
        let latest: BTreeMap<_, _> = self.concerns.iter().map(|it| (it.concern.clone(), held(it))).collect();
        latest.into_values().collect()
    }

    /// Applies a delta, if it changes the version that came last.
    fn change(&mut self, delta: ConcernDelta) -> ConcernReply {
        let mut version = delta.version.clone().expect("a delta has a version");
        let held = self.concerns.iter().rfind(|held| held.concern == version.concern);
        let held = held.filter(|held| held.sha256 == delta.base_sha256);
        let Some(held) = held else { return reply(&version, Outcome::NeedsWhole) };
        version.body = delta::apply(&held.body, &delta.parts, usize::MAX).expect("a delta of that body");
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &version.body);
        assert_eq!(version.sha256, digest.as_ref(), "the delta makes the body");
        let reply = reply(&version, Outcome::Applied);
        self.concerns.push(version);
        self.deltas.push(delta);
        reply
    }
}

fn reply(version: &ConcernVersion, outcome: Outcome) -> ConcernReply {
    let (concern, generation) = (version.concern.clone(), version.generation);
    ConcernReply { concern, generation, outcome: outcome.into(), ..ConcernReply::default() }
}

/// A rack with its link, until it is dropped.
pub(crate) struct Linked {
    rack: NewRack,
    own_certificate: Vec<u8>,
    told: Arc<Mutex<Told>>,
    task: Task,
    /// The error code for commands with accounts that machines created; empty: these commands succeed.
    failure: Arc<Mutex<String>>,
    certificate: Arc<Mutex<String>>,
    outbox: mpsc::Sender<FromRack>,
    hello: Hello,
}

/// The end of the stream, until it is dropped.
struct Task(tokio::task::JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Linked {
    /// Enrols a rack with this name and address, and links it.
    pub(crate) async fn come(lab: &Lab, rpc: SocketAddr, name: &str, address: &str) -> Self {
        Self::link(lab, rpc, (name, address), true).await
    }

    /// The same, for a rack that receives everything and answers nothing.
    pub(crate) async fn come_silent(lab: &Lab, rpc: SocketAddr, name: &str, address: &str) -> Self {
        Self::link(lab, rpc, (name, address), false).await
    }

    async fn link(lab: &Lab, rpc: SocketAddr, (name, address): (&str, &str), answers: bool) -> Self {
        let (rack, enrolled) = NewRack::new(lab, rpc, name).await.enrol().await;
        let interface = Interface {
            name: "eth0".to_owned(),
            addresses: vec![address.to_owned()],
            ..Interface::default()
        };
        let hello = Hello {
            rack_uid: enrolled.rack_uid,
            name: name.to_owned(),
            interfaces: vec![interface],
            ..Hello::default()
        };
        Self::open(rack, enrolled.certificate_der, hello, Told::default(), answers).await
    }

    /// The same rack, after its link broke and it dialled another region. It holds what it was told.
    pub(crate) async fn moves_to(self, rpc: SocketAddr) -> Self {
        let Self { mut rack, own_certificate, hello, told, task, .. } = self;
        drop(task);
        rack = rack.dials(rpc);
        let told = told.lock().expect("told").clone();
        let held = told.held();
        Self::open(rack, own_certificate, Hello { held, ..hello }, told, true).await
    }

    async fn open(rack: NewRack, own_certificate: Vec<u8>, hello: Hello, told: Told, answers: bool) -> Self {
        let mut client = rack.link(&own_certificate).await;
        let (outbox, messages) = mpsc::channel(16);
        say(&outbox, from_rack::Message::Hello(hello.clone())).await;
        let own = outbox.clone();
        let mut inbox = client.link(ReceiverStream::new(messages)).await.expect("a link").into_inner();
        let told = Arc::new(Mutex::new(told));
        let heard = Arc::clone(&told);
        let failure = Arc::<Mutex<String>>::default();
        let failing = Arc::clone(&failure);
        let certificate = Arc::<Mutex<String>>::default();
        let shown = Arc::clone(&certificate);
        let task = tokio::spawn(async move {
            let mut seq = 0;
            while let Ok(Some(message)) = inbox.message().await {
                match message.message {
                    Some(from_region::Message::Concern(version)) => {
                        let reply = reply(&version, Outcome::Applied);
                        heard.lock().expect("told").concerns.push(version);
                        if answers {
                            say(&outbox, from_rack::Message::ConcernReply(reply)).await;
                        }
                    }
                    Some(from_region::Message::ConcernDelta(delta)) => {
                        let reply = heard.lock().expect("told").change(delta);
                        if answers {
                            say(&outbox, from_rack::Message::ConcernReply(reply)).await;
                        }
                    }
                    Some(from_region::Message::Power(command)) => {
                        seq += 1;
                        let batch = FactBatch {
                            spool_uid: "0193b5a0-0000-7000-8000-000000000001".to_owned(),
                            facts: vec![off(
                                seq,
                                &command,
                                &failing.lock().expect("a code"),
                                &shown.lock().expect("a certificate"),
                            )],
                            waiting: 3,
                            oldest_ms: 2500,
                        };
                        heard.lock().expect("told").commands.push(command);
                        if answers {
                            say(&outbox, from_rack::Message::Facts(batch)).await;
                        }
                    }
                    Some(from_region::Message::Leases(leases)) => {
                        heard.lock().expect("told").leases.push(leases);
                    }
                    Some(from_region::Message::Forget(_)) => heard.lock().expect("told").forget = true,
                    _ => {}
                }
            }
        });
        Self { rack, own_certificate, told, failure, certificate, task: Task(task), outbox: own, hello }
    }

    /// Sends another Hello, as a rack that answers clients at these addresses.
    pub(crate) async fn answers_at(&self, clients: &[&str]) {
        let serves = Serves { clients: clients.iter().map(ToString::to_string).collect(), files: Vec::new() };
        let hello = Hello { serves: Some(serves), ..self.hello.clone() };
        say(&self.outbox, from_rack::Message::Hello(hello)).await;
    }

    /// Delivers a fact from a spool of its own.
    pub(crate) async fn brings(&self, fact: Fact) {
        let batch = FactBatch {
            spool_uid: uuid::Uuid::new_v4().to_string(),
            facts: vec![Fact { seq: 1, ..fact }],
            ..FactBatch::default()
        };
        say(&self.outbox, from_rack::Message::Facts(batch)).await;
    }

    /// From now on, BMCs refuse the passwords of accounts that their machines created.
    pub(crate) fn bmcs_refuse_made_passwords(&self) {
        self.made_accounts_fail("bad_password");
    }

    /// From now on, commands with accounts that machines created fail with this error code.
    pub(crate) fn made_accounts_fail(&self, code: &str) {
        code.clone_into(&mut self.failure.lock().expect("a code"));
    }

    /// From now on, BMCs show this certificate: SHA-256, in hexadecimal.
    pub(crate) fn bmcs_show(&self, certificate: &str) {
        certificate.clone_into(&mut self.certificate.lock().expect("a certificate"));
    }

    /// Waits until the region ends the link.
    pub(crate) async fn ended(&mut self) {
        (&mut self.task.0).await.expect("it was not cut short");
    }

    /// Loses its concerns, and does not notice.
    pub(crate) fn forgets_concerns(&self) {
        self.told.lock().expect("told").concerns.clear();
    }

    /// All messages so far.
    pub(crate) fn told(&self) -> Told {
        self.told.lock().expect("told").clone()
    }
}

async fn say(outbox: &mpsc::Sender<FromRack>, message: from_rack::Message) {
    outbox.send(FromRack { message: Some(message) }).await.expect("the link is open");
}

/// The result of a command: the machine is off. With an account that a machine created, the command fails if there is an error code.
fn off(seq: u64, command: &PowerCommand, failure: &str, certificate: &str) -> Fact {
    let failed = PowerResult {
        command_id: command.command_id.clone(),
        power: "unknown".to_owned(),
        error_code: failure.to_owned(),
        ..PowerResult::default()
    };
    let off = PowerResult {
        command_id: command.command_id.clone(),
        verb: "status".to_owned(),
        ok: true,
        power: "off".to_owned(),
        epoch: command.epoch,
        certificate: certificate.to_owned(),
        ..PowerResult::default()
    };
    let fails = !failure.is_empty() && command.bmc_account != 0;
    let result = if fails { failed } else { off };
    Fact {
        seq,
        machine_uid: command.machine_uid.clone(),
        step_key: command.step_key.clone(),
        body: Some(fact::Body::Power(result)),
        ..Fact::default()
    }
}
