//! Cipher suites as data (IPMI 2.0 §22.15.2, table 22-20; suite 17 by its 2013 errata).
//!
//! A suite is a row: three algorithm numbers for the wire, the HMAC behind them, and the length of the codes. Suites
//! without integrity or confidentiality (0, 1, 2, 6, 7, …) are left out on purpose: a BMC that offers only those is
//! refused.

use aws_lc_rs::hmac;

/// One row of the table of cipher suites.
pub struct CipherSuite {
    /// The suite's number, as in `ipmitool -C`.
    pub id: u8,
    /// The names of its algorithms.
    pub name: &'static str,
    /// RAKP authentication algorithm (table 13-17).
    pub(crate) authentication: u8,
    /// Integrity algorithm (table 13-18).
    pub(crate) integrity: u8,
    /// Confidentiality algorithm (table 13-19).
    pub(crate) confidentiality: u8,
    /// The hash behind authentication, integrity and key derivation.
    pub(crate) hmac: &'static hmac::Algorithm,
    /// The length of the truncated codes, in octets: RAKP 4's and each packet's.
    pub(crate) tag_len: usize,
}

/// Every supported suite.
pub static SUITES: [CipherSuite; 2] = [
    CipherSuite {
        id: 3,
        name: "RAKP-HMAC-SHA1, HMAC-SHA1-96, AES-CBC-128",
        authentication: 0x01,
        integrity: 0x01,
        confidentiality: 0x01,
        hmac: &hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        tag_len: 12,
    },
    CipherSuite {
        id: 17,
        name: "RAKP-HMAC-SHA256, HMAC-SHA256-128, AES-CBC-128",
        authentication: 0x03,
        integrity: 0x04,
        confidentiality: 0x01,
        hmac: &hmac::HMAC_SHA256,
        tag_len: 16,
    },
];

impl CipherSuite {
    /// Suite 3, which every IPMI 2.0 BMC must have.
    #[must_use]
    pub fn suite_3() -> &'static Self {
        let [three, _] = &SUITES;
        three
    }

    /// Suite 17, the first with SHA-256.
    #[must_use]
    pub fn suite_17() -> &'static Self {
        let [_, seventeen] = &SUITES;
        seventeen
    }

    /// The suite with this number, if it is supported.
    #[must_use]
    pub fn by_id(id: u8) -> Option<&'static Self> {
        SUITES.iter().find(|suite| suite.id == id)
    }

    /// The three algorithm numbers of an Open Session payload.
    pub(crate) fn algorithms(&self) -> [u8; 3] {
        [self.authentication, self.integrity, self.confidentiality]
    }

    /// The suite with exactly these algorithms. A mixture of two suites is refused.
    pub(crate) fn by_algorithms(algorithms: [u8; 3]) -> Option<&'static Self> {
        SUITES.iter().find(|suite| suite.algorithms() == algorithms)
    }
}

impl std::fmt::Debug for CipherSuite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CipherSuite({})", self.id)
    }
}

impl PartialEq for CipherSuite {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for CipherSuite {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mixture_of_two_suites_is_no_suite() {
        assert_eq!(CipherSuite::by_algorithms([1, 1, 1]).map(|s| s.id), Some(3));
        assert_eq!(CipherSuite::by_algorithms([3, 4, 1]).map(|s| s.id), Some(17));
        assert!(CipherSuite::by_algorithms([3, 1, 1]).is_none());
        assert!(CipherSuite::by_algorithms([0, 0, 0]).is_none());
    }
}
