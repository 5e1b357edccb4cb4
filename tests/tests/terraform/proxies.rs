//! Proxies between provider and region that the environment names, and peers that demand a certificate.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::user::{User, certificate};
use crate::world::{flat, provider, within, within_region};

const ZONE: &str = "resource \"basalt_zone\" \"row\" {\n  name = \"row-1\"\n}\n";

/// A host name that no resolver knows.
const HOST: &str = "region.invalid";

/// A proxy (RFC 9110 §9.3.6) that reaches the region under the name [`HOST`], and the number of its tunnels to the region.
async fn proxy(region: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, tunnels) = (listener.local_addr().expect("an address"), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&tunnels);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let counter = Arc::clone(&counter);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await?);
                }
                if !head.starts_with(format!("CONNECT {HOST}:{} ", region.port()).as_bytes()) {
                    return client.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").await;
                }
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
                counter.fetch_add(1, Ordering::Relaxed);
                let mut region = TcpStream::connect(region).await?;
                copy_bidirectional(&mut client, &mut region).await.map(drop)
            });
        }
    });
    (address, tunnels)
}

#[test]
fn a_region_behind_a_proxy_is_reached_through_it_and_this_host_never() {
    let tls = tempfile::tempdir().expect("a directory");
    let files = certificate(tls.path(), &["localhost", HOST]);
    let authority = files.certificate.display().to_string();
    within_region(
        |settings| settings.tls = Some(files),
        async |world| {
            let port = world.region.address().port();
            let (proxy, tunnels) = proxy(world.region.address()).await;
            let mut user = User::with_provider();
            user.configure("basalt-metal/basalt", ZONE);
            let mut reach = async |host: &str, proxy: &str, left_out: &str, args: &[&str]| {
                user.environment = vec![
                    ("BASALT_ENDPOINT", format!("https://{host}:{port}")),
                    ("BASALT_CA_FILE", authority.clone()),
                    ("BASALT_TOKEN", world.token.clone()),
                    ("BASALT_RETRY_TIMEOUT", "100ms".to_owned()),
                    ("HTTPS_PROXY", proxy.to_owned()),
                    ("NO_PROXY", left_out.to_owned()),
                ];
                let output = user.terraform(args).await;
                (output.status.success(), flat(&crate::world::everything(&output)))
            };
            let proxy = format!("http://{proxy}");
            let (done, said) = reach("localhost", "http://127.0.0.1:1", "", &["init"]).await;
            assert!(done, "{said}");

            let apply = ["apply", "-auto-approve"];
            let (done, said) = reach(HOST, &proxy, "", &apply).await;
            assert!(done && said.contains("1 added"), "{said}");
            let made = tunnels.load(Ordering::Relaxed);
            assert!(made > 0);

            let (done, said) = reach(HOST, &proxy, HOST, &["plan"]).await;
            assert!(!done && said.contains("No region answered"), "{said}");
            // The address comes from the environment, so there is no second error about a missing block.
            assert_eq!(said.matches("Error: ").count(), 1, "{said}");
            let (done, said) = reach("localhost", "http://127.0.0.1:1", "", &["plan"]).await;
            assert!(done && said.contains("No changes."), "{said}");
            assert_eq!(tunnels.load(Ordering::Relaxed), made, "neither was tunnelled");

            let (done, said) = reach(HOST, "http://127.0.0.1:1", "", &["plan"]).await;
            assert!(!done && said.contains("(through http://127.0.0.1:1)"), "{said}");
            let (done, said) = reach(HOST, "socks5://127.0.0.1:1", "", &["plan"]).await;
            assert!(!done && said.contains("HTTPS_PROXY: \"socks5\" is not http"), "{said}");
            world.end().await;
        },
    );
}

/// A TLS gateway in front of a region. It demands a client certificate signed by `trusted`.
async fn gatekeeper(region: SocketAddr, own: (&[u8], &[u8]), trusted: &[u8]) -> SocketAddr {
    let read = |pem| CertificateDer::from_pem_slice(pem).expect("a certificate");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(read(trusted)).expect("a certificate");
    let crypto = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&crypto));
    let config = rustls::ServerConfig::builder_with_provider(crypto)
        .with_safe_default_protocol_versions()
        .expect("TLS")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(vec![read(own.0)], PrivateKeyDer::from_pem_slice(own.1).expect("a key"))
        .expect("TLS");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut client = match acceptor.accept(client).into_fallible().await {
                    Ok(client) => client,
                    // A refused client sees the alert only if the gateway reads the rest of its data.
                    Err((_, mut refused)) => {
                        refused.shutdown().await?;
                        tokio::io::copy(&mut refused, &mut tokio::io::sink()).await?;
                        return Ok((0, 0));
                    }
                };
                let mut region = TcpStream::connect(region).await?;
                copy_bidirectional(&mut client, &mut region).await
            });
        }
    });
    address
}

