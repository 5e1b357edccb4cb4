//! Who this rack is: one P-256 key, made once, for its agent endpoint and for its certificate of the region's CA.
//!
//! | file in `identity/` | holds |
//! | --- | --- |
//! | `key.pem` | the private key, PKCS#8 |
//! | `certificate.der`, `ca.der` | what enrolment answered |
//! | `rack.json` | [`Membership`] |
//!
//! The agent endpoint's certificate is signed by the key itself and made anew at each start: agents pin the key
//! (`basalt.spki`) and look at nothing else.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair, PublicKeyData};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};

use crate::durable;
use crate::hash::sha256;

/// The cryptography of every TLS connection; never the process's default.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// What enrolment gave this rack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The rack's uid in the region.
    pub rack_uid: String,
    /// The name it enrolled under.
    pub name: String,
    /// The regions' addresses, as last heard.
    pub regions: Vec<String>,
    /// When the certificate ends, Unix milliseconds.
    pub not_after_unix_ms: i64,
}

impl Membership {
    /// Whether the certificate's time is over: no region takes it any more.
    #[must_use]
    pub const fn has_ended(&self, now_unix_ms: i64) -> bool {
        self.not_after_unix_ms <= now_unix_ms
    }
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file system's reason.
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    /// A file says nothing sensible.
    #[error("{0}: {1}; restore it, or remove the directory and enrol again")]
    Damaged(PathBuf, String),
    /// Cryptography failed.
    #[error("making the rack's key or certificate failed: {0}")]
    Crypto(String),
}

/// The key, and what belongs to it.
#[derive(Debug)]
pub struct Identity {
    dir: PathBuf,
    key: KeyPair,
    /// SHA-256 of the public key's SubjectPublicKeyInfo, lower-case hexadecimal: `basalt.spki`.
    pub spki_sha256: String,
}

impl Identity {
    /// Reads `DIR/identity`, and makes the key when there is none.
    ///
    /// # Errors
    /// The file system's, or a damaged key.
    pub fn open(data_dir: &Path) -> Result<Self, IdentityError> {
        let dir = data_dir.join("identity");
        durable::private_dir(&dir).map_err(|error| IdentityError::File(dir.clone(), error))?;
        let path = dir.join("key.pem");
        let key = match fs::read_to_string(&path) {
            Ok(pem) => {
                KeyPair::from_pem(&pem).map_err(|error| IdentityError::Damaged(path, error.to_string()))?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = KeyPair::generate().map_err(crypto)?;
                durable::replace(&path, key.serialize_pem().as_bytes())
                    .map_err(|error| IdentityError::File(path, error))?;
                key
            }
            Err(error) => return Err(IdentityError::File(path, error)),
        };
        let spki_sha256 = hex::encode(sha256(&key.subject_public_key_info()));
        Ok(Self { dir, key, spki_sha256 })
    }

    /// TLS of the agent endpoint.
    ///
    /// # Errors
    /// Cryptography's.
    pub fn agent_tls(&self) -> Result<rustls::ServerConfig, IdentityError> {
        let params = CertificateParams::new(vec!["basalt-rack".to_owned()]).map_err(crypto)?;
        let certificate = params.self_signed(&self.key).map_err(crypto)?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(crypto)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], self.private_key())
            .map_err(crypto)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// A request for a certificate, DER (PKCS#10).
    ///
    /// # Errors
    /// Cryptography's.
    pub fn certificate_request(&self, name: &str) -> Result<Vec<u8>, IdentityError> {
        let params = CertificateParams::new(vec![name.to_owned()]).map_err(crypto)?;
        Ok(params.serialize_request(&self.key).map_err(crypto)?.der().to_vec())
    }

    /// Keeps what enrolment answered.
    ///
    /// # Errors
    /// The file system's.
    pub fn join(&self, membership: &Membership, certificate: &[u8], ca: &[u8]) -> Result<(), IdentityError> {
        self.write("certificate.der", certificate)?;
        self.write("ca.der", ca)?;
        self.keep(membership)
    }

    /// The data directory.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        self.dir.parent().unwrap_or(&self.dir)
    }

    /// Keeps a renewed certificate of the same key and authority.
    ///
    /// # Errors
    /// The file system's.
    pub fn renew(&self, membership: &Membership, certificate: &[u8]) -> Result<(), IdentityError> {
        self.write("certificate.der", certificate)?;
        self.keep(membership)
    }

    /// Keeps a changed membership.
    ///
    /// # Errors
    /// The file system's.
    pub fn keep(&self, membership: &Membership) -> Result<(), IdentityError> {
        self.write("rack.json", &serde_json::to_vec_pretty(membership).map_err(crypto)?)
    }

    /// Says if the rack of a data directory has enrolled.
    #[must_use]
    pub fn has_joined(data_dir: &Path) -> bool {
        data_dir.join("identity/rack.json").exists()
    }

    /// The membership, when this rack has enrolled.
    ///
    /// # Errors
    /// Files that are damaged or cannot be read.
    pub fn membership(&self) -> Result<Option<Membership>, IdentityError> {
        let Some(json) = self.read("rack.json")? else { return Ok(None) };
        let damaged =
            |error: serde_json::Error| IdentityError::Damaged(self.dir.join("rack.json"), error.to_string());
        serde_json::from_slice(&json).map(Some).map_err(damaged)
    }

    /// TLS towards regions, with this rack's certificate.
    ///
    /// # Errors
    /// The rack has not enrolled, or its files are damaged.
    pub fn region_tls(&self) -> Result<rustls::ClientConfig, IdentityError> {
        let missing = |name: &str| IdentityError::Damaged(self.dir.join(name), "missing".to_owned());
        let ca = self.read("ca.der")?.ok_or_else(|| missing("ca.der"))?;
        let certificate = self.read("certificate.der")?.ok_or_else(|| missing("certificate.der"))?;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from(ca)).map_err(crypto)?;
        let mut config = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(crypto)?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![CertificateDer::from(certificate)], self.private_key())
            .map_err(crypto)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }

    fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()))
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, IdentityError> {
        let path = self.dir.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(IdentityError::File(path, error)),
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), IdentityError> {
        let path = self.dir.join(name);
        durable::replace(&path, bytes).map_err(|error| IdentityError::File(path, error))
    }
}

fn crypto(error: impl std::fmt::Display) -> IdentityError {
    IdentityError::Crypto(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_made_once_and_serves_tls() {
        let dir = tempfile::tempdir().unwrap();
        let first = Identity::open(dir.path()).unwrap();
        let again = Identity::open(dir.path()).unwrap();
        assert_eq!(first.spki_sha256, again.spki_sha256);
        assert_eq!(first.spki_sha256.len(), 64);
        again.agent_tls().unwrap();
        assert_eq!(again.membership().unwrap(), None);
        assert!(again.region_tls().is_err());
    }

    #[test]
    fn a_damaged_key_stops_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        drop(Identity::open(dir.path()).unwrap());
        fs::write(dir.path().join("identity/key.pem"), "nonsense").unwrap();
        let error = Identity::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("identity/key.pem"), "{error}");
    }
}
