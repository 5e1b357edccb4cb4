//! Terraform's handshake, with a client of our own.

use std::sync::Arc;

use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, PKCS_ECDSA_P521_SHA512};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use super::socket::PluginSocket;
use super::*;
use crate::pb::provider_client::ProviderClient;
use crate::pb_plugin::grpc_broker_client::GrpcBrokerClient;
use crate::pb_plugin::grpc_controller_client::GrpcControllerClient;
use crate::pb_plugin::grpc_stdio_client::GrpcStdioClient;
use crate::provider::{Cx, DataSource, End, Resource};
use crate::{Attribute, Diags, Schema, Type, Val, async_trait, pb};

#[derive(Default)]
struct Empty {
    ends: Arc<std::sync::Mutex<Vec<End>>>,
}

#[async_trait]
impl Provider for Empty {
    fn schema(&self) -> Schema {
        Schema { attributes: vec![Attribute::optional("endpoint", Type::String)], ..Schema::default() }
    }

    fn resources(&self) -> Vec<Box<dyn Resource>> {
        Vec::new()
    }

    fn data_sources(&self) -> Vec<Box<dyn DataSource>> {
        Vec::new()
    }

    async fn configure(&self, _: &Cx, config: &Val) -> Result<(), Diags> {
        assert_ne!(config.get("endpoint").as_str(), Some("panic"), "asked to panic");
        Ok(())
    }

    async fn end(&self, end: End) {
        self.ends.lock().expect("a lock").push(end);
    }
}

/// A certificate like Terraform's, and its key.
struct Identity {
    cert: rcgen::Certificate,
    key: KeyPair,
}

impl Identity {
    fn like_terraform() -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P521_SHA512).expect("a key");
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let cert = params.self_signed(&key).expect("a certificate");
        Self { cert, key }
    }

    /// A client with this identity that trusts one server certificate.
    fn client(&self, server: &[u8]) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(server.to_vec())).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_root_certificates(roots)
                .with_client_auth_cert(vec![self.cert.der().clone()], key)
                .expect("an identity");
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsConnector::from(Arc::new(config))
    }
}

/// A served provider.
struct Served {
    place: Place,
    task: tokio::task::JoinHandle<Result<(), ServeError>>,
    certificate: Option<Vec<u8>>,
    ends: Arc<std::sync::Mutex<Vec<End>>>,
    _stop: Arc<watch::Sender<bool>>,
}

impl Served {
    fn start(client: Option<&Identity>) -> Self {
        let place = Place::Unix(PluginSocket::bind(None).expect("a socket"));
        let tls = client.map(|identity| tls::acceptor(&identity.cert.pem()).expect("TLS"));
        let (acceptor, certificate) = tls.map_or((None, None), |(a, c)| (Some(a), Some(c)));
        let incoming = listener::accept(place.listener().expect("a listener"), acceptor);
        let (stop, stopped) = watch::channel(false);
        let stop = Arc::new(stop);
        let provider = Empty::default();
        let ends = Arc::clone(&provider.ends);
        let rpc = Arc::new(Rpc::new(Box::new(provider)));
        let task = tokio::spawn(run(rpc, incoming, Arc::clone(&stop), stopped));
        Self { place, task, certificate, ends, _stop: stop }
    }

    async fn connect(&self, tls: Option<TlsConnector>) -> Result<Channel, tonic::transport::Error> {
        let Place::Unix(socket) = &self.place else { panic!("a socket") };
        let path = socket.path().to_owned();
        let connector = service_fn(move |_: Uri| {
            let (path, tls) = (path.clone(), tls.clone());
            async move {
                let stream = UnixStream::connect(path).await?;
                Ok::<_, io::Error>(match tls {
                    None => TokioIo::new(Box::pin(stream) as Pinned),
                    Some(tls) => {
                        let name = ServerName::try_from("localhost").expect("a name");
                        TokioIo::new(Box::pin(tls.connect(name, stream).await?) as Pinned)
                    }
                })
            }
        });
        Endpoint::from_static("http://localhost").connect_with_connector(connector).await
    }
}

trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send> Stream for T {}
type Pinned = std::pin::Pin<Box<dyn Stream>>;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

async fn schema(channel: Channel) -> Result<pb::get_provider_schema::Response, tonic::Status> {
    let mut client = ProviderClient::new(channel);
    let response = client.get_provider_schema(pb::get_provider_schema::Request {}).await?;
    Ok(response.into_inner())
}