#[test]
fn a_certificate_is_shown_to_what_stands_before_the_region() {
    within(async |world| {
        let [of_gate, of_client, other] = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
        let gate = certificate(of_gate.path(), &["localhost"]);
        let client = certificate(of_client.path(), &["ci"]);
        let other = certificate(other.path(), &["ci"]);
        let bytes = |path| std::fs::read(path).expect("a file");
        let own = (bytes(&gate.certificate), bytes(&gate.key));
        let address = gatekeeper(world.region.address(), (&own.0, &own.1), &bytes(&client.certificate)).await;
        let block = |rest: &str| {
            let direct = provider(&world);
            let behind = direct.replace(&world.endpoint, &format!("https://localhost:{}", address.port()));
            let more = format!("  ca_file = {:?}\n  retry_timeout = \"100ms\"\n{rest}}}\n", gate.certificate);
            format!("{}{more}{ZONE}", behind.trim_end().trim_end_matches('}'))
        };
        let shown = |certificate: &std::path::Path, key: &std::path::Path| {
            format!("  client_certificate = file({certificate:?})\n  client_key = file({key:?})\n")
        };
        let said = world.config(&block(&shown(&client.certificate, &client.key))).apply().await;
        assert!(said.contains("1 added"), "{said}");

        // The client sees only the TLS alert (RFC 8446 §6.2). Without a certificate, the alert says that one is required. With an
        // untrusted one, it depends on the peer's first failed check, for example a signature that does not match the issuer of that name
        // (decrypt_error).
        for (certificate, alert) in [
            (String::new(), "received fatal alert: CertificateRequired"),
            (shown(&other.certificate, &other.key), "received fatal alert: "),
        ] {
            let said = flat(&world.config(&block(&certificate)).fails(&["plan"]).await);
            assert!(said.contains("Error: No region can be reached") && said.contains(alert), "{said}");
        }
        let said = world.config(&block(&shown(&client.certificate, &other.key))).fails(&["plan"]).await;
        assert!(said.contains("client_key: it cannot be used with the certificate"), "{said}");
        let alone = format!("  client_key = file({:?})\n", client.key);
        let said = world.config(&block(&alone)).fails(&["plan"]).await;
        assert!(said.contains("client_key is given without client_certificate"), "{said}");
        world.end().await;
    });
}

/// A server in front of a region that refuses the first `most` requests, with `429` and `503` in turn and a `Retry-After`. Returns its
/// address and the number of its refusals.
async fn crowd(region: SocketAddr, most: usize, after: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, refused) = (listener.local_addr().expect("an address"), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&refused);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let counter = Arc::clone(&counter);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await?);
                }
                let number = counter.load(Ordering::Relaxed);
                if number < most {
                    counter.fetch_add(1, Ordering::Relaxed);
                    let status = ["429 Too Many Requests", "503 Service Unavailable"][number % 2];
                    let answer = format!(
                        "HTTP/1.1 {status}\r\nRetry-After: {after}\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfull"
                    );
                    return client.write_all(answer.as_bytes()).await;
                }
                let mut region = TcpStream::connect(region).await?;
                region.write_all(&head).await?;
                copy_bidirectional(&mut client, &mut region).await.map(drop)
            });
        }
    });
    (address, refused)
}

#[test]
fn a_region_that_has_no_room_is_asked_again_when_it_says_and_told_of_where_nobody_waits_so_long() {
    within(async |world| {
        let block = |address: SocketAddr, rest: &str| {
            let behind = provider(&world).replace(&world.endpoint, &format!("http://{address}"));
            format!("{}{rest}}}\n{ZONE}", behind.trim_end().trim_end_matches('}'))
        };
        let (address, refused) = crowd(world.region.address(), 6, "1").await;
        let said = world.config(&block(address, "")).apply().await;
        assert!(said.contains("1 added"), "{said}");
        assert_eq!(refused.load(Ordering::Relaxed), 6, "each refusal was felt");

        let (address, refused) = crowd(world.region.address(), usize::MAX, "3600").await;
        let said = world.config(&block(address, "  retry_timeout = \"1s\"\n")).fails(&["plan"]).await;
        assert!(said.contains("429") || said.contains("503"), "{said}");
        assert!(refused.load(Ordering::Relaxed) > 0);
        world.end().await;
    });
}
