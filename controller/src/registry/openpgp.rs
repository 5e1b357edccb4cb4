//! Detached OpenPGP signatures (RFC 4880, Ed25519 as in RFC 9580 §5.2.3.3.3), as far as Terraform needs them from a registry: it
//! refuses checksums without a signature.
//!
//! Key and signatures are computed from the seed alone, so all regions of a database answer with the same bytes.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The creation time of key and signatures: 2026-01-01. They never expire, and can be trusted as much as the TLS connection that
/// they come through.
const MADE: u32 = 1_767_225_600;

const USER: &[u8] = b"Basalt region";

/// Packet tags (RFC 4880 §4.3).
const SIGNATURE: u8 = 2;
const PUBLIC_KEY: u8 = 6;
const USER_ID: u8 = 13;

/// Signature types (§5.2.1).
const OF_BYTES: u8 = 0x00;
const OF_USER: u8 = 0x13;

const EDDSA: u8 = 22;
const WITH_SHA256: u8 = 8;
const ED25519_OID: [u8; 10] = [9, 0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x0f, 0x01];

/// Subpackets of signatures (§5.2.3.1).
const CREATION_TIME: u8 = 2;
const ISSUER: u8 = 16;
const KEY_FLAGS: u8 = 27;
const ISSUER_FINGERPRINT: u8 = 33;
const MAY_CERTIFY_AND_SIGN: u8 = 0x03;

/// The key that signs checksums.
#[derive(Debug)]
pub(crate) struct Signer {
    pair: Ed25519KeyPair,
    /// The body of the public key's packet.
    public: Vec<u8>,
    fingerprint: [u8; 20],
}

impl Signer {
    /// The signer with 32 secret bytes.
    pub(crate) fn new(seed: &[u8; 32]) -> Result<Self, aws_lc_rs::error::KeyRejected> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed)?;
        let mut public = vec![4];
        public.extend(MADE.to_be_bytes());
        public.push(EDDSA);
        public.extend(ED25519_OID);
        public.extend(integer(&[&[0x40], pair.public_key().as_ref()].concat()));
        let mut fingerprint = [0; 20];
        fingerprint.copy_from_slice(digest(&SHA1_FOR_LEGACY_USE_ONLY, &of_key(&public)).as_ref());
        Ok(Self { pair, public, fingerprint })
    }

    /// The key's id, in the form in which programs show it.
    pub(crate) fn key_id(&self) -> String {
        hex::encode_upper(self.id())
    }

    fn id(&self) -> &[u8] {
        self.fingerprint.get(12..).unwrap_or_default()
    }

    /// The public key, in ASCII armour.
    pub(crate) fn public_key(&self) -> String {
        let mut user = of_key(&self.public);
        user.push(0xb4);
        user.extend(u32::try_from(USER.len()).unwrap_or(0).to_be_bytes());
        user.extend(USER);
        let mut packets = packet(PUBLIC_KEY, &self.public);
        packets.extend(packet(USER_ID, USER));
        packets.extend(self.signature(OF_USER, &[(KEY_FLAGS, &[MAY_CERTIFY_AND_SIGN])], &user));
        let text = STANDARD.encode(packets);
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        format!(
            "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{}\n-----END PGP PUBLIC KEY BLOCK-----\n",
            lines.join("\n")
        )
    }

    /// A detached signature of these bytes.
    pub(crate) fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        self.signature(OF_BYTES, &[], bytes)
    }

    /// A signature's packet (§5.2.3, §5.2.4).
    fn signature(&self, sort: u8, more: &[(u8, &[u8])], signed: &[u8]) -> Vec<u8> {
        let mut subpackets = subpacket(CREATION_TIME, &MADE.to_be_bytes());
        subpackets.extend(subpacket(ISSUER_FINGERPRINT, &[&[4], self.fingerprint.as_slice()].concat()));
        for (tag, content) in more {
            subpackets.extend(subpacket(*tag, content));
        }
        let mut body = vec![4, sort, EDDSA, WITH_SHA256];
        body.extend(counted(&subpackets));
        let mut hashed = signed.to_vec();
        hashed.extend(&body);
        hashed.extend([4, 0xff]);
        hashed.extend(u32::try_from(body.len()).unwrap_or(0).to_be_bytes());
        let hash = digest(&SHA256, &hashed);
        let signature = self.pair.sign(hash.as_ref());
        let (r, s) = signature.as_ref().split_at_checked(32).unwrap_or_default();
        body.extend(counted(&subpacket(ISSUER, self.id())));
        body.extend(hash.as_ref().iter().take(2));
        body.extend(integer(r));
        body.extend(integer(s));
        packet(SIGNATURE, &body)
    }
}

/// The bytes of a key that are hashed (§5.2.4, §12.2).
fn of_key(public: &[u8]) -> Vec<u8> {
    [&[0x99], counted(public).as_slice()].concat()
}

/// The bytes with their length in two bytes before them.
fn counted(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap_or(0);
    [length.to_be_bytes().as_slice(), bytes].concat()
}

/// A packet with a length of four bytes (§4.2.2.3).
fn packet(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap_or(0);
    [&[0xc0 | tag, 0xff], length.to_be_bytes().as_slice(), body].concat()
}

fn subpacket(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len().saturating_add(1)).unwrap_or(0);
    [&[length, tag], content].concat()
}

/// A multiprecision integer: its length in bits, and its bytes without leading zeros (§3.2).
fn integer(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let bytes = bytes.get(zeros..).unwrap_or_default();
    let unused = bytes.first().map_or(0, |first| first.leading_zeros());
    let bits = u32::try_from(bytes.len()).unwrap_or(0).saturating_mul(8).saturating_sub(unused);
    [u16::try_from(bits).unwrap_or(0).to_be_bytes().as_slice(), bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_begin_with_their_first_bit() {
        assert_eq!(integer(&[0, 0, 1, 255]), [0, 9, 1, 255]);
        assert_eq!(integer(&[0x40, 0]), [0, 15, 0x40, 0]);
        assert_eq!(integer(&[0, 0]), [0, 0]);
    }

    #[test]
    fn the_same_seed_signs_with_the_same_bytes_and_another_with_others() {
        let signers = [1, 1, 2].map(|seed| Signer::new(&[seed; 32]).unwrap());
        let [one, same, other] = signers.each_ref().map(|signer| (signer.public_key(), signer.sign(b"sums")));
        assert_eq!(one, same);
        assert_ne!(one.1, other.1);
        assert_ne!(signers[0].key_id(), signers[2].key_id());
    }
}
