//! Enrolment of racks, join tokens and certificates, and their limits.

use crate::linked::Linked;
use crate::support::{Lab, lab};
use axum::body::{Body, Bytes};
use axum::http::Request;
use basalt_db::testing::clock::Hand;
use basalt_engine::Policy;
use basalt_proto::REGION_SERVER_NAME;
use basalt_proto::rack_v1::enrolment_client::EnrolmentClient;
use basalt_proto::rack_v1::rack_link_client::RackLinkClient;
use basalt_proto::rack_v1::{
    EnrolReply, EnrolRequest, FromRack, Hello, RenewReply, RenewRequest, from_rack, from_region,
};
use basalt_region::controller::Controller;
use basalt_region::racks::authority::Authority;
use basalt_region::racks::join_token::Joiner;
use futures_util::StreamExt;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tower::{Service, ServiceExt};

/// A rack with a key, which has not enrolled yet.
pub(crate) struct NewRack {
    ca: CertificateDer<'static>,
    rpc: SocketAddr,
    name: String,
    secret: String,
    key: rcgen::KeyPair,
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

fn request_of(key: &rcgen::KeyPair) -> Vec<u8> {
    rcgen::CertificateParams::default().serialize_request(key).expect("a request").der().to_vec()
}

impl NewRack {
    /// A rack with a join secret for its name.
    pub(crate) async fn new(lab: &Lab, rpc: SocketAddr, name: &str) -> Self {
        Self::with_secret(lab, rpc, name, Some(name)).await
    }

    async fn with_secret(lab: &Lab, rpc: SocketAddr, name: &str, of: Option<&str>) -> Self {
        let store = lab.region.store();
        let fresh = Authority::generate(SystemTime::now()).expect("a CA");
        let (ca, _) = store.authority((&fresh.0, &fresh.1)).await.expect("the region's CA");
        let key = rcgen::KeyPair::generate().expect("a key");
        let secret = hex::encode(key.public_key_raw());
        store.put_join_secret(&secret, of, Duration::from_secs(60)).await.expect("a secret");
        Self { ca: ca.into(), rpc, name: name.to_owned(), secret, key }
    }

    async fn try_to_enrol(&self) -> Result<EnrolReply, Status> {
        let request = EnrolRequest {
            secret: self.secret.clone(),
            name: self.name.clone(),
            csr_der: request_of(&self.key),
        };
        let mut enrolment = EnrolmentClient::new(dial(self.rpc, tls(&self.ca, None)).await);
        Ok(enrolment.enrol(request).await?.into_inner())
    }

    pub(crate) async fn enrol(self) -> (Self, EnrolReply) {
        let enrolled = self.try_to_enrol().await.expect("it enrols");
        (self, enrolled)
    }

    /// The same rack, which dials another region.
    pub(crate) fn dials(self, rpc: SocketAddr) -> Self {
        Self { rpc, ..self }
    }

    /// A connection with this certificate.
    pub(crate) async fn link(&self, certificate: &[u8]) -> RackLinkClient<Channel> {
        RackLinkClient::new(self.dial(Some(certificate)).await)
    }

    /// A TLS connection without any request.
    pub(crate) async fn shake_hands(
        &self,
        tcp: TcpStream,
        certificate: Option<&[u8]>,
    ) -> TlsStream<TcpStream> {
        let identity = certificate.map(|certificate| (certificate.to_vec(), &self.key));
        let connector = TlsConnector::from(Arc::new(tls(&self.ca, identity)));
        let name = ServerName::try_from(REGION_SERVER_NAME).expect("a name");
        connector.connect(name, tcp).await.expect("a handshake")
    }

    pub(crate) async fn dial(&self, certificate: Option<&[u8]>) -> Channel {
        let identity = certificate.map(|certificate| (certificate.to_vec(), &self.key));
        dial(self.rpc, tls(&self.ca, identity)).await
    }

    async fn renew(&self, certificate: &[u8], key: &rcgen::KeyPair) -> Result<RenewReply, Status> {
        let request = RenewRequest { csr_der: request_of(key) };
        Ok(self.link(certificate).await.renew(request).await?.into_inner())
    }
}

pub(crate) async fn region() -> (Lab, Controller) {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    (lab, controller)
}

#[tokio::test]
async fn a_rack_renews_its_certificate_for_its_own_key_until_it_is_removed() {
    let (lab, controller) = region().await;
    let (rack, enrolled) = NewRack::new(&lab, controller.rpc_address(), "r1").await.enrol().await;
    let mut hand = Hand::on(&lab.url).await;
    hand.run("update rack_enrolment set not_after = now() + interval '1 day'").await;
    let renewed = rack.renew(&enrolled.certificate_der, &rack.key).await.unwrap();
    assert_ne!(renewed.certificate_der, enrolled.certificate_der);
    let days = "select round(extract(epoch from not_after - now()) / 86400) from rack_enrolment";
    assert_eq!(hand.run(days).await, [["90"]]);
    let (_, certificate) = x509_parser::parse_x509_certificate(&renewed.certificate_der).unwrap();
    assert_eq!(certificate.validity().not_after.timestamp(), renewed.not_after_unix_ms / 1000);
    rack.renew(&renewed.certificate_der, &rack.key).await.expect("the new one is as good");

    let other = rcgen::KeyPair::generate().unwrap();
    let refused = rack.renew(&renewed.certificate_der, &other).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("another key"), "{refused}");

