//! TLS towards whom the region calls: aws-lc-rs, and the roots that this system trusts.

use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use std::sync::Arc;

/// For a client of anybody.
pub(crate) fn with_system_roots() -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| error.to_string())?;
    Ok(builder.with_no_client_auth())
}
