//! TLS to regions, and to racks that relay to them.

use std::error::Error;
use std::sync::Arc;

use reqwest::Url;
use rustls::CertificateError;
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls_platform_verifier::BuilderVerifierExt;

use super::{ClientConfig, ClientError, ClientIdentity};
use crate::pin::PinnedKey;

/// The SHA-256 hash of the public key that an endpoint names: `https://HOST:PORT#spki=HEX`.
pub(super) fn pinned_key(endpoint: &Url) -> Result<Option<[u8; 32]>, String> {
    let Some(fragment) = endpoint.fragment() else { return Ok(None) };
    let key = fragment.strip_prefix("spki=").and_then(|digits| hex::decode(digits).ok()?.try_into().ok());
    let key = key.ok_or_else(|| {
        format!("{fragment:?} behind the # is not spki= and 64 hexadecimal digits, as status.spki_sha256 of a Rack has them")
    })?;
    if endpoint.scheme() != "https" {
        return Err("only https:// has a key that could be pinned".to_owned());
    }
    Ok(Some(key))
}

/// TLS with aws-lc-rs, even if the program links another crypto library. With `key`, only a server with that public key is trusted and no
/// CA is needed. Without `verify` no server is trusted: that is for endpoints without TLS.
pub(super) fn of(
    config: &ClientConfig,
    verify: bool,
    key: Option<[u8; 32]>,
) -> Result<rustls::ClientConfig, ClientError> {
    let wrong = |why: String| ClientError::Config { setting: "ca_pem", why };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong(e.to_string()))?;
    if let Some(key) = key {
        let verifier = Arc::new(PinnedKey::new(key, provider));
        return identified(
            builder.dangerous().with_custom_certificate_verifier(verifier),
            config.identity.as_ref(),
        );
    }
    let mut roots = rustls::RootCertStore::empty();
    match &config.ca_pem {
        Some(pem) if verify => {
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate = certificate.map_err(|e| wrong(format!("not a PEM certificate: {e}")))?;
                roots.add(certificate).map_err(|e| wrong(e.to_string()))?;
            }
            if roots.is_empty() {
                return Err(wrong("there is no certificate in it".to_owned()));
            }
            identified(builder.with_root_certificates(roots), config.identity.as_ref())
        }
        None if verify => {
            let builder = builder.with_platform_verifier().map_err(|e| wrong(e.to_string()))?;
            identified(builder, config.identity.as_ref())
        }
        _ => Ok(builder.with_root_certificates(roots).with_no_client_auth()),
    }
}

/// Adds the client's certificate.
fn identified(
    builder: rustls::ConfigBuilder<rustls::ClientConfig, WantsClientCert>,
    identity: Option<&ClientIdentity>,
) -> Result<rustls::ClientConfig, ClientError> {
    let Some(identity) = identity else { return Ok(builder.with_no_client_auth()) };
    let wrong = |setting: &'static str, why: String| ClientError::Config { setting, why };
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect();
    let certificates =
        certificates.map_err(|e| wrong("client_certificate", format!("not a PEM certificate: {e}")))?;
    if certificates.is_empty() {
        let why = "there is no certificate in it; it is the text of a PEM file, not its path";
        return Err(wrong("client_certificate", why.to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(|_| {
        let why =
            "there is no private key in it; it is the text of a PEM file, not its path, and not encrypted";
        wrong("client_key", why.to_owned())
    })?;
    builder.with_client_auth_cert(certificates, key).map_err(|e| {
        wrong(
            "client_key",
            format!("it cannot be used with the certificate: {e}; give the key that the certificate is of"),
        )
    })
}

/// The reason why this client refused a server's certificate, if `error` is such a refusal. Another try gets the same certificate.
pub(super) fn distrust<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a CertificateError> {
    let mut chain = std::iter::successors(Some(error), |&error| error.source());
    chain.find_map(refused)
}

/// The same for one error of a chain. An I/O error hides its inner error from `source()`, and may be nested.
fn refused<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a CertificateError> {
    match error.downcast_ref::<rustls::Error>() {
        Some(rustls::Error::InvalidCertificate(why)) => Some(why),
        Some(_) => None,
        None => refused(error.downcast_ref::<std::io::Error>()?.get_ref()?),
    }
}

/// Advice for a certificate that was refused for this reason.
pub(super) fn advice(why: &CertificateError) -> &'static str {
    match why {
        CertificateError::ApplicationVerificationFailure => {
            "the server there has another key than the endpoint's #spki= says; status.spki_sha256 of its Rack has it, and BASALT_CA_FILE does not change that"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the endpoint has to have a name or an address that stands in its certificate; BASALT_CA_FILE does not change that"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "renew it at the region, and look at this host's clock; BASALT_CA_FILE does not change that"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "look at this host's clock and at the region's; BASALT_CA_FILE does not change that"
        }
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "its certificate is an authority's, and the region needs one that says CA:FALSE; BASALT_CA_FILE names the authority"
        }
        _ => "name the file with its signer's certificate, in BASALT_CA_FILE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_64_digits_behind_https() {
        let key = |text: &str| pinned_key(&text.parse().unwrap());
        let digits = "0aF1".repeat(16);
        assert_eq!(key("https://rack:5248"), Ok(None));
        let pinned = key(&format!("https://rack:5248#spki={digits}")).unwrap().unwrap();
        assert_eq!(pinned[..4], [0x0a, 0xf1, 0x0a, 0xf1]);
        for bad in
            ["", "spki=", "spki=0a", "pin=0a", &format!("spki={digits}0"), &format!("spki=+{}", &digits[1..])]
        {
            let refused = key(&format!("https://rack:5248#{bad}")).unwrap_err();
            assert!(refused.contains("64 hexadecimal digits"), "{refused}");
        }
        assert!(key(&format!("http://localhost#spki={digits}")).unwrap_err().contains("only https"));
    }
}
