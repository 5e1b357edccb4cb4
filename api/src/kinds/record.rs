//! The data of DNS records, type by type, in the presentation form of their RFCs.

use crate::values::{BadValue, dns_target, quoted};
use basalt_api_derive::Model;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum RecordType {
    /// IPv4 address (RFC 1035 §3.4.1).
    #[field(name = "A")]
    A,
    /// IPv6 address (RFC 3596).
    #[field(name = "AAAA")]
    Aaaa,
    /// Alias of another name (RFC 1035 §3.3.1).
    #[field(name = "CNAME")]
    Cname,
    /// Mail server of a domain (RFC 1035 §3.3.9).
    #[field(name = "MX")]
    Mx,
    /// Any text (RFC 1035 §3.3.14).
    #[field(name = "TXT")]
    Txt,
    /// Host and port of a service (RFC 2782).
    #[field(name = "SRV")]
    Srv,
    /// Name server of a zone (RFC 1035 §3.3.11).
    #[field(name = "NS")]
    Ns,
    /// Name of an address (RFC 1035 §3.3.12).
    #[field(name = "PTR")]
    Ptr,
    /// Authority that may issue certificates for the name (RFC 8659).
    #[field(name = "CAA")]
    Caa,
    /// Fingerprint of an SSH host key (RFC 4255).
    #[field(name = "SSHFP")]
    Sshfp,
}

/// The data of a record. `Display` writes it in one form, regardless of the spelling that was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecordData {
    /// The address of a record of type A.
    A(Ipv4Addr),
    /// The address of a record of type AAAA.
    Aaaa(Ipv6Addr),
    /// The target of a record of type CNAME, NS or PTR: an absolute name, with its final dot.
    Name(String),
    /// The data of a record of type MX.
    Mx {
        /// Clients try the server with the lowest preference first.
        preference: u16,
        /// Name of the mail server.
        exchange: String,
    },
    /// The text of a record of type TXT.
    Txt(String),
    /// The data of a record of type SRV.
    Srv {
        /// Clients try the target with the lowest priority first.
        priority: u16,
        /// The share of the target among the targets of the same priority.
        weight: u16,
        /// Port of the service.
        port: u16,
        /// Host of the service; `.` if there is no such service.
        target: String,
    },
    /// The data of a record of type CAA.
    Caa {
        /// 128: an issuer that does not know the tag must not issue.
        flags: u8,
        /// `issue`, `issuewild`, `iodef`, …
        tag: String,
        /// The tag's value.
        value: String,
    },
    /// The data of a record of type SSHFP.
    Sshfp {
        /// Number of the key's algorithm.
        algorithm: u8,
        /// Number of the fingerprint's algorithm.
        digest: u8,
        /// The fingerprint, in hexadecimal.
        fingerprint: String,
    },
}

/// Most bytes of the text of a TXT record. On the wire, each chunk of 255 bytes costs one more byte.
const LONGEST_TXT: usize = 4000;

/// Key algorithms of SSHFP: RSA, DSA, ECDSA, Ed25519, Ed448 (RFC 4255 §3.1.1, RFC 6594, RFC 7479, RFC 8709).
const SSHFP_ALGORITHMS: [u8; 5] = [1, 2, 3, 4, 6];

/// Fingerprint algorithms of SSHFP, and their length in bytes: SHA-1, SHA-256.
const SSHFP_DIGESTS: [(u8, usize); 2] = [(1, 20), (2, 32)];

impl RecordData {
    /// Reads the data of a record of type `rtype`.
    ///
    /// # Errors
    /// The text is no data of this type. The error has a hint with the right form.
    pub fn read(rtype: RecordType, text: &str) -> Result<Self, BadValue> {
        match rtype {
            RecordType::A => address(rtype, text, "like 10.77.0.10").map(Self::A),
            RecordType::Aaaa => address(rtype, text, "like 2001:db8::10").map(Self::Aaaa),
            RecordType::Cname | RecordType::Ns | RecordType::Ptr => host(rtype, text).map(Self::Name),
            RecordType::Mx => mx(text),
            RecordType::Txt => txt(text),
            RecordType::Srv => srv(text),
            RecordType::Caa => caa(text),
            RecordType::Sshfp => sshfp(text),
        }
    }
}

