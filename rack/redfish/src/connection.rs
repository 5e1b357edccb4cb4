//! One HTTP/1.1 connection to the web server of a BMC, with or without TLS. [`Session`](crate::Session) uses it, and so
//! do drivers for other protocols over HTTP.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::header::authority;

/// A web server, and its TLS settings.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Its host name or address; IPv6 without brackets.
    pub host: String,
    /// The address to connect to. `None`: resolve the host name.
    pub at: Option<IpAddr>,
    /// The TCP port of the web server.
    pub port: u16,
    /// The TLS settings, with the trusted certificates. `None`: HTTP without TLS.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

/// The reason why no connection was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The TCP connection or the TLS handshake failed.
    #[error("{0}")]
    Unreachable(String),
    /// The verifier refuses the certificate, for this reason.
    #[error("{0}")]
    Certificate(String),
}

/// The reason why an answer is incomplete.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The connection broke.
    #[error("{0}")]
    Connection(String),
    /// The body is larger than this many bytes.
    #[error("it is larger than {0} bytes")]
    TooLarge(usize),
}

impl Endpoint {
    /// The header Host (RFC 9110 §7.2), without the default port of the scheme.
    #[must_use]
    pub fn authority(&self) -> String {
        authority(&self.host, self.port, if self.tls.is_some() { 443 } else { 80 })
    }

    /// Connects, with TLS if the endpoint has it. Sends no request.
    ///
    /// # Errors
    /// [`ConnectError`], after `within` at the latest.
    pub async fn connect(&self, within: Duration) -> Result<SendRequest<Full<Bytes>>, ConnectError> {
        let connected = timeout(within, self.handshake()).await;
        connected.unwrap_or_else(|_| {
            let seconds = within.as_secs_f64();
            Err(ConnectError::Unreachable(format!("no connection within {seconds:.1} s")))
        })
    }

    async fn handshake(&self) -> Result<SendRequest<Full<Bytes>>, ConnectError> {
        let unreachable = |error: std::io::Error| ConnectError::Unreachable(causes(&error));
        let stream = match self.at {
            Some(address) => TcpStream::connect((address, self.port)).await,
            None => TcpStream::connect((self.host.as_str(), self.port)).await,
        };
        let stream = stream.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let Some(tls) = &self.tls else { return serve(stream).await };
        let name = ServerName::try_from(self.host.clone());
        let name = name.map_err(|error| unreachable(std::io::Error::other(error)))?;
        let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await;
        serve(stream.map_err(|error| refused(&error).unwrap_or_else(|| unreachable(error)))?).await
    }
}

async fn serve<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, ConnectError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let opened = http1::handshake(TokioIo::new(stream)).await;
    let (link, connection) = opened.map_err(|error| ConnectError::Unreachable(causes(&error)))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a BMC ended early");
        }
    });
    Ok(link)
}

/// The verifier's reason, if its refusal ended the handshake.
fn refused(error: &std::io::Error) -> Option<ConnectError> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    match error {
        rustls::Error::InvalidCertificate(rustls::CertificateError::Other(own)) => {
            Some(ConnectError::Certificate(own.to_string()))
        }
        rustls::Error::InvalidCertificate(why) => Some(ConnectError::Certificate(why.to_string())),
        _ => None,
    }
}

/// Sends a request. Returns when the head of the answer has arrived.
///
/// # Errors
/// [`AnswerError::Connection`].
pub async fn send(
    link: &mut SendRequest<Full<Bytes>>,
    request: http::Request<Full<Bytes>>,
) -> Result<http::Response<Incoming>, AnswerError> {
    let broken = |error: hyper::Error| AnswerError::Connection(causes(&error));
    link.ready().await.map_err(broken)?;
    link.send_request(request).await.map_err(broken)
}

/// Reads the body of an answer, up to `most` bytes.
///
/// # Errors
/// [`AnswerError`].
pub async fn read(body: Incoming, most: usize) -> Result<Bytes, AnswerError> {
    let body = Limited::new(body, most).collect().await;
    let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
        Some(_) => AnswerError::TooLarge(most),
        None => AnswerError::Connection(causes(&*error)),
    })?;
    Ok(body.to_bytes())
}

/// An error and its causes in one line, each text once.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        source = cause.source();
    }
    text
}
