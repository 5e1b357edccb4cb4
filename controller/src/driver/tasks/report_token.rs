//! The token that an installed system reports itself with: made here, put into its NoCloud seed, verified by racks.
//!
//! base64url of: attempt (u64, big-endian), HMAC-SHA256 with the attempt's key of a label, the attempt, the machine's uid.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const LABEL: &[u8] = b"basalt report token 1\0";

/// Makes the token of an attempt.
#[must_use]
pub(crate) fn mint(attempt_key: &[u8], attempt: u64, machine_uid: &str) -> String {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, attempt_key));
    let mut bytes = attempt.to_be_bytes().to_vec();
    context.update(LABEL);
    context.update(&bytes);
    context.update(machine_uid.as_bytes());
    bytes.extend_from_slice(context.sign().as_ref());
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    /// Worked out by another implementation of HMAC-SHA256.
    #[test]
    fn is_what_racks_verify() {
        assert_eq!(
            super::mint(&[7; 32], 42, "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e"),
            "AAAAAAAAACp0F7q0MAMspJXQxL53Fl5S5PcQrk7cc_pBL-6KnGPrpg"
        );
    }
}
