//! TLS to the rack, whose key is pinned by the kernel command line.

use std::sync::Arc;

use basalt_api::pin::PinnedKey;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, Error};

/// A client configuration that accepts exactly the key with this hash (SHA-256 of the DER SubjectPublicKeyInfo).
///
/// # Errors
/// The provider lacks the default protocol versions: never, as built.
pub fn pinned(spki: [u8; 32]) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedKey::new(spki, provider)))
        .with_no_client_auth();
    Ok(Arc::new(config))
}
