//! Passwords of people: argon2id hashes (RFC 9106, its second recommended cost: 19 MiB, two passes).
//!
//! Nobody needs a password in the clear, so its hash is sealed in its place. Otherwise passwords are like other secrets: the same
//! password again keeps its revision, and reads return the read form.

use crate::StoreError;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use zeroize::Zeroizing;

/// The secrets that are hashed, by kind and pointer.
const HASHED: [(&str, &str); 1] = [("User", "/password")];

/// True if specs of this kind have hashed secrets.
pub(crate) fn has_hashed(kind: &str) -> bool {
    HASHED.iter().any(|(hashed, _)| *hashed == kind)
}

/// True if this secret is stored as its hash.
pub(crate) fn is_hashed(kind: &str, pointer: &str) -> bool {
    HASHED.contains(&(kind, pointer))
}

fn argon2id() -> Argon2<'static> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::DEFAULT)
}

/// The hash of a password with a new salt, as a PHC string.
///
/// # Errors
/// Fails if the system gives no random bytes.
pub fn hash_password(plain: &[u8]) -> Result<Zeroizing<String>, StoreError> {
    let failed =
        |what: &dyn std::fmt::Display| StoreError::Corrupt(format!("a password cannot be hashed: {what}"));
    let mut salt = [0; 16];
    aws_lc_rs::rand::fill(&mut salt).map_err(|e| failed(&e))?;
    let salt = SaltString::encode_b64(&salt).map_err(|e| failed(&e))?;
    let hash = argon2id().hash_password(plain, &salt).map_err(|e| failed(&e))?;
    Ok(Zeroizing::new(hash.to_string()))
}

/// True if `hash` was made from this password. The check takes tens of milliseconds of CPU time, whatever the result.
#[must_use]
pub fn verify_password(plain: &[u8], hash: &str) -> bool {
    PasswordHash::new(hash).is_ok_and(|hash| argon2id().verify_password(plain, &hash).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_argon2id_salted_and_verifies_its_password_alone() {
        let hash = hash_password(b"correct horse").unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", *hash);
        assert_ne!(*hash, *hash_password(b"correct horse").unwrap());
        assert!(verify_password(b"correct horse", &hash));
        assert!(!verify_password(b"battery staple", &hash) && !verify_password(b"correct horse", "garbage"));
    }
}
