//! The join token: `base64url(JSON {"urls": […], "ca_sha256": HEX, "secret": …})`. A region makes it; it is used once.

use base64::Engine;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

/// A join token's content.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    /// The regions: `https://HOST:PORT` or `HOST:PORT`.
    pub urls: Vec<String>,
    /// The SHA-256 of the CA's certificate (DER), hexadecimal.
    pub ca_sha256: String,
    /// The one-time secret that the region exchanges for a certificate.
    pub secret: String,
}

impl std::fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinToken")
            .field("urls", &self.urls)
            .field("ca_sha256", &self.ca_sha256)
            .finish_non_exhaustive()
    }
}

/// The reason why a text is not a join token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadJoinToken {
    /// The text is cut off, or is something else.
    #[error("the join token is not complete; copy it again from the region")]
    Malformed,
    /// A URL in the token has another form than `https://HOST:PORT`.
    #[error("the join token names region {0:?}, which is not https://HOST:PORT")]
    Url(String),
    /// The fingerprint in the token is not a SHA-256.
    #[error("the join token's CA fingerprint is not a SHA-256")]
    Fingerprint,
}

impl JoinToken {
    /// Parses a token.
    ///
    /// # Errors
    /// `BadJoinToken`: the first fault found.
    pub fn parse(text: &str) -> Result<Self, BadJoinToken> {
        let text = text.trim();
        let json = URL_SAFE_NO_PAD
            .decode(text)
            .or_else(|_| URL_SAFE.decode(text))
            .map_err(|_| BadJoinToken::Malformed)?;
        let mut token: Self = serde_json::from_slice(&json).map_err(|_| BadJoinToken::Malformed)?;
        token.urls = token.urls.iter().map(|url| address(url)).collect::<Result<_, _>>()?;
        token.ca_sha256.make_ascii_lowercase();
        if !crate::hash::is_sha256_hex(&token.ca_sha256) {
            return Err(BadJoinToken::Fingerprint);
        }
        if token.urls.is_empty() || token.secret.is_empty() {
            return Err(BadJoinToken::Malformed);
        }
        Ok(token)
    }

    /// The token as a region hands it out.
    #[must_use]
    pub fn render(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }
}

/// The `HOST:PORT` of a region, in any of its forms.
///
/// # Errors
/// `BadJoinToken::Url`: the text is no address.
pub fn address(url: &str) -> Result<String, BadJoinToken> {
    basalt_proto::region::address(url).ok_or_else(|| BadJoinToken::Url(url.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_region_makes() {
        let token = JoinToken {
            urls: vec!["https://10.0.0.1:5250/".into(), "region-b:5251".into()],
            ca_sha256: "A".repeat(64),
            secret: "s3cret".into(),
        };
        let read = JoinToken::parse(&token.render()).unwrap();
        assert_eq!(read.urls, ["10.0.0.1:5250", "region-b:5251"]);
        assert_eq!((read.ca_sha256, read.secret.as_str()), ("a".repeat(64), "s3cret"));
        assert!(!format!("{token:?}").contains("s3cret"));
    }

    #[test]
    fn says_what_is_wrong() {
        let good = JoinToken { urls: vec!["a:1".into()], ca_sha256: "a".repeat(64), secret: "x".into() };
        assert_eq!(JoinToken::parse("nonsense!"), Err(BadJoinToken::Malformed));
        assert_eq!(JoinToken::parse(&good.render()[..20]), Err(BadJoinToken::Malformed));
        let parse = |token: JoinToken| JoinToken::parse(&token.render()).unwrap_err();
        assert_eq!(
            parse(JoinToken { urls: vec!["http//x".into()], ..good.clone() }),
            BadJoinToken::Url("http//x".into())
        );
        assert_eq!(parse(JoinToken { ca_sha256: "zz".into(), ..good.clone() }), BadJoinToken::Fingerprint);
        assert_eq!(parse(JoinToken { secret: String::new(), ..good }), BadJoinToken::Malformed);
    }
}
