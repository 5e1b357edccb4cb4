//! The three secrets that a machine presents to a rack. All are derived from its attempt's key, so every rack that has
//! the boot concern can verify them by itself.
//!
//! | secret | stored in | bytes before base64url (no padding) |
//! | --- | --- | --- |
//! | [`BootToken`] | the kernel's command line | attempt u64, MAC, boot counter u64, expiry u64 (Unix ms), tag |
//! | [`Session`] | the agent's memory | attempt u64, MAC, boot counter u64, digest of boot id (16), tag |
//! | [`report`] | the installed system's disk | attempt u64, tag |
//!
//! Integers are big-endian. The tag is an HMAC-SHA256 with the attempt's key over a label, which differs for the three
//! secrets, and the bytes before the tag. For a report token it also covers the machine's uid.

use aws_lc_rs::{constant_time, hmac};
use basalt_dhcp::Mac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::hash::sha256;

const BOOT_LABEL: &[u8] = b"basalt boot token 1\0";
const SESSION_LABEL: &[u8] = b"basalt session 1\0";
const REPORT_LABEL: &[u8] = b"basalt report token 1\0";
const TAG: usize = 32;

/// The reason why a secret is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// The text is not the encoding of a token.
    #[error("not a token of this kind")]
    Malformed,
    /// The token was not made with this attempt's key, or was changed.
    #[error("the token was not made for this attempt")]
    Forged,
}

/// The token that the rack writes onto the kernel's command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootToken {
    /// The number of the attempt.
    pub attempt: u64,
    /// The hardware address of the interface that booted.
    pub mac: Mac,
    /// Rises with every boot of the machine in this attempt.
    pub boot: u64,
    /// Claims after this moment are refused. Unix milliseconds.
    pub expires_unix_ms: u64,
}

impl BootToken {
    /// Signs the token.
    #[must_use]
    pub fn mint(&self, attempt_key: &[u8]) -> String {
        seal(attempt_key, BOOT_LABEL, &self.bytes(), &[])
    }

    /// Reads a token without verifying it, to find the attempt and its key.
    ///
    /// # Errors
    /// `BadToken::Malformed`: the text is no token.
    pub fn peek(text: &str) -> Result<Self, BadToken> {
        let (fields, _) = open::<30>(text)?;
        let (attempt, rest) = take::<8>(&fields)?;
        let (mac, rest) = take::<6>(rest)?;
        let (boot, rest) = take::<8>(rest)?;
        let (expires, _) = take::<8>(rest)?;
        Ok(Self {
            attempt: u64::from_be_bytes(attempt),
            mac: Mac(mac),
            boot: u64::from_be_bytes(boot),
            expires_unix_ms: u64::from_be_bytes(expires),
        })
    }

    /// Reads a token and verifies its tag. The caller checks the expiry.
    ///
    /// # Errors
    /// `BadToken`: the token is malformed or forged.
    pub fn verify(text: &str, attempt_key: &[u8]) -> Result<Self, BadToken> {
        let token = Self::peek(text)?;
        check::<30>(text, attempt_key, BOOT_LABEL, &[])?;
        Ok(token)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(30);
        bytes.extend_from_slice(&self.attempt.to_be_bytes());
        bytes.extend_from_slice(&self.mac.0);
        bytes.extend_from_slice(&self.boot.to_be_bytes());
        bytes.extend_from_slice(&self.expires_unix_ms.to_be_bytes());
        bytes
    }
}

/// The digest of a boot id, as in sessions and the claim register.
pub type BootIdDigest = [u8; 16];

/// The digest of a boot id.
#[must_use]
pub fn boot_id_digest(boot_id: &str) -> BootIdDigest {
    let mut digest = [0; 16];
    for (to, from) in digest.iter_mut().zip(sha256(boot_id.as_bytes())) {
        *to = from;
    }
    digest
}

/// A session of an agent, opened by a claim. It belongs to one boot of one machine in one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// The number of the attempt.
    pub attempt: u64,
    /// The hardware address of the interface that booted.
    pub mac: Mac,
    /// The boot counter of the token in the claim.
    pub boot: u64,
    /// The digest of the claimant's boot id.
    pub boot_id: BootIdDigest,
}

impl Session {
    /// The session's bearer key. It is always the same for the same session.
    #[must_use]
    pub fn key(&self, attempt_key: &[u8]) -> String {
        let mut bytes = Vec::with_capacity(38);
        bytes.extend_from_slice(&self.attempt.to_be_bytes());
        bytes.extend_from_slice(&self.mac.0);
        bytes.extend_from_slice(&self.boot.to_be_bytes());
        bytes.extend_from_slice(&self.boot_id);
        seal(attempt_key, SESSION_LABEL, &bytes, &[])
    }

    /// Reads a key without verifying it.
    ///
    /// # Errors
    /// `BadToken::Malformed`: the text is no session key.
    pub fn peek(text: &str) -> Result<Self, BadToken> {
        let (fields, _) = open::<38>(text)?;
        let (attempt, rest) = take::<8>(&fields)?;
        let (mac, rest) = take::<6>(rest)?;
        let (boot, rest) = take::<8>(rest)?;
        let (boot_id, _) = take::<16>(rest)?;
        Ok(Self {
            attempt: u64::from_be_bytes(attempt),
            mac: Mac(mac),
            boot: u64::from_be_bytes(boot),
            boot_id,
        })
    }

