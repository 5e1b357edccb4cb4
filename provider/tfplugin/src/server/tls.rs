//! Mutual TLS in which each side accepts exactly one certificate.
//!
//! Terraform makes a certificate for this process alone and passes it in the environment. The
//! process makes one for Terraform and passes it in the handshake line. Only that client may
//! connect: another client could act with the user's credentials.
//!
//! Terraform's certificate is self-signed, ECDSA P-521, and both a CA and a leaf. Ordinary
//! verification refuses a CA as a leaf, and there is no PKI to verify against: so the bytes are
//! compared. The crypto provider must support P-521 and is always named, never the process's
//! default.

use std::sync::Arc;

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio_rustls::TlsAcceptor;

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("PLUGIN_CLIENT_CERT is not a certificate in PEM: {0}")]
    ClientCert(rustls::pki_types::pem::Error),
    #[error("no certificate could be made: {0}")]
    Generate(#[from] rcgen::Error),
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
}

/// An acceptor that accepts only the owner of one certificate, and the DER of its own certificate.
pub(crate) fn acceptor(client_pem: &str) -> Result<(TlsAcceptor, Vec<u8>), TlsError> {
    let client = CertificateDer::from_pem_slice(client_pem.as_bytes()).map_err(TlsError::ClientCert)?;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let own = params.self_signed(&key)?;

    let crypto = aws_lc_rs::default_provider();
    let verifier = Arc::new(OneClient { der: client, algorithms: crypto.signature_verification_algorithms });
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(Arc::new(crypto))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![own.der().clone()], key)?;
    // Newer gRPC clients refuse a server that does not name its protocol in ALPN.
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), own.der().to_vec()))
}

#[derive(Debug)]
struct OneClient {
    der: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for OneClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        if leaf.as_ref() == self.der.as_ref() {
            Ok(ClientCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