impl fmt::Display for RecordData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::A(ip) => ip.fmt(f),
            Self::Aaaa(ip) => ip.fmt(f),
            Self::Name(text) | Self::Txt(text) => f.write_str(text),
            Self::Mx { preference, exchange } => write!(f, "{preference} {exchange}"),
            Self::Srv { priority, weight, port, target } => write!(f, "{priority} {weight} {port} {target}"),
            Self::Caa { flags, tag, value } => write!(f, "{flags} {tag} \"{value}\""),
            Self::Sshfp { algorithm, digest, fingerprint } => write!(f, "{algorithm} {digest} {fingerprint}"),
        }
    }
}

fn bad(rtype: RecordType, text: &str, why: &str, hint: &str) -> BadValue {
    BadValue::new(format!("{} is not the data of a record of type {rtype}: {why}", quoted(text)), hint)
}

fn address<A: FromStr>(rtype: RecordType, text: &str, hint: &str) -> Result<A, BadValue> {
    text.parse().map_err(|_| bad(rtype, text, "it is no such address", hint))
}

/// Reads the name of a host. The root is refused.
fn host(rtype: RecordType, text: &str) -> Result<String, BadValue> {
    match dns_target(text)? {
        root if root == "." => Err(bad(rtype, text, "the root is no host", "like www.example.com")),
        name => Ok(name),
    }
}

/// Splits a text into exactly `N` words.
fn words<'a, const N: usize>(rtype: RecordType, text: &'a str, hint: &str) -> Result<[&'a str; N], BadValue> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let why = format!("it has {} words instead of {N}", words.len());
    words.try_into().map_err(|_| bad(rtype, text, &why, hint))
}

fn number<N: FromStr>(rtype: RecordType, text: &str, word: &str, hint: &str) -> Result<N, BadValue> {
    let why = || bad(rtype, text, &format!("{word:?} is not a number that fits there"), hint);
    if !word.bytes().all(|b| b.is_ascii_digit()) {
        return Err(why());
    }
    word.parse().map_err(|_| why())
}

fn mx(text: &str) -> Result<RecordData, BadValue> {
    const HINT: &str = "preference and mail server, like 10 mail.example.com";
    let [preference, exchange] = words(RecordType::Mx, text, HINT)?;
    let preference = number(RecordType::Mx, text, preference, HINT)?;
    // RFC 7505: `0 .` declares that the domain accepts no mail.
    Ok(RecordData::Mx { preference, exchange: dns_target(exchange)? })
}

fn srv(text: &str) -> Result<RecordData, BadValue> {
    const HINT: &str = "priority, weight, port and host, like 0 5 443 www.example.com";
    let [priority, weight, port, target] = words(RecordType::Srv, text, HINT)?;
    let number = |word| number(RecordType::Srv, text, word, HINT);
    Ok(RecordData::Srv {
        priority: number(priority)?,
        weight: number(weight)?,
        port: number(port)?,
        target: dns_target(target)?,
    })
}

fn txt(text: &str) -> Result<RecordData, BadValue> {
    match text.len() {
        0 => Err(bad(RecordType::Txt, text, "it is empty", "any text, without quotes around it")),
        1..=LONGEST_TXT => Ok(RecordData::Txt(text.to_owned())),
        length => {
            let why = format!("it has {length} bytes");
            Err(bad(RecordType::Txt, text, &why, &format!("at most {LONGEST_TXT} bytes")))
        }
    }
}

fn caa(text: &str) -> Result<RecordData, BadValue> {
    const HINT: &str = "flags, tag and quoted value, like 0 issue \"ca.example.com\"";
    let bad = |why: &str| bad(RecordType::Caa, text, why, HINT);
    let (flags, rest) = text.split_once(' ').ok_or_else(|| bad("it has no tag"))?;
    let (tag, value) = rest.split_once(' ').ok_or_else(|| bad("it has no value"))?;
    let flags: u8 = number(RecordType::Caa, text, flags, HINT)?;
    if tag.is_empty() || tag.len() > 15 || !tag.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Err(bad("its tag is not 1 to 15 letters and digits"));
    }
    let value = value.strip_prefix('"').map_or(Some(value), |v| v.strip_suffix('"'));
    match value.filter(|v| !v.contains('"') && v.is_ascii()) {
        Some(value) => Ok(RecordData::Caa { flags, tag: tag.to_ascii_lowercase(), value: value.to_owned() }),
        None => Err(bad("its value is not ASCII text in one pair of quotes")),
    }
}