    /// Reads a key and verifies its tag.
    ///
    /// # Errors
    /// `BadToken`: the key is malformed or forged.
    pub fn verify(text: &str, attempt_key: &[u8]) -> Result<Self, BadToken> {
        let session = Self::peek(text)?;
        check::<38>(text, attempt_key, SESSION_LABEL, &[])?;
        Ok(session)
    }
}

/// The token that lets the installed system report, and nothing else. The region puts it into the NoCloud seed.
pub mod report {
    use super::{BadToken, REPORT_LABEL, check, open, seal, take};

    /// Makes the token of an attempt.
    #[must_use]
    pub fn mint(attempt_key: &[u8], attempt: u64, machine_uid: &str) -> String {
        seal(attempt_key, REPORT_LABEL, &attempt.to_be_bytes(), machine_uid.as_bytes())
    }

    /// Reads the attempt number in a token without verifying it.
    ///
    /// # Errors
    /// `BadToken::Malformed`: the text is no report token.
    pub fn peek(text: &str) -> Result<u64, BadToken> {
        let (fields, _) = open::<8>(text)?;
        Ok(u64::from_be_bytes(take::<8>(&fields)?.0))
    }

    /// Verifies a token and returns its attempt number.
    ///
    /// # Errors
    /// `BadToken`: the token is malformed or forged.
    pub fn verify(text: &str, attempt_key: &[u8], machine_uid: &str) -> Result<u64, BadToken> {
        check::<8>(text, attempt_key, REPORT_LABEL, machine_uid.as_bytes())?;
        peek(text)
    }
}

fn tag(key: &[u8], label: &[u8], fields: &[u8], extra: &[u8]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    context.update(label);
    context.update(fields);
    context.update(extra);
    context.sign()
}

fn seal(key: &[u8], label: &[u8], fields: &[u8], extra: &[u8]) -> String {
    let mut bytes = fields.to_vec();
    bytes.extend_from_slice(tag(key, label, fields, extra).as_ref());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Splits a token into its `N` bytes of fields and its tag.
fn open<const N: usize>(text: &str) -> Result<(Vec<u8>, Vec<u8>), BadToken> {
    if text.len() > 256 {
        return Err(BadToken::Malformed);
    }
    let mut bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| BadToken::Malformed)?;
    if bytes.len() != N + TAG {
        return Err(BadToken::Malformed);
    }
    let tag = bytes.split_off(N);
    Ok((bytes, tag))
}

fn check<const N: usize>(text: &str, key: &[u8], label: &[u8], extra: &[u8]) -> Result<(), BadToken> {
    let (fields, given) = open::<N>(text)?;
    let expected = tag(key, label, &fields, extra);
    constant_time::verify_slices_are_equal(&given, expected.as_ref()).map_err(|_| BadToken::Forged)
}

fn take<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), BadToken> {
    let (head, rest) = bytes.split_first_chunk::<N>().ok_or(BadToken::Malformed)?;
    Ok((*head, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: [u8; 32] = [7; 32];

    fn token() -> BootToken {
        BootToken {
            attempt: 17,
            mac: Mac([0x52, 0x54, 0, 0, 0, 1]),
            boot: 1_700_000_000,
            expires_unix_ms: 1_700_000_900_000,
        }
    }

    #[test]
    fn what_was_minted_verifies_and_fits_a_command_line() {
        let text = token().mint(&KEY);
        assert_eq!(BootToken::verify(&text, &KEY), Ok(token()));
        assert_eq!(text.len(), 83);
        let session = Session { attempt: 17, mac: token().mac, boot: 3, boot_id: boot_id_digest("b") };
        assert_eq!(Session::verify(&session.key(&KEY), &KEY), Ok(session));
        assert_eq!(report::verify(&report::mint(&KEY, 17, "uid"), &KEY, "uid"), Ok(17));
    }

    #[test]
    fn a_report_token_is_the_one_that_the_region_writes_into_the_seed() {
        let token = report::mint(&KEY, 42, "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e");
        assert_eq!(token, "AAAAAAAAACp0F7q0MAMspJXQxL53Fl5S5PcQrk7cc_pBL-6KnGPrpg");
    }

    #[test]
    fn another_key_another_machine_or_another_kind_of_token_is_refused() {
        assert_eq!(BootToken::verify(&token().mint(&KEY), &[8; 32]), Err(BadToken::Forged));
        assert_eq!(report::verify(&report::mint(&KEY, 17, "uid"), &KEY, "other"), Err(BadToken::Forged));
        let report = report::mint(&KEY, 17, "uid");
        assert_eq!(BootToken::verify(&report, &KEY), Err(BadToken::Malformed));
        assert_eq!(Session::verify(&token().mint(&KEY), &KEY), Err(BadToken::Malformed));
    }

    proptest! {
        #[test]
        fn any_changed_bit_is_noticed(bit in 0usize..62 * 8) {
            let mut bytes = URL_SAFE_NO_PAD.decode(token().mint(&KEY)).unwrap();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let text = URL_SAFE_NO_PAD.encode(bytes);
            prop_assert_eq!(BootToken::verify(&text, &KEY), Err(BadToken::Forged));
        }

        #[test]
        fn no_text_panics(text in ".{0,300}") {
            let _ = BootToken::verify(&text, &KEY);
            let _ = Session::verify(&text, &KEY);
            let _ = report::verify(&text, &KEY, "uid");
        }
    }
}
