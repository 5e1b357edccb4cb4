//! TLS to the rack, whose key is pinned by the kernel command line, and to the machine's own BMC.

use std::sync::Arc;

use basalt_api::pin::{PinnedCertificate, PinnedKey};
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, Error};

/// A client configuration that accepts exactly the key with this hash (SHA-256 of the DER SubjectPublicKeyInfo).
///
/// # Errors
/// The crypto provider lacks the default protocol versions, which cannot happen in this build.
pub fn pinned(spki: [u8; 32]) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    with(provider.clone(), Arc::new(PinnedKey::new(spki, provider)))
}

/// A client configuration. It accepts the first certificate of a server without a check of the issuer, and later no other.
///
/// # Errors
/// The same as for [`pinned`].
pub fn first_seen() -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    with(provider.clone(), Arc::new(PinnedCertificate::new(None, provider)))
}

fn with(
    provider: Arc<CryptoProvider>,
    verifier: Arc<dyn ServerCertVerifier>,
) -> Result<Arc<ClientConfig>, Error> {
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
