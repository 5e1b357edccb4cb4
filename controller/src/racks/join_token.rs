//! The join token, which a person carries to a new rack. It names the regions and pins their authority, and can be used once.

use std::sync::Arc;
use std::time::Duration;

use basalt_db::{Actor, Store, StoreError};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

/// The default lifetime of a join token.
pub const LIFETIME: Duration = Duration::from_secs(3600);

/// A join token's content. Its text form is this as JSON, in base64url.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    /// The regions' URLs: `https://ADDRESS:5250`.
    pub urls: Vec<String>,
    /// SHA-256 of the authority's certificate, lower-case hex.
    pub ca_sha256: String,
    /// The secret, which is valid for one rack and for a limited time.
    pub secret: String,
}

impl JoinToken {
    /// The text form.
    #[must_use]
    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }
}

/// Makes join tokens.
#[derive(Clone, Debug)]
pub struct Joiner {
    store: Store,
    ca_sha256: String,
    urls: Vec<String>,
}

impl Joiner {
    /// A joiner for racks that dial `urls`.
    #[must_use]
    pub fn new(store: Store, ca: &CertificateDer<'_>, urls: Vec<String>) -> Self {
        let ca_sha256 = hex::encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, ca));
        Self { store, ca_sha256, urls }
    }

    /// The same joiner with an actor: its tokens appear in the audit log.
    #[must_use]
    pub fn acting(&self, actor: Arc<Actor>) -> Self {
        Self { store: self.store.acting(actor), ..self.clone() }
    }

    /// The URLs at which racks reach regions. Empty if this region listens on every address, and so does not know its own.
    #[must_use]
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// A new token that names `urls`, for a rack of this name or of any.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn make(
        &self,
        rack: Option<&str>,
        lifetime: Duration,
        urls: Vec<String>,
    ) -> Result<JoinToken, StoreError> {
        let mut secret = [0; 24];
        aws_lc_rs::rand::fill(&mut secret)
            .map_err(|_| StoreError::Corrupt("the system gives no random bytes".to_owned()))?;
        let secret = URL_SAFE_NO_PAD.encode(secret);
        self.store.put_join_secret(&secret, rack, lifetime).await?;
        Ok(JoinToken { urls, ca_sha256: self.ca_sha256.clone(), secret })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_base64url_of_json() {
        let token = JoinToken {
            urls: vec!["https://10.0.0.1:5250".into()],
            ca_sha256: "ab".into(),
            secret: "s".into(),
        };
        let bytes = URL_SAFE_NO_PAD.decode(token.encode()).unwrap();
        assert_eq!(serde_json::from_slice::<JoinToken>(&bytes).unwrap(), token);
    }
}
