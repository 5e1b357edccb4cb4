//! TLS with a server that is identified by its key or its certificate: a rack or a BMC, whose certificates are self-signed.
//!
//! Names and dates in the certificate are not checked: racks and BMCs are addressed by IP, a machine's clock is often wrong at boot, and
//! most BMCs never renew their certificate.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use sha2::{Digest, Sha256};

/// Accepts exactly one key.
pub type PinnedKey = Pinned<Key>;

/// Accepts exactly one certificate.
pub type PinnedCertificate = Pinned<Certificate>;

/// Accepts the certificates that `J` accepts, from a server that proves to have the private key.
#[derive(Debug)]
pub struct Pinned<J> {
    judge: J,
    provider: Arc<CryptoProvider>,
}

/// Decides if a certificate is the expected one.
pub trait Judge: std::fmt::Debug + Send + Sync {
    /// # Errors
    /// The certificate is not the expected one.
    fn judge(&self, certificate: &CertificateDer<'_>) -> Result<(), Error>;
}

/// See [`PinnedKey`].
#[derive(Debug)]
pub struct Key([u8; 32]);

impl Pinned<Key> {
    /// The key with this hash: SHA-256 of the DER SubjectPublicKeyInfo (RFC 5280 §4.1.2.7).
    #[must_use]
    pub const fn new(spki: [u8; 32], provider: Arc<CryptoProvider>) -> Self {
        Self { judge: Key(spki), provider }
    }
}

impl Judge for Key {
    fn judge(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        if <[u8; 32]>::from(Sha256::digest(key.as_ref())) == self.0 {
            Ok(())
        } else {
            Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }
}

/// See [`PinnedCertificate`].
#[derive(Debug)]
pub struct Certificate(OnceLock<[u8; 32]>);

/// The server has another certificate than the expected one. The fingerprints are SHA-256 of the DER, printed like `openssl x509
/// -fingerprint -sha256`, in lower case.
#[derive(Debug, thiserror::Error)]
#[error("it shows the one with SHA-256 {}, and is known by {}", text(.shown), text(.known))]
pub struct OtherCertificate {
    /// Fingerprint of the server's certificate.
    pub shown: [u8; 32],
    /// Fingerprint of the expected certificate.
    pub known: [u8; 32],
}

impl Pinned<Certificate> {
    /// Accepts the certificate with this SHA-256 of its DER. With `None`, accepts the first certificate, and later only that one.
    #[must_use]
    pub fn new(sha256: Option<[u8; 32]>, provider: Arc<CryptoProvider>) -> Self {
        let known = OnceLock::new();
        if let Some(sha256) = sha256 {
            known.get_or_init(|| sha256);
        }
        Self { judge: Certificate(known), provider }
    }

    /// The accepted certificate, once there is one. The server has proven to have its key only after the handshake is complete.
    #[must_use]
    pub fn sha256(&self) -> Option<[u8; 32]> {
        self.judge.0.get().copied()
    }
}

impl Judge for Certificate {
    fn judge(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let shown = <[u8; 32]>::from(Sha256::digest(certificate));
        let known = *self.0.get_or_init(|| shown);
        if shown == known {
            return Ok(());
        }
        let other = OtherError(Arc::new(OtherCertificate { shown, known }));
        Err(Error::InvalidCertificate(CertificateError::Other(other)))
    }
}

fn text(sha256: &[u8; 32]) -> String {
    crate::values::Sha256::new(*sha256).to_string()
}

impl<J: Judge> ServerCertVerifier for Pinned<J> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.judge.judge(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
