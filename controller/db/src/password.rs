//! Passwords of people: argon2id hashes (RFC 9106, its second recommended cost: 19 MiB, two passes).
//!
//! A password is a secret that nobody ever needs in the clear, so what is sealed in its place is its hash. Everything else is as
//! for other secrets: the same password again keeps its revision, and reads show the read form.

use crate::StoreError;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use zeroize::Zeroizing;

/// Secrets that are hashed: kind and pointer.
const HASHED: [(&str, &str); 1] = [("User", "/password")];

/// Whether specs of this kind have such secrets.
pub(crate) fn has_hashed(kind: &str) -> bool {
    HASHED.iter().any(|(hashed, _)| *hashed == kind)
}

/// Whether a secret is kept as its hash.
pub(crate) fn is_hashed(kind: &str, pointer: &str) -> bool {
    HASHED.contains(&(kind, pointer))
}

fn argon2id() -> Argon2<'static> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::DEFAULT)
}

/// The hash of a password with a salt of its own, as a PHC string.
///
/// # Errors
/// The system has no randomness.
pub fn hash_password(plain: &[u8]) -> Result<Zeroizing<String>, StoreError> {
    let failed =
        |what: &dyn std::fmt::Display| StoreError::Corrupt(format!("a password cannot be hashed: {what}"));
    let mut salt = [0; 16];
    aws_lc_rs::rand::fill(&mut salt).map_err(|e| failed(&e))?;
    let salt = SaltString::encode_b64(&salt).map_err(|e| failed(&e))?;
    let hash = argon2id().hash_password(plain, &salt).map_err(|e| failed(&e))?;
    Ok(Zeroizing::new(hash.to_string()))
}

/// Whether a password is the one that `hash` was made of. Takes tens of milliseconds of a processor, whatever the answer.
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
