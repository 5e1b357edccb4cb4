//! Sealing of secrets that a machine makes for the region, by HPKE (RFC 9180: base mode, X25519, HKDF-SHA256, AES-256-GCM). Racks and
//! databases carry and store a sealed secret, and cannot read it.

use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256;
use rustls::crypto::hpke::{EncapsulatedSecret, Hpke, HpkePrivateKey, HpkePublicKey};
use thiserror::Error;

/// Bytes of a key, and of the encapsulated key at the start of a sealed text.
pub const KEY: usize = 32;

const SUITE: &dyn Hpke = DH_KEM_X25519_HKDF_SHA256_AES_256;

/// A text cannot be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SealingError {
    /// The key is no X25519 key.
    #[error("the key to seal with is no X25519 key of {KEY} bytes")]
    Key,
    /// The text was sealed for another key or purpose, or is damaged.
    #[error("the sealed text was made for another key or for another purpose, or it is damaged")]
    Text,
}

/// Seals `text` for the owner of the private key to `public`. [`open`] needs the same `purpose`.
///
/// # Errors
/// [`SealingError::Key`]
pub fn seal(public: &[u8], purpose: &str, text: &[u8]) -> Result<Vec<u8>, SealingError> {
    let public = HpkePublicKey(public.to_vec());
    let sealed = SUITE.seal(purpose.as_bytes(), &[], text, &public);
    let (secret, text) = sealed.map_err(|_| SealingError::Key)?;
    Ok([secret.0, text].concat())
}

/// Opens a text that [`seal`] made.
///
/// # Errors
/// [`SealingError::Text`]
pub fn open(private: &[u8], purpose: &str, sealed: &[u8]) -> Result<Vec<u8>, SealingError> {
    let (secret, text) = sealed.split_at_checked(KEY).ok_or(SealingError::Text)?;
    let private = HpkePrivateKey::from(private.to_vec());
    SUITE
        .open(&EncapsulatedSecret(secret.to_vec()), purpose.as_bytes(), &[], text, &private)
        .map_err(|_| SealingError::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_private_key_opens_it_and_only_for_its_purpose() {
        let (public, private) = SUITE.generate_key_pair().unwrap();
        let sealed = seal(&public.0, "attempt 7", b"hunter2").unwrap();
        assert_eq!(open(private.secret_bytes(), "attempt 7", &sealed).unwrap(), b"hunter2");
        assert_eq!(open(private.secret_bytes(), "attempt 8", &sealed), Err(SealingError::Text));
        let (_, other) = SUITE.generate_key_pair().unwrap();
        assert_eq!(open(other.secret_bytes(), "attempt 7", &sealed), Err(SealingError::Text));
        assert_eq!(open(private.secret_bytes(), "attempt 7", &sealed[..20]), Err(SealingError::Text));
        assert_eq!(seal(&[1; 5], "attempt 7", b"hunter2"), Err(SealingError::Key));
    }
}
