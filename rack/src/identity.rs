//! The rack's identity: one P-256 key, made once. It is used for the agent endpoint and for the certificate from the
//! region's CA.
//!
//! | file in `identity/` | content |
//! | --- | --- |
//! | `key.pem` | the private key, PKCS#8 |
//! | `certificate.der`, `ca.der` | the answer to the enrolment |
//! | `rack.json` | [`Membership`] |
//!
//! The agent endpoint's certificate is self-signed and made again at each start. Agents pin the key (`basalt.spki`) and
//! check nothing else.

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

/// The cryptography provider of every TLS connection; the process's default provider is never used.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The rack's membership of a region, from its enrolment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The rack's uid in the region.
    pub rack_uid: String,
    /// The name it enrolled under.
    pub name: String,
    /// The addresses of the regions, as last reported.
    pub regions: Vec<String>,
    /// When the certificate expires, Unix milliseconds.
    pub not_after_unix_ms: i64,
}

impl Membership {
    /// True if the certificate has expired: no region accepts it any more.
    #[must_use]
    pub const fn has_ended(&self, now_unix_ms: i64) -> bool {
        self.not_after_unix_ms <= now_unix_ms
    }
}

/// The reason why the identity cannot be read or made.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file cannot be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    /// A file is damaged.
    #[error("{0}: {1}; restore it, or remove the directory and enrol again")]
    Damaged(PathBuf, String),
    /// A key, certificate or JSON file could not be made.
    #[error("making the rack's key or certificate failed: {0}")]
    Crypto(String),
}

/// The rack's key and its membership.
#[derive(Debug)]
pub struct Identity {
    dir: PathBuf,
    key: KeyPair,
    /// The SHA-256 of the public key's SubjectPublicKeyInfo, lower-case hexadecimal: the value of `basalt.spki`.
    pub spki_sha256: String,
}

impl Identity {
    /// Reads `DIR/identity`, and makes the key if there is none.
    ///
    /// # Errors
    /// `IdentityError`: a file cannot be read or written, or the key is damaged.
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

    /// The TLS settings of the agent endpoint.
    ///
    /// # Errors
    /// `IdentityError::Crypto`: the certificate cannot be made.
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

    /// A certificate request, DER (PKCS#10).
    ///
    /// # Errors
    /// `IdentityError::Crypto`: the request cannot be made.
    pub fn certificate_request(&self, name: &str) -> Result<Vec<u8>, IdentityError> {
        let params = CertificateParams::new(vec![name.to_owned()]).map_err(crypto)?;
        Ok(params.serialize_request(&self.key).map_err(crypto)?.der().to_vec())
    }

    /// Stores the answer to the enrolment.
    ///
    /// # Errors
    /// `IdentityError`: a file cannot be written.
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

    /// Stores a renewed certificate for the same key from the same CA.
    ///
    /// # Errors
    /// `IdentityError`: a file cannot be written.
    pub fn renew(&self, membership: &Membership, certificate: &[u8]) -> Result<(), IdentityError> {
        self.write("certificate.der", certificate)?;
        self.keep(membership)
    }

    /// Stores a changed membership.
    ///
    /// # Errors
    /// `IdentityError`: the file cannot be written.
    pub fn keep(&self, membership: &Membership) -> Result<(), IdentityError> {
        self.write("rack.json", &serde_json::to_vec_pretty(membership).map_err(crypto)?)
    }

    /// True if the rack of a data directory has enrolled.
    #[must_use]
    pub fn has_joined(data_dir: &Path) -> bool {
        data_dir.join("identity/rack.json").exists()
    }

    /// The membership, if this rack has enrolled.
    ///
    /// # Errors
    /// `IdentityError`: a file is damaged or cannot be read.
    pub fn membership(&self) -> Result<Option<Membership>, IdentityError> {
        let Some(json) = self.read("rack.json")? else { return Ok(None) };
        let damaged =
            |error: serde_json::Error| IdentityError::Damaged(self.dir.join("rack.json"), error.to_string());
        serde_json::from_slice(&json).map(Some).map_err(damaged)
    }

    /// The TLS settings towards regions, with this rack's certificate.
    ///
    /// # Errors
    /// `IdentityError`: the rack has not enrolled, or its files are damaged.
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
