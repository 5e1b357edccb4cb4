//! The certificates of a BMC that the rack accepts.
//!
//! | `Bmc.trust` | accepted certificates |
//! | --- | --- |
//! | none | the first one that the rack saw; it is stored ([`Certificates`](crate::certificates::Certificates)) |
//! | `sha256` | the one with this hash, whoever signed it; it is stored too |
//! | `ca` | those that this authority signed for the BMC's address, while they are valid |
//! | `host_roots` | the same, for the authorities that this host trusts |
//! | `unverified` | any |

use std::sync::Arc;

use basalt_api::pin::PinnedCertificate;
use basalt_proto::rack_v1::{Bmc, bmc};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::Ended;
use crate::certificates::Certificates;
use crate::identity::provider;

/// The accepted certificates of a BMC, and the one that it has shown.
#[derive(Debug)]
pub(super) struct Trust {
    kind: Kind,
    believed: Believed,
    tls: Arc<ClientConfig>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    FirstSeen,
    Declared,
    Authority,
    Unverified,
}

#[derive(Debug)]
enum Believed {
    /// One certificate. It must be the same during the whole conversation.
    One(Arc<PinnedCertificate>),
    /// Any certificate that these authorities signed.
    Vouched(Arc<dyn ServerCertVerifier>),
}

impl Trust {
    /// The certificates that the BMC's description allows. `known` is the hash of the certificate that was stored before.
    ///
    /// # Errors
    /// The fault of the description, or of this host, as text.
    pub(super) fn of(bmc: &Bmc, known: Option<[u8; 32]>) -> Result<Self, String> {
        let one = |sha256| Believed::One(Arc::new(PinnedCertificate::new(sha256, provider())));
        let (kind, believed) = match &bmc.trust {
            None => (Kind::FirstSeen, one(known)),
            Some(bmc::Trust::Unverified(_)) => (Kind::Unverified, one(None)),
            Some(bmc::Trust::Sha256(declared)) => {
                let sha256 = declared.as_slice().try_into();
                let sha256 = sha256.map_err(|_| "bmc.tls.fingerprint is not 32 bytes".to_owned())?;
                (Kind::Declared, one(Some(sha256)))
            }
            Some(bmc::Trust::Ca(pem)) => (Kind::Authority, Believed::Vouched(authority(pem)?)),
            Some(bmc::Trust::HostRoots(_)) => (Kind::Authority, Believed::Vouched(host_roots()?)),
        };
        let verifier: Arc<dyn ServerCertVerifier> = match &believed {
            Believed::One(pinned) => pinned.clone(),
            Believed::Vouched(verifier) => verifier.clone(),
        };
        let tls = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Self { kind, believed, tls: Arc::new(tls) })
    }

    /// The TLS settings that accept these certificates.
    pub(super) fn tls(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.tls)
    }

    /// SHA-256 of the certificate that the BMC showed. `None` if authorities decide about it.
    pub(super) fn shown(&self) -> Option<[u8; 32]> {
        match &self.believed {
            Believed::One(pinned) => pinned.sha256(),
            Believed::Vouched(_) => None,
        }
    }

    /// Stores the certificate that the BMC showed. Later connections must show the same. Call this once there is a connection, before a
    /// password is sent.
    ///
    /// # Errors
    /// `rack_disk`: the file cannot be written.
    pub(super) fn remember(&self, bmc: &Bmc, place: &str, certificates: &Certificates) -> Result<(), Ended> {
        let shown = self.shown().filter(|_| matches!(self.kind, Kind::FirstSeen | Kind::Declared));
        let Some(sha256) = shown else { return Ok(()) };
        let kept = certificates.keep(place, sha256).map_err(|error| {
            let why = format!(
                "the rack cannot remember the certificate of BMC {place}, so it did nothing: {error}"
            );
            Ended::error("rack_disk", why)
        })?;
        if kept {
            tracing::info!(machine = %bmc.machine_uid, bmc = place, certificate = %hex::encode(sha256), "a BMC is known by this certificate from now on");
        }
        Ok(())
    }

    /// Advice for a person whose BMC's certificate was refused.
    pub(super) fn advice(&self) -> &'static str {
        match self.kind {
            Kind::FirstSeen | Kind::Unverified => {
                "the other one was seen first, and no password was sent: if the BMC was given a new certificate, declare that in bmc.tls.fingerprint; \
                 if not, somebody stands between the rack and the BMC"
            }
            Kind::Declared => {
                "the other one is declared in bmc.tls.fingerprint, or was shown when the machine's own account was used before, and no password was sent: \
                 if the BMC was given a new certificate, declare that in bmc.tls.fingerprint; \
                 if not, somebody stands between the rack and the BMC"
            }
            Kind::Authority => {
                "no password was sent: declare the authority that signed it in bmc.tls.ca, give the BMC a certificate for the name or address in \
                 bmc.address, or leave bmc.tls out: then the first certificate that is seen is the one"
            }
        }
    }
}

fn authority(pem: &str) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("bmc.tls.ca is not PEM: {error}"))?;
        roots.add(certificate).map_err(|error| format!("bmc.tls.ca has no usable certificate: {error}"))?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    verifier.map(|it| it as Arc<dyn ServerCertVerifier>).map_err(|error| format!("bmc.tls.ca: {error}"))
}

fn host_roots() -> Result<Arc<dyn ServerCertVerifier>, String> {
    let verifier = rustls_platform_verifier::Verifier::new(provider());
    Ok(Arc::new(
        verifier.map_err(|error| format!("the rack's host names no authorities that it trusts: {error}"))?,
    ))
}
