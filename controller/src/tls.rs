//! TLS for the region's outgoing connections: aws-lc-rs, and the root certificates of this system.

use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use std::sync::Arc;

/// The configuration of a client that accepts any server with a certificate under these roots.
pub(crate) fn with_system_roots() -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| error.to_string())?;
    Ok(builder.with_no_client_auth())
}