    assert_eq!(lab.api.send("DELETE", "/api/v1/racks/r1", &[], "").await.status, 202);
    hand.run("update rack_enrolment set revoked_at = now()").await;
    let refused = rack.renew(&renewed.certificate_der, &rack.key).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
}

/// The first message of a new link.
async fn first_word(rack: &NewRack, certificate: &[u8], rack_uid: &str) -> from_region::Message {
    let hello = Hello { rack_uid: rack_uid.to_owned(), name: rack.name.clone(), ..Hello::default() };
    let hello = FromRack { message: Some(from_rack::Message::Hello(hello)) };
    let mut client = rack.link(certificate).await;
    let mut inbox = client.link(tokio_stream::once(hello)).await.expect("a link").into_inner();
    inbox.message().await.expect("a message").and_then(|it| it.message).expect("a message")
}

#[tokio::test]
async fn a_deleted_rack_is_told_to_forget_on_its_link_and_when_it_dials_later() {
    let (lab, controller) = region().await;
    let rpc = controller.rpc_address();
    let mut linked = Linked::come(&lab, rpc, "r1", "10.77.0.2/24").await;
    assert_eq!(lab.api.delete("/api/v1/racks/r1").await.status, 202);
    tokio::time::timeout(Duration::from_secs(30), linked.ended()).await.expect("its link goes on");
    assert!(linked.told().forget, "{:?}", linked.told());

    let (away, enrolled) = NewRack::new(&lab, rpc, "r2").await.enrol().await;
    let word = first_word(&away, &enrolled.certificate_der, &enrolled.rack_uid).await;
    assert!(matches!(word, from_region::Message::Welcome(_)), "{word:?}");
    let gone = lab.api.delete("/api/v1/racks/r2?force=true").await;
    assert_eq!(gone.status, 204, "{}", gone.text());
    let word = first_word(&away, &enrolled.certificate_der, &enrolled.rack_uid).await;
    assert!(matches!(word, from_region::Message::Forget(_)), "{word:?}");

    // The same key enrols again.
    let secret = NewRack::new(&lab, rpc, "r2").await.secret;
    let (away, enrolled) = NewRack { secret, ..away }.enrol().await;
    let word = first_word(&away, &enrolled.certificate_der, &enrolled.rack_uid).await;
    assert!(matches!(word, from_region::Message::Welcome(_)), "{word:?}");
}

/// The racks' protocol.
const PROTOCOL: &str = include_str!("../../../proto/basalt/rack/v1/link.proto");

/// All calls of the racks' protocol, as `SERVICE/CALL`.
fn calls() -> Vec<String> {
    let (mut service, mut calls) = ("", Vec::new());
    for line in PROTOCOL.lines() {
        if let Some(rest) = line.strip_prefix("service ") {
            service = rest.trim_end_matches(" {");
        } else if let Some((name, _)) = line.strip_prefix("  rpc ").and_then(|rest| rest.split_once('(')) {
            calls.push(format!("{service}/{name}"));
        }
    }
    calls
}

/// Begins a call with a message that announces `announced` bytes, and sends `sent` of them. Nothing more follows, not even the end.
/// Returns the status that the region answers.
async fn answered(mut channel: Channel, call: String, announced: u32, sent: usize) -> Status {
    let message = [&[0][..], &announced.to_be_bytes(), &vec![0; sent][..]].concat();
    let body = futures_util::stream::iter([Ok::<_, Status>(Bytes::from(message))]);
    let body = Body::from_stream(body.chain(futures_util::stream::pending()));
    let request = Request::post(format!("http://region/basalt.rack.v1.{call}"))
        .header("content-type", "application/grpc")
        .body(tonic::body::Body::new(body))
        .expect("a request");
    let answer = channel.ready().await.expect("a connection").call(request).await.expect("an answer");
    Status::from_header_map(answer.headers()).expect("a refusal without a body")
}

/// The same, within thirty seconds.
async fn begun(channel: Channel, call: &str, announced: u32, sent: usize) -> Status {
    let answer = answered(channel, call.to_owned(), announced, sent);
    let answer = tokio::time::timeout(Duration::from_secs(30), answer).await;
    answer.unwrap_or_else(|_| panic!("{call}: the region waits for the rest"))
}