fn sshfp(text: &str) -> Result<RecordData, BadValue> {
    const HINT: &str = "as ssh-keygen -r prints it: algorithm, 1 or 2, and the fingerprint in hexadecimal";
    let bad = |why: &str| bad(RecordType::Sshfp, text, why, HINT);
    let [algorithm, digest, fingerprint] = words(RecordType::Sshfp, text, HINT)?;
    let number = |word| number::<u8>(RecordType::Sshfp, text, word, HINT);
    let (algorithm, digest) = (number(algorithm)?, number(digest)?);
    if !SSHFP_ALGORITHMS.contains(&algorithm) {
        return Err(bad("there is no such key algorithm"));
    }
    let Some((_, bytes)) = SSHFP_DIGESTS.iter().find(|(number, _)| *number == digest) else {
        return Err(bad("there is no such fingerprint algorithm"));
    };
    let is_hex = fingerprint.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_hex || fingerprint.len() != 2 * bytes {
        return Err(bad(&format!("its fingerprint is not {} hexadecimal digits", 2 * bytes)));
    }
    Ok(RecordData::Sshfp { algorithm, digest, fingerprint: fingerprint.to_ascii_lowercase() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_every_type_prints_in_one_form() {
        let sha1 = "AB".repeat(20);
        let cases = [
            (RecordType::A, "10.0.0.1", "10.0.0.1"),
            (RecordType::Aaaa, "2001:DB8:0::1", "2001:db8::1"),
            (RecordType::Cname, "WWW.example.com", "www.example.com."),
            (RecordType::Ns, "ns1.example.com.", "ns1.example.com."),
            (RecordType::Ptr, "host.example.com", "host.example.com."),
            (RecordType::Mx, "10  Mail.example.com", "10 mail.example.com."),
            (RecordType::Mx, "0 .", "0 ."),
            (RecordType::Txt, "v=spf1 -all", "v=spf1 -all"),
            (RecordType::Srv, "0 5 443 www.example.com", "0 5 443 www.example.com."),
            (RecordType::Caa, "0 issue \"ca.example.com\"", "0 issue \"ca.example.com\""),
            (RecordType::Caa, "128 Issue ca.example.com", "128 issue \"ca.example.com\""),
            (RecordType::Sshfp, &format!("4 1 {sha1}"), &format!("4 1 {}", sha1.to_lowercase())),
        ];
        for (rtype, text, printed) in cases {
            let data = RecordData::read(rtype, text).unwrap_or_else(|bad| panic!("{rtype} {text}: {bad}"));
            assert_eq!(data.to_string(), printed);
            assert_eq!(RecordData::read(rtype, printed), Ok(data), "what was printed can be read");
        }
    }

    #[test]
    fn data_of_another_type_is_refused_with_what_would_be_right() {
        let cases = [
            (RecordType::A, "2001:db8::1"),
            (RecordType::A, "10.0.0.0/24"),
            (RecordType::Aaaa, "10.0.0.1"),
            (RecordType::Cname, "10.0.0.1"),
            (RecordType::Cname, "."),
            (RecordType::Ns, "a b"),
            (RecordType::Ptr, ""),
            (RecordType::Mx, "mail.example.com"),
            (RecordType::Mx, "65536 mail.example.com"),
            (RecordType::Mx, "+1 mail.example.com"),
            (RecordType::Txt, ""),
            (RecordType::Srv, "0 5 www.example.com"),
            (RecordType::Srv, "0 5 70000 www.example.com"),
            (RecordType::Caa, "0 issue"),
            (RecordType::Caa, "0 is-sue x"),
            (RecordType::Caa, "0 issue \"a\"b\""),
            (RecordType::Caa, "0 issue \"a"),
            (RecordType::Sshfp, "5 1 00"),
            (RecordType::Sshfp, "4 3 00"),
            (RecordType::Sshfp, "4 1 00"),
        ];
        for (rtype, text) in cases {
            let bad = RecordData::read(rtype, text).expect_err(text);
            assert!(!bad.hint.is_empty() && bad.message.contains('"'), "{bad:?}");
        }
        assert!(RecordData::read(RecordType::Txt, &"x".repeat(4001)).is_err());
    }
}
