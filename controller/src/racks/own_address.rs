//! The address at which racks dial this process.
//!
//! | setting | the address |
//! | --- | --- |
//! | `rpc-url` | its value |
//! | `join-urls` | the entry that leads to this process. All are dialled: the certificate in the answer names the process |
//! | neither | the address on which this process listens, unless that is the wildcard address |
//!
//! So all regions of a database may have the same `join-urls`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use basalt_api::values::Uid;
use basalt_proto::REGION_SERVER_NAME;
use basalt_proto::region::address_of_url;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use x509_parser::prelude::FromDer;

/// Time limit for dialling an entry.
const DIAL: Duration = Duration::from_secs(3);

/// The settings that determine where racks find regions.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// `rpc-url`, as `HOST:PORT`.
    pub own: Option<String>,
    /// `join-urls`.
    pub join_urls: Vec<String>,
    /// The racks' port of this process.
    pub listening: Option<SocketAddr>,
}

impl Declared {
    /// The entries of `join-urls`, as `HOST:PORT`.
    pub(super) fn entries(&self) -> Vec<String> {
        self.join_urls.iter().filter_map(|url| address_of_url(url)).collect()
    }

    /// The warning that racks dial this process at two addresses: at `rpc-url` and at an entry of `join-urls`. `None` if they do not.
    pub(super) fn doubled(&self) -> Option<String> {
        let (own, entries) = (self.own.as_ref()?, self.entries());
        if entries.is_empty() || entries.contains(own) {
            return None;
        }
        Some(format!(
            "--rpc-url https://{own} is none of --join-urls (https://{}). If one of those leads to this region too, each \
             rack links to it twice: name in --join-urls the address that each region has in --rpc-url",
            entries.join(", https://")
        ))
    }

    /// The URLs in join tokens.
    #[must_use]
    pub fn urls_of_tokens(&self) -> Vec<String> {
        if !self.join_urls.is_empty() {
            return self.join_urls.clone();
        }
        let own = self.own.clone().or_else(|| self.listening.and_then(host));
        own.map(|own| format!("https://{own}")).into_iter().collect()
    }
}

/// The process at an address.
#[derive(Debug)]
enum Answer {
    This,
    Another,
    Nobody(io::Error),
}

/// Finds the address of this process.
pub struct Finder {
    process: Uid,
    connector: TlsConnector,
}

impl std::fmt::Debug for Finder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Finder").field("process", &self.process).finish_non_exhaustive()
    }
}

impl Finder {
    /// A finder for this process, with its region's certificate authority.
    ///
    /// # Errors
    /// Fails if the authority's certificate is invalid.
    pub fn new(process: Uid, authority: &CertificateDer<'static>) -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { process, connector: TlsConnector::from(Arc::new(config)) })
    }

    /// The address of this process.
    ///
    /// # Errors
    /// A sentence with the reason, and the setting to change.
    pub(super) async fn find(&self, declared: &Declared) -> Result<String, String> {
        if let Some(own) = &declared.own {
            return Ok(own.clone());
        }
        let entries = declared.entries();
        if entries.is_empty() {
            return declared.listening.and_then(host).ok_or_else(|| {
                "this region listens for racks on every address, and does not know at which they reach it: \
                 say it with --rpc-url https://ADDRESS:5250"
                    .to_owned()
            });
        }
        let mut asked: FuturesUnordered<_> =
            entries.iter().map(|entry| async move { (entry, self.ask(entry).await) }).collect();
        let mut others = Vec::new();
        while let Some((entry, answer)) = asked.next().await {
            match answer {
                Answer::This => return Ok(entry.clone()),
                // Behind NAT a host may be unable to dial its own address.
                Answer::Nobody(_) if entries.len() == 1 => return Ok(entry.clone()),
                Answer::Another => others.push(format!("{entry} is another region")),
                Answer::Nobody(error) => others.push(format!("{entry} does not answer ({error})")),
            }
        }
        others.sort();
        Err(format!(
            "no entry of --join-urls leads to this region: {}. Racks are not told where it is; say it with \
             --rpc-url https://ADDRESS:5250",
            others.join(", ")
        ))
    }

    async fn ask(&self, address: &str) -> Answer {
        let dialled = tokio::time::timeout(DIAL, self.dial(address)).await;
        match dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(process) if process.as_deref() == Some(&self.process.to_string()) => Answer::This,
            Ok(_) => Answer::Another,
            Err(error) => Answer::Nobody(error),
        }
    }

    /// The id of the process at an address, from its certificate.
    async fn dial(&self, address: &str) -> io::Result<Option<String>> {
        let name = ServerName::try_from(REGION_SERVER_NAME).map_err(io::Error::other)?;
        let tls = self.connector.connect(name, TcpStream::connect(address).await?).await?;
        let (_, session) = tls.get_ref();
        let certificate = session.peer_certificates().and_then(|all| all.first());
        let parsed = certificate.and_then(|it| x509_parser::certificate::X509Certificate::from_der(it).ok());
        Ok(parsed.and_then(|(_, it)| {
            it.subject().iter_common_name().next().and_then(|name| name.as_str().ok()).map(str::to_owned)
        }))
    }
}

/// The address, if other hosts can dial it: the wildcard address is none.
fn host(listening: SocketAddr) -> Option<String> {
    (!listening.ip().is_unspecified()).then(|| listening.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_beside_the_entries_is_warned_of() {
        let declared = |own: Option<&str>, join_urls: &[&str]| Declared {
            own: own.map(str::to_owned),
            join_urls: join_urls.iter().map(|url| (*url).to_owned()).collect(),
            listening: None,
        };
        let balanced = ["https://regions.lab:5250"];
        let warning = declared(Some("10.0.0.1:5250"), &balanced).doubled().unwrap();
        assert!(warning.contains("--rpc-url https://10.0.0.1:5250"), "{warning}");
        assert!(warning.contains("(https://regions.lab:5250)") && !warning.contains("  "), "{warning}");
        let both = ["https://10.0.0.1:5250", "https://10.0.0.2:5250"];
        assert_eq!(declared(Some("10.0.0.1:5250"), &both).doubled(), None);
        assert_eq!(declared(Some("10.0.0.1:5250"), &[]).doubled(), None);
        assert_eq!(declared(None, &balanced).doubled(), None);
    }
}
