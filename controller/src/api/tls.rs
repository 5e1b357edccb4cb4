//! TLS on the API's port. The first byte of a connection shows if it uses TLS (RFC 8446 §5.1: a handshake record) or plain
//! HTTP.

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// The first byte of a TLS connection.
const HANDSHAKE_RECORD: u8 = 22;

/// The ALPN name of HTTP/2 over TLS (RFC 9113 §3.2).
pub(super) const HTTP2: &[u8] = b"h2";

/// The interval at which the files are checked: a renewed certificate replaces them.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The files of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// A PEM file: the certificate, then its issuers.
    pub certificate: PathBuf,
    /// A PEM file with the private key.
    pub key: PathBuf,
}

/// The reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {}, the setting {setting}: {message}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The setting that names it.
        setting: &'static str,
        /// The problem of the file.
        message: String,
    },
    /// Certificate and key do not belong together, or their type is not supported.
    #[error("the certificate in {} and the key in {} cannot be used: {message}", files.certificate.display(), files.key.display())]
    Unfit {
        /// The two files.
        files: CertificateFiles,
        /// The problem of the files.
        message: String,
    },
}

/// The API's certificate, read again when its files change.
#[derive(Debug)]
pub struct Certificate {
    files: CertificateFiles,
    shown: RwLock<Shown>,
}

#[derive(Debug)]
struct Shown {
    key: Arc<CertifiedKey>,
    /// The contents of the files from which it was read.
    read_from: (Vec<u8>, Vec<u8>),
}

impl Certificate {
    /// Reads certificate and key.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or if the two are no certificate and its key.
    pub fn open(files: CertificateFiles) -> Result<Arc<Self>, CertificateError> {
        let read_from = bytes(&files)?;
        let key = certified(&files, &read_from)?;
        Ok(Arc::new(Self { files, shown: RwLock::new(Shown { key, read_from }) }))
    }

    /// Reads the files again. Returns true if another certificate is used from now on.
    ///
    /// # Errors
    /// Fails if the new files cannot be used; the former certificate is then still used.
    pub fn look(&self) -> Result<bool, CertificateError> {
        let read_from = bytes(&self.files)?;
        if self.shown.read().unwrap_or_else(PoisonError::into_inner).read_from == read_from {
            return Ok(false);
        }
        let key = certified(&self.files, &read_from)?;
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = Shown { key, read_from };
        Ok(true)
    }

    /// Checks the files each minute until the region stops.
    pub async fn follow(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                _ = stopping.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let path = self.files.certificate.display();
            match self.look() {
                Ok(true) => tracing::info!(certificate = %path, "clients are shown another certificate"),
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "the certificate from before is shown still"),
            }
        }
    }

    /// The acceptor for TLS clients.
    pub(super) fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        // The first protocol that the client supports too (RFC 7301 §3.2).
        config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.shown.read().unwrap_or_else(PoisonError::into_inner).key))
    }
}

/// True if a connection begins with a TLS handshake. Waits for its first byte.
pub(super) async fn is_tls(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    Ok(stream.peek(&mut first).await? == 1 && first == [HANDSHAKE_RECORD])
}

fn bytes(files: &CertificateFiles) -> Result<(Vec<u8>, Vec<u8>), CertificateError> {
    let read = |path: &Path, setting| {
        std::fs::read(path).map_err(|error| CertificateError::File {
            path: path.to_owned(),
            setting,
            message: error.to_string(),
        })
    };
    Ok((read(&files.certificate, "tls-certificate")?, read(&files.key, "tls-key")?))
}

fn certified(
    files: &CertificateFiles,
    (certificate, key): &(Vec<u8>, Vec<u8>),
) -> Result<Arc<CertifiedKey>, CertificateError> {
    let unfit = |message: String| CertificateError::Unfit { files: files.clone(), message };
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| unfit(format!("the certificate: {error}")))?;
    if chain.is_empty() {
        return Err(unfit("the file holds no PEM certificate".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unfit(format!("the key: {error}")))?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map(Arc::new).map_err(|error| unfit(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(files: &CertificateFiles) -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        std::fs::write(&files.certificate, &certificate).expect("a file");
        std::fs::write(&files.key, &key).expect("a file");
        (certificate, key)
    }

    fn shown(certificate: &Certificate) -> Vec<u8> {
        certificate.shown.read().expect("no panic").key.cert.first().expect("a certificate").to_vec()
    }

    #[test]
    fn a_certificate_that_is_replaced_is_shown_and_one_that_cannot_be_used_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = CertificateFiles { certificate: dir.path().join("a.pem"), key: dir.path().join("a.key") };
        write(&files);
        let certificate = Certificate::open(files.clone()).expect("a pair");
        let first = shown(&certificate);
        assert!(!certificate.look().expect("the same pair"));

        let (_, key) = write(&files);
        assert!(certificate.look().expect("another pair"));
        let second = shown(&certificate);
        assert_ne!(first, second);

        write(&files);
        std::fs::write(&files.key, key).expect("a file");
        let error = certificate.look().expect_err("of two pairs");
        assert!(error.to_string().contains("a.key"), "{error}");
        std::fs::write(&files.certificate, "no PEM").expect("a file");
        certificate.look().expect_err("no certificate");
        std::fs::remove_file(&files.certificate).expect("it is there");
        assert!(certificate.look().expect_err("no file").to_string().contains("tls-certificate"));
        assert_eq!(shown(&certificate), second, "the one before is shown still");
    }
}
