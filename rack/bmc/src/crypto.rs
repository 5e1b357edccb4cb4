//! RAKP authentication codes, session keys, and the sealing of packets (§13.28-13.32).

use aws_lc_rs::cipher::{
    AES_128, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;
use zeroize::Zeroizing;

use crate::error::Failure;
use crate::suite::CipherSuite;

/// AES block and initialisation vector, in octets.
pub(crate) const BLOCK: usize = 16;

/// All inputs of the four RAKP codes.
pub(crate) struct Exchange<'a> {
    pub(crate) suite: &'static CipherSuite,
    /// K[UID], the user's password padded to 20 octets.
    pub(crate) key: &'a [u8],
    /// K[G], the key of the BMC. `None`: it is null.
    pub(crate) bmc_key: Option<&'a [u8]>,
    pub(crate) console_session: u32,
    pub(crate) bmc_session: u32,
    pub(crate) console_random: [u8; 16],
    pub(crate) bmc_random: [u8; 16],
    pub(crate) bmc_guid: [u8; 16],
    /// The role octet of RAKP 1 as sent: privilege and lookup flag.
    pub(crate) role: u8,
    pub(crate) username: &'a [u8],
}

impl Exchange<'_> {
    fn role_and_name(&self) -> Vec<u8> {
        let length = u8::try_from(self.username.len()).unwrap_or(u8::MAX);
        let mut bytes = vec![self.role, length];
        bytes.extend_from_slice(self.username);
        bytes
    }

    /// The code of RAKP 2: it proves that the BMC knows the password.
    pub(crate) fn rakp2_code(&self) -> Zeroizing<Vec<u8>> {
        mac(
            self.suite,
            self.key,
            &[
                &self.console_session.to_le_bytes(),
                &self.bmc_session.to_le_bytes(),
                &self.console_random,
                &self.bmc_random,
                &self.bmc_guid,
                &self.role_and_name(),
            ],
        )
    }

    /// The code of RAKP 3: it proves that the console knows the password.
    pub(crate) fn rakp3_code(&self) -> Zeroizing<Vec<u8>> {
        mac(
            self.suite,
            self.key,
            &[&self.bmc_random, &self.console_session.to_le_bytes(), &self.role_and_name()],
        )
    }

    /// The session integrity key (§13.31). If K[G] is null, K[UID] replaces it.
    fn session_integrity_key(&self) -> Zeroizing<Vec<u8>> {
        let key = self.bmc_key.unwrap_or(self.key);
        mac(self.suite, key, &[&self.console_random, &self.bmc_random, &self.role_and_name()])
    }

    /// The code of RAKP 4: it proves that the BMC derived the same key.
    pub(crate) fn rakp4_code(&self) -> Zeroizing<Vec<u8>> {
        let mut code = mac(
            self.suite,
            &self.session_integrity_key(),
            &[&self.console_random, &self.bmc_session.to_le_bytes(), &self.bmc_guid],
        );
        code.truncate(self.suite.tag_len);
        code
    }

    /// The keys K1 for integrity and K2 for confidentiality.
    pub(crate) fn session_keys(&self) -> Result<SessionKeys, Failure> {
        let sik = self.session_integrity_key();
        let k2 = mac(self.suite, &sik, &[&[2; 20]]);
        let aes = k2.first_chunk::<BLOCK>().ok_or(Failure::Crypto("session key too short"))?;
        Ok(SessionKeys {
            suite: self.suite,
            integrity: mac(self.suite, &sik, &[&[1; 20]]),
            confidentiality: Zeroizing::new(*aes),
        })
    }
}

/// Compares two codes in constant time.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    verify_slices_are_equal(a, b).is_ok()
}

fn mac(suite: &CipherSuite, key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let mut context = hmac::Context::with_key(&hmac::Key::new(*suite.hmac, key));
    for part in parts {
        context.update(part);
    }
    Zeroizing::new(context.sign().as_ref().to_vec())
}

/// The keys of one session; wiped when dropped.
pub(crate) struct SessionKeys {
    suite: &'static CipherSuite,
    integrity: Zeroizing<Vec<u8>>,
    confidentiality: Zeroizing<[u8; BLOCK]>,
}