#[tokio::test]
async fn who_has_no_certificate_is_refused_before_its_message_is_read() {
    let (lab, controller) = region().await;
    let (rack, enrolled) = NewRack::new(&lab, controller.rpc_address(), "r1").await.enrol().await;
    let large = 128 << 20;
    let mut calls = calls();
    assert!(calls.len() >= 5 && calls.contains(&"RackLink/StoreLogs".to_owned()), "{calls:?}");
    calls.push("RackLink/Nothing".to_owned());
    for call in calls {
        let refused = begun(rack.dial(None).await, &call, large, 1000).await;
        let expected = match call.as_str() {
            // Enrolment is open, and small.
            "Enrolment/Enrol" => Code::OutOfRange,
            _ => Code::Unauthenticated,
        };
        assert_eq!(refused.code(), expected, "{call}: {refused}");
    }
    let known = || rack.dial(Some(&enrolled.certificate_der));
    let most = [("Renew", 16 << 10), ("FetchBlob", 16 << 10), ("StoreLogs", 256 << 10)];
    for (call, most) in most {
        let refused = begun(known().await, &format!("RackLink/{call}"), 2 << 20, most + 1000).await;
        assert_eq!(refused.code(), Code::OutOfRange, "{call} of a rack has a limit too: {refused}");
    }
    let refused = begun(known().await, "RackLink/Link", large, 1000).await;
    assert_eq!(refused.code(), Code::InvalidArgument, "no Hello is so large: {refused}");
}

#[tokio::test]
async fn a_connection_of_a_rack_has_thirty_two_calls_at_once_and_the_next_one_waits() {
    let (lab, controller) = region().await;
    let (rack, enrolled) = NewRack::new(&lab, controller.rpc_address(), "r1").await.enrol().await;
    let channel = rack.dial(Some(&enrolled.certificate_der)).await;
    let call = |announced, sent| answered(channel.clone(), "RackLink/Renew".to_owned(), announced, sent);
    let too_large = || call(1 << 20, 17 << 10);
    // With this answer the region's settings of HTTP/2 have arrived.
    assert_eq!(too_large().await.code(), Code::OutOfRange);
    // The region waits ten seconds for the rest of each.
    let mut open: Vec<_> = (0..32).map(|_| tokio::spawn(call(100, 10))).collect();
    tokio::task::yield_now().await;
    let mut next = Box::pin(too_large());
    let early = tokio::time::timeout(Duration::from_secs(2), &mut next).await;
    assert!(early.is_err(), "the call beyond the limit was answered at once: {early:?}");
    open.pop().expect("a call").abort();
    let answer = tokio::time::timeout(Duration::from_secs(30), next).await.expect("there is room for it");
    assert_eq!(answer.code(), Code::OutOfRange);
}

#[tokio::test]
async fn only_a_token_of_its_name_lets_a_rack_take_the_place_of_another() {
    let (lab, controller) = region().await;
    let rpc = controller.rpc_address();
    let (_, first) = NewRack::with_secret(&lab, rpc, "r1", None).await.enrol().await;
    let refused = NewRack::with_secret(&lab, rpc, "r1", None).await.try_to_enrol().await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("`basalt rack join-token r1`"), "{refused}");
    let (_, other) = NewRack::with_secret(&lab, rpc, "r2", None).await.enrol().await;
    assert_ne!(other.rack_uid, first.rack_uid);
    let (_, instead) = NewRack::new(&lab, rpc, "r1").await.enrol().await;
    assert_eq!(instead.rack_uid, first.rack_uid);
    assert_eq!(
        [first.replaces, other.replaces, instead.replaces],
        [false, false, true],
        "its addresses may be leased"
    );
}

#[tokio::test]
async fn a_join_token_names_addresses_that_a_rack_can_dial() {
    let lab = lab().await;
    let nobody = CertificateDer::from(vec![0]);
    lab.region.set_joiner(Joiner::new(lab.region.store().clone(), &nobody, Vec::new()));
    let ask = async |body: serde_json::Value| {
        lab.api.send("POST", "/api/v1/join_tokens", &[], body.to_string()).await
    };
    let (status, _, errors) = ask(json!({})).await.problem();
    assert_eq!(status, 422);
    assert_eq!(
        errors,
        ["/urls: this region listens on every address, and does not know at which racks reach it"]
    );
    let (status, _, errors) = ask(json!({"urls": ["https://10.0.0.1", "10.0.0.1:5250"]})).await.problem();
    assert_eq!(status, 422);
    assert_eq!(
        errors,
        [
            r#"/urls/0: "https://10.0.0.1" is no address of a region"#,
            r#"/urls/1: "10.0.0.1:5250" is no address of a region"#
        ]
    );
    assert_eq!(ask(json!({"urls": ["https://[fd00::1]:5250"]})).await.status, 201);
}
