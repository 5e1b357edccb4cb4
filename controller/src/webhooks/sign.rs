//! The signature of a delivery: HMAC-SHA256 as in the Standard Webhooks specification 1.0.0, "Signature scheme".

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// The beginning of a secret whose rest is base64.
const PREFIX: &[u8] = b"whsec_";

/// The key in a secret: the decoded bytes of `whsec_BASE64`, or the bytes of any other text.
fn key(secret: &[u8]) -> Zeroizing<Vec<u8>> {
    let decoded = secret.strip_prefix(PREFIX).and_then(|text| STANDARD.decode(text).ok());
    Zeroizing::new(decoded.unwrap_or_else(|| secret.to_vec()))
}

/// The signature `v1,BASE64` of id, timestamp and body, joined by full stops.
pub(super) fn signature(secret: &[u8], id: &str, timestamp: u64, body: &[u8]) -> String {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &key(secret)));
    context.update(format!("{id}.{timestamp}.").as_bytes());
    context.update(body);
    format!("v1,{}", STANDARD.encode(context.sign()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_secret_are_keys() {
        assert_eq!(key(b"whsec_AAECAw==").as_slice(), [0, 1, 2, 3]);
        assert_eq!(key(b"whsec_no base64").as_slice(), b"whsec_no base64");
        assert_eq!(key(b"plain").as_slice(), b"plain");
    }

    #[test]
    fn every_part_is_signed() {
        let whole = signature(b"k", "id", 7, b"body");
        assert!(whole.starts_with("v1,") && whole.len() == 3 + 44, "{whole}");
        for other in [
            signature(b"l", "id", 7, b"body"),
            signature(b"k", "ie", 7, b"body"),
            signature(b"k", "id", 8, b"body"),
            signature(b"k", "id", 7, b"bodx"),
        ] {
            assert_ne!(whole, other);
        }
    }
}