impl SessionKeys {
    /// The length of a packet's authentication code, in octets.
    pub(crate) fn tag_len(&self) -> usize {
        self.suite.tag_len
    }

    /// The authentication code of a packet.
    pub(crate) fn tag(&self, packet: &[u8]) -> Zeroizing<Vec<u8>> {
        let mut tag = mac(self.suite, &self.integrity, &[packet]);
        tag.truncate(self.suite.tag_len);
        tag
    }

    /// Pads and encrypts a payload: IV, then blocks (§13.29).
    pub(crate) fn encrypt(&self, payload: &[u8], iv: [u8; BLOCK]) -> Result<Vec<u8>, Failure> {
        let broken = |_| Failure::Crypto("AES-CBC encryption");
        let mut blocks = payload.to_vec();
        let pad = (BLOCK - (payload.len() + 1) % BLOCK) % BLOCK;
        blocks.extend((1u8..).take(pad));
        blocks.push(u8::try_from(pad).unwrap_or(0));
        let key = UnboundCipherKey::new(&AES_128, self.confidentiality.as_ref()).map_err(broken)?;
        EncryptingKey::cbc(key)
            .and_then(|key| {
                key.less_safe_encrypt(&mut blocks, EncryptionContext::Iv128(FixedLength::from(iv)))
            })
            .map_err(broken)?;
        let mut out = iv.to_vec();
        out.extend_from_slice(&blocks);
        Ok(out)
    }

    /// Undoes [`SessionKeys::encrypt`]; `None` for a payload that no peer with these keys would send.
    pub(crate) fn decrypt(&self, payload: &[u8]) -> Option<Vec<u8>> {
        let (iv, blocks) = payload.split_first_chunk::<BLOCK>()?;
        if blocks.is_empty() || !blocks.len().is_multiple_of(BLOCK) {
            return None;
        }
        let mut blocks = blocks.to_vec();
        let key = UnboundCipherKey::new(&AES_128, self.confidentiality.as_ref()).ok()?;
        let key = DecryptingKey::cbc(key).ok()?;
        key.decrypt(&mut blocks, DecryptionContext::Iv128(FixedLength::from(*iv))).ok()?;
        let pad = usize::from(blocks.pop()?);
        let length = blocks.len().checked_sub(pad)?;
        let padding = blocks.get(length..)?;
        if pad >= BLOCK || !padding.iter().copied().eq((1u8..).take(pad)) {
            return None;
        }
        blocks.truncate(length);
        Some(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::SUITES;

    fn exchange(suite: &'static CipherSuite) -> Exchange<'static> {
        Exchange {
            suite,
            key: b"secret\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            bmc_key: None,
            console_session: 1,
            bmc_session: 2,
            console_random: [3; 16],
            bmc_random: [4; 16],
            bmc_guid: [5; 16],
            role: 0x14,
            username: b"admin",
        }
    }

    #[test]
    fn every_payload_length_survives_encryption() {
        for suite in &SUITES {
            let keys = exchange(suite).session_keys().unwrap();
            for length in 0..70 {
                let payload = vec![0xa5; length];
                let sealed = keys.encrypt(&payload, [7; 16]).unwrap();
                assert_eq!(sealed.len() % BLOCK, 0);
                assert_eq!(keys.decrypt(&sealed).as_deref(), Some(&payload[..]));
            }
        }
    }

    #[test]
    fn codes_have_the_suites_lengths_and_differ_by_purpose() {
        for suite in &SUITES {
            let exchange = exchange(suite);
            assert_eq!(exchange.rakp2_code().len(), suite.hmac.tag_len());
            assert_eq!(exchange.rakp3_code().len(), suite.hmac.tag_len());
            assert_eq!(exchange.rakp4_code().len(), suite.tag_len);
            assert_ne!(exchange.rakp2_code(), exchange.rakp3_code());
        }
    }

    #[test]
    fn a_short_or_wrongly_padded_payload_is_refused() {
        let keys = exchange(&SUITES[0]).session_keys().unwrap();
        assert_eq!(keys.decrypt(&[]), None);
        assert_eq!(keys.decrypt(&[0; 16]), None);
        assert_eq!(keys.decrypt(&[0; 31]), None);
        assert_eq!(keys.decrypt(&[0; 32]), None);
    }
}
