//! A rack that is played, on the region's real port: it enrols, says hello, applies what it is told, and does what it is
//! commanded.

use crate::support::Lab;
use basalt_proto::REGION_SERVER_NAME;
use basalt_proto::rack_v1::concern_reply::Outcome;
use basalt_proto::rack_v1::enrolment_client::EnrolmentClient;
use basalt_proto::rack_v1::rack_link_client::RackLinkClient;
use basalt_proto::rack_v1::{
    ConcernReply, ConcernVersion, EnrolRequest, Fact, FactBatch, FromRack, Hello, Interface, PowerCommand,
    PowerResult, fact, from_rack, from_region,
};
use basalt_region::racks::authority::Authority;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

/// What the region said to a rack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) concerns: Vec<ConcernVersion>,
    pub(crate) commands: Vec<PowerCommand>,
}

/// A rack on its link, until it is dropped.
pub(crate) struct Linked {
    told: Arc<Mutex<Told>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Linked {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn dial(address: SocketAddr, config: ClientConfig) -> Channel {
    let connector = TlsConnector::from(Arc::new(config));
    let open = tower::service_fn(move |_| {
        let connector = connector.clone();
        async move {
            let name = ServerName::try_from(REGION_SERVER_NAME).expect("a name");
            let stream = connector.connect(name, TcpStream::connect(address).await?).await?;
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        }
    });
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    endpoint.connect_with_connector(open).await.expect("it answers")
}

fn tls(ca: &CertificateDer<'static>, identity: Option<(Vec<u8>, &rcgen::KeyPair)>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone()).expect("a CA");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS")
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
            builder.with_client_auth_cert(vec![certificate.into()], key).expect("an identity")
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

impl Linked {
    /// Enrols a rack of this name and address, and links it.
    pub(crate) async fn come(lab: &Lab, rpc: SocketAddr, name: &str, address: &str) -> Self {
        let store = lab.region.store();
        let fresh = Authority::generate(SystemTime::now()).expect("a CA");
        let (ca, _) = store.authority((&fresh.0, &fresh.1)).await.expect("the region's CA");
        let ca = CertificateDer::from(ca);
        store.put_join_secret("secret", Some(name), Duration::from_secs(60)).await.expect("a secret");
        let key = rcgen::KeyPair::generate().expect("a key");
        let csr = rcgen::CertificateParams::default().serialize_request(&key).expect("a request");
        let request =
            EnrolRequest { secret: "secret".to_owned(), name: name.to_owned(), csr_der: csr.der().to_vec() };
        let mut enrolment = EnrolmentClient::new(dial(rpc, tls(&ca, None)).await);
        let enrolled = enrolment.enrol(request).await.expect("it enrols").into_inner();

        let identity = Some((enrolled.certificate_der, &key));
        let mut client = RackLinkClient::new(dial(rpc, tls(&ca, identity)).await);
        let (outbox, messages) = mpsc::channel(16);
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
        say(&outbox, from_rack::Message::Hello(hello)).await;
        let mut inbox = client.link(ReceiverStream::new(messages)).await.expect("a link").into_inner();
        let told = Arc::new(Mutex::new(Told::default()));
        let heard = Arc::clone(&told);
        let task = tokio::spawn(async move {
            let mut seq = 0;
            while let Ok(Some(message)) = inbox.message().await {
                match message.message {
                    Some(from_region::Message::Concern(version)) => {
                        let reply = ConcernReply {
                            concern: version.concern.clone(),
                            generation: version.generation,
                            outcome: Outcome::Applied.into(),
                            ..ConcernReply::default()
                        };
                        heard.lock().expect("told").concerns.push(version);
                        say(&outbox, from_rack::Message::ConcernReply(reply)).await;
                    }
                    Some(from_region::Message::Power(command)) => {
                        seq += 1;
                        let batch = FactBatch {
                            spool_uid: "0193b5a0-0000-7000-8000-000000000001".to_owned(),
                            facts: vec![off(seq, &command)],
                            waiting: 3,
                            oldest_ms: 2500,
                        };
                        heard.lock().expect("told").commands.push(command);
                        say(&outbox, from_rack::Message::Facts(batch)).await;
                    }
                    _ => {}
                }
            }
        });
        Self { told, task }
    }

    /// Everything so far.
    pub(crate) fn told(&self) -> Told {
        self.told.lock().expect("told").clone()
    }
}

async fn say(outbox: &mpsc::Sender<FromRack>, message: from_rack::Message) {
    outbox.send(FromRack { message: Some(message) }).await.expect("the link is open");
}

/// The command was carried out, and the machine is off.
fn off(seq: u64, command: &PowerCommand) -> Fact {
    let result = PowerResult {
        command_id: command.command_id.clone(),
        verb: "status".to_owned(),
        ok: true,
        power: "off".to_owned(),
        epoch: command.epoch,
        ..PowerResult::default()
    };
    Fact {
        seq,
        machine_uid: command.machine_uid.clone(),
        step_key: command.step_key.clone(),
        body: Some(fact::Body::Power(result)),
        ..Fact::default()
    }
}
