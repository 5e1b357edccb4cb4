//! Headers of requests: Host, and Authorization of an account.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::HeaderValue;
use zeroize::Zeroizing;

/// The header Host of this host and port (RFC 9110 §7.2).
pub(crate) fn authority(host: &str, port: u16, default: u16) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port == default { host } else { format!("{host}:{port}") }
}

/// The header Authorization of HTTP Basic authentication (RFC 7617).
#[must_use]
pub fn basic(username: &str, password: &str) -> Option<HeaderValue> {
    let pair = Zeroizing::new(format!("{username}:{password}"));
    secret(&Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes()))))
}

/// The header Authorization of a bearer token (RFC 6750 §2.1). None: the token has characters that a header cannot have.
#[must_use]
pub fn bearer(token: &str) -> Option<HeaderValue> {
    secret(&Zeroizing::new(format!("Bearer {token}")))
}

fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
