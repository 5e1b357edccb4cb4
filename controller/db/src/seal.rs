//! Secrets at rest: AES-256-GCM under a key that is never in the database.

use crate::StoreError;
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use basalt_api::values::Uid;
use std::fmt;
use zeroize::Zeroizing;

/// The key that seals and opens secrets. All regions of one database have the same.
pub struct SealKey {
    cipher: RandomizedNonceKey,
    marks: hmac::Key,
    registry: Zeroizing<[u8; 32]>,
    bmc_setup: hmac::Key,
}

/// The label from which the key for marks is derived.
const MARKS: &[u8] = b"basalt marks of plans";
/// The label from which the key of the provider's registry is derived.
const REGISTRY: &[u8] = b"basalt registry of the provider";
/// The label of the key from which the keys for passwords of BMCs are derived.
const BMC_SETUP: &[u8] = b"basalt passwords of BMCs";

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(…)")
    }
}

/// The key has another length than 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a seal key is 32 bytes, this one has {0}")]
pub struct BadSealKey(pub usize);

impl SealKey {
    /// Makes a key from 32 random bytes.
    ///
    /// # Errors
    /// Fails if there are not 32 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, BadSealKey> {
        let cipher = RandomizedNonceKey::new(&AES_256_GCM, bytes).map_err(|_| BadSealKey(bytes.len()))?;
        let source = hmac::Key::new(hmac::HMAC_SHA256, bytes);
        let marks = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&source, MARKS).as_ref());
        let mut registry = Zeroizing::new([0; 32]);
        registry.copy_from_slice(hmac::sign(&source, REGISTRY).as_ref());
        let bmc_setup = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&source, BMC_SETUP).as_ref());
        Ok(Self { cipher, marks, registry, bmc_setup })
    }

    /// Generates the bytes of a new key.
    ///
    /// # Errors
    /// Fails if the system gives no random bytes.
    pub fn generate() -> Result<Zeroizing<[u8; 32]>, StoreError> {
        let mut bytes = Zeroizing::new([0; 32]);
        aws_lc_rs::rand::fill(bytes.as_mut_slice())
            .map_err(|_| StoreError::Corrupt("the system gives no random bytes".to_owned()))?;
        Ok(bytes)
    }

    /// A keyed digest. It tells texts apart; without the key, it reveals nothing about them.
    pub(crate) fn mark(&self, text: &[u8]) -> [u8; 32] {
        let mut mark = [0; 32];
        mark.copy_from_slice(hmac::sign(&self.marks, text).as_ref());
        mark
    }

    /// The seed of the key with which the provider's registry signs.
    pub(crate) fn registry(&self) -> &[u8; 32] {
        &self.registry
    }

    /// An X25519 private key; each text gives another one.
    pub(crate) fn bmc_setup(&self, text: &[u8]) -> Zeroizing<[u8; 32]> {
        let mut key = Zeroizing::new([0; 32]);
        key.copy_from_slice(hmac::sign(&self.bmc_setup, text).as_ref());
        key
    }

    /// Returns nonce || ciphertext || tag. The place is authenticated too: a sealed text cannot be used at another place.
    pub(crate) fn seal(&self, place: &Place<'_>, plaintext: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut body = plaintext.to_vec();
        let nonce = self
            .cipher
            .seal_in_place_append_tag(Aad::from(place.bytes()), &mut body)
            .map_err(|_| place.error())?;
        let mut sealed = nonce.as_ref().to_vec();
        sealed.append(&mut body);
        Ok(sealed)
    }

    pub(crate) fn open(&self, place: &Place<'_>, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let (nonce, body) = sealed.split_at_checked(NONCE_LEN).ok_or_else(|| place.error())?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| place.error())?;
        let mut body = Zeroizing::new(body.to_vec());
        let length = self
            .cipher
            .open_in_place(nonce, Aad::from(place.bytes()), &mut body)
            .map_err(|_| place.error())?
            .len();
        body.truncate(length);
        Ok(body)
    }
}

/// The place of a sealed text: its object, and the pointer in it.
pub(crate) struct Place<'a> {
    pub(crate) object: Uid,
    pub(crate) pointer: &'a str,
}

impl Place<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.object.get().as_bytes().to_vec();
        bytes.extend_from_slice(self.pointer.as_bytes());
        bytes
    }

    fn error(&self) -> StoreError {
        StoreError::Seal { pointer: self.pointer.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_text_opens_only_at_its_own_place_and_with_its_own_key() {
        let key = SealKey::new(&[7; 32]).unwrap();
        let (here, there) = (Uid::generate(), Uid::generate());
        let sealed = key.seal(&Place { object: here, pointer: "/bmc/password" }, b"hunter2").unwrap();
        assert!(!sealed.windows(7).any(|w| w == b"hunter2"));
        let open = |key: &SealKey, object, pointer| {
            key.open(&Place { object, pointer }, &sealed).map(|p| p.to_vec())
        };
        assert_eq!(open(&key, here, "/bmc/password").unwrap(), b"hunter2");
        assert!(open(&key, there, "/bmc/password").is_err());
        assert!(open(&key, here, "/bmc/username").is_err());
        assert!(open(&SealKey::new(&[8; 32]).unwrap(), here, "/bmc/password").is_err());
        assert!(key.open(&Place { object: here, pointer: "" }, b"short").is_err());
        assert_eq!(SealKey::new(&[0; 31]).unwrap_err(), BadSealKey(31));
    }
}