#[test]
fn serves_the_client_whose_certificate_it_was_given() {
    runtime().block_on(async {
        let terraform = Identity::like_terraform();
        let served = Served::start(Some(&terraform));
        let tls = terraform.client(served.certificate.as_deref().expect("a certificate"));
        let schema = schema(served.connect(Some(tls)).await.expect("a connection")).await.expect("a schema");
        let attributes = schema.provider.expect("a provider").block.expect("a block").attributes;
        assert_eq!(attributes[0].name, "endpoint");
        assert!(schema.server_capabilities.expect("capabilities").plan_destroy);
    });
}

#[test]
fn refuses_every_other_certificate() {
    runtime().block_on(async {
        let terraform = Identity::like_terraform();
        let served = Served::start(Some(&terraform));
        let certificate = served.certificate.as_deref().expect("a certificate");
        let stranger = Identity::like_terraform().client(certificate);
        // In TLS 1.3 the client learns of the refusal only with its first answer.
        let refused = match served.connect(Some(stranger)).await {
            Err(_) => true,
            Ok(channel) => schema(channel).await.is_err(),
        };
        assert!(refused, "a stranger was served");

        let plain = match served.connect(None).await {
            Err(_) => true,
            Ok(channel) => schema(channel).await.is_err(),
        };
        assert!(plain, "a client without TLS was served");

        let tls = terraform.client(certificate);
        let channel = served.connect(Some(tls)).await.expect("the right one still gets in");
        schema(channel).await.expect("a schema");
    });
}

#[test]
fn serves_without_tls_when_none_was_asked_for() {
    runtime().block_on(async {
        let served = Served::start(None);
        schema(served.connect(None).await.expect("a connection")).await.expect("a schema");
    });
}

#[test]
fn ends_soon_after_shutdown_although_the_host_keeps_its_streams_open() {
    runtime().block_on(async {
        let served = Served::start(None);
        let channel = served.connect(None).await.expect("a connection");
        let _stdio = GrpcStdioClient::new(channel.clone()).stream_stdio(()).await.expect("stdio");
        let never = futures_util::stream::pending();
        let _broker = GrpcBrokerClient::new(channel.clone()).start_stream(never).await.expect("broker");
        GrpcControllerClient::new(channel)
            .shutdown(pb_plugin::Empty {})
            .await
            .expect("an answer to the shutdown");
        assert_eq!(*served.ends.lock().expect("a lock"), [End::Asked], "the provider knew before the answer");
        // On a busy host, more time passes than the provider itself takes.
        assert!(DRAIN + CLOSING < Duration::from_secs(2), "Terraform kills it then");
        tokio::time::timeout(Duration::from_secs(20), served.task)
            .await
            .expect("ended in time")
            .expect("no panic")
            .expect("a clean end");
    });
}

#[test]
fn a_panic_is_a_diagnostic_and_the_next_call_works() {
    runtime().block_on(async {
        let served = Served::start(None);
        let mut client = ProviderClient::new(served.connect(None).await.expect("a connection"));
        let mut configure = async |endpoint: &str| {
            let request = pb::configure_provider::Request {
                terraform_version: "1.11.4".into(),
                config: Some(crate::codec::encode(&Val::from([("endpoint", endpoint.into())]))),
                client_capabilities: None,
            };
            client.configure_provider(request).await.expect("an answer").into_inner().diagnostics
        };
        let diagnostics = configure("panic").await;
        assert_eq!(diagnostics.len(), 1);
        assert!(diagnostics[0].detail.contains("asked to panic"), "{diagnostics:?}");
        assert_eq!(configure("fine").await, []);
    });
}

#[test]
fn what_only_a_later_terraform_asks_for_is_unimplemented() {
    runtime().block_on(async {
        let served = Served::start(None);
        // This provider has no state stores.
        for method in
            ["OfALaterVersion", "ValidateStateStoreConfig", "ConfigureStateStore", "LockState", "GetStates"]
        {
            let mut client = tonic::client::Grpc::new(served.connect(None).await.expect("a connection"));
            client.ready().await.expect("a connection");
            let codec =
                tonic_prost::ProstCodec::<pb::get_metadata::Request, pb::get_metadata::Response>::default();
            let path = PathAndQuery::try_from(format!("/tfplugin6.Provider/{method}")).expect("a path");
            let request = tonic::Request::new(pb::get_metadata::Request::default());
            let status = client.unary(request, path, codec).await.expect_err("not there");
            assert_eq!(status.code(), tonic::Code::Unimplemented, "{method}");
        }
        let client = ProviderClient::new(served.connect(None).await.expect("a connection"));
        let mut client = client.max_decoding_message_size(MAX_MESSAGE);
        let schemas = client.get_provider_schema(pb::get_provider_schema::Request {}).await.expect("schemas");
        assert!(schemas.into_inner().state_store_schemas.is_empty(), "and Terraform is told so");
    });
}
