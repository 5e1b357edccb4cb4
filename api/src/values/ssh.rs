//! SSH public keys (RFC 4253 §6.6, RFC 5656 §3.1, RFC 8709 §4, OpenSSH's PROTOCOL.u2f), as a line of a `.pub` file.

use super::text::checked_text;
use super::{BadValue, quoted};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

checked_text! {
    /// An OpenSSH public key, one line, as in `authorized_keys` without options.
    SshPublicKey: SshPublicKey, check => line,
}

/// A part of a key after the algorithm's name.
enum Part {
    /// A field of this many bytes.
    Bytes(usize),
    /// The name of this curve.
    Curve(&'static str),
    /// An uncompressed point (SEC 1 §2.3.3) of this many bytes.
    Point(usize),
    /// A public exponent.
    Exponent,
    /// An RSA modulus.
    Modulus,
    /// The application that a security key was enrolled for.
    Application,
}

/// Current versions of sshd refuse shorter keys.
const LEAST_RSA_BITS: usize = 1024;

/// Algorithms that sshd accepts, and the parts of their keys.
const ALGORITHMS: [(&str, &[Part]); 7] = [
    ("ssh-ed25519", &[Part::Bytes(32)]),
    ("ssh-rsa", &[Part::Exponent, Part::Modulus]),
    ("ecdsa-sha2-nistp256", &[Part::Curve("nistp256"), Part::Point(65)]),
    ("ecdsa-sha2-nistp384", &[Part::Curve("nistp384"), Part::Point(97)]),
    ("ecdsa-sha2-nistp521", &[Part::Curve("nistp521"), Part::Point(133)]),
    ("sk-ssh-ed25519@openssh.com", &[Part::Bytes(32), Part::Application]),
    ("sk-ecdsa-sha2-nistp256@openssh.com", &[Part::Curve("nistp256"), Part::Point(65), Part::Application]),
];

/// The line without its end. A `.pub` file ends with a newline, and people pass the whole file.
pub(crate) const fn line(text: &str) -> &str {
    text.trim_ascii_end()
}

/// The canonical spelling of a key, for comparisons.
pub(crate) fn canonical(text: &str) -> Result<String, BadValue> {
    let line = line(text);
    check(line).map(|()| line.to_owned())
}

fn check(text: &str) -> Result<(), BadValue> {
    let hint = "one line of a .pub file, like \"ssh-ed25519 AAAA… me@example.com\"";
    // A private key is never repeated, not even in a message.
    if text.contains("PRIVATE KEY") {
        return Err(BadValue::new("this is a private key; it must not leave your machine", hint));
    }
    let bad = |why: String| BadValue::new(format!("{} is not an SSH public key: {why}", quoted(text)), hint);
    if text.contains(['\n', '\r']) {
        return Err(bad("it has several lines".to_owned()));
    }
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    let algorithm = words.next().unwrap_or_default();
    let Some((_, parts)) = ALGORITHMS.iter().find(|(name, _)| *name == algorithm) else {
        let names: Vec<&str> = ALGORITHMS.iter().map(|(name, _)| *name).collect();
        let why = format!("it begins with {}, and not with one of {}", quoted(algorithm), names.join(", "));
        return Err(bad(why));
    };
    let body = words.next().ok_or_else(|| bad("the key itself is missing".to_owned()))?;
    let wire = STANDARD.decode(body).map_err(|_| bad("the key itself is cut, or not base64".to_owned()))?;
    key(&wire, algorithm, parts).map_err(bad)
}

/// Checks that `wire` is a whole key of `algorithm` and nothing more.
fn key(wire: &[u8], algorithm: &str, parts: &[Part]) -> Result<(), String> {
    let (name, mut rest) = string(wire)?;
    if name != algorithm.as_bytes() {
        let inside = quoted(&String::from_utf8_lossy(name));
        return Err(format!("the line says {algorithm}, and the key itself {inside}"));
    }
    for part in parts {
        let (bytes, tail) = string(rest)?;
        rest = tail;
        match part {
            Part::Bytes(length) if bytes.len() != *length => {
                return Err(format!("its key has {} bytes instead of {length}", bytes.len()));
            }
            Part::Curve(curve) if bytes != curve.as_bytes() => {
                return Err(format!("it is on another curve than {curve}"));
            }
            Part::Point(length) if bytes.len() != *length || bytes.first() != Some(&4) => {
                return Err("its point is not one of the curve".to_owned());
            }
            Part::Exponent if bits(bytes) < 2 => return Err("its exponent is 0 or 1".to_owned()),
            Part::Modulus if bits(bytes) < LEAST_RSA_BITS => {
                return Err(format!("it has {} bits, and at least {LEAST_RSA_BITS} are safe", bits(bytes)));
            }
            Part::Application if bytes.is_empty() => return Err("it names no application".to_owned()),
            _ => {}
        }
    }
    if rest.is_empty() { Ok(()) } else { Err(format!("{} bytes follow the key", rest.len())) }
}

/// A string of the wire format (RFC 4251 §5), and the bytes after it.
fn string(wire: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let cut = || "the key itself is cut".to_owned();
    let (length, rest) = wire.split_first_chunk::<4>().ok_or_else(cut)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| cut())?;
    rest.split_at_checked(length).ok_or_else(cut)
}

/// Bits of a positive number in two's complement.
fn bits(number: &[u8]) -> usize {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let Some(first) = number.get(zeros) else { return 0 };
    let whole = number.len().saturating_sub(zeros).saturating_mul(8);
    whole.saturating_sub(usize::try_from(first.leading_zeros()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pub_line(algorithm: &str, parts: &[&[u8]]) -> String {
        let mut wire = Vec::new();
        for part in [algorithm.as_bytes()].iter().chain(parts) {
            wire.extend(u32::try_from(part.len()).unwrap().to_be_bytes());
            wire.extend(*part);
        }
        format!("{algorithm} {} me@example.com", STANDARD.encode(wire))
    }

    fn why(text: &str) -> String {
        check(text).unwrap_err().message
    }

    #[test]
    fn keys_of_every_algorithm_are_taken() {
        let point = |length: usize| [&[4][..], &vec![7; length - 1]].concat();
        let modulus = [&[0][..], &[0xff; 256]].concat();
        for good in [
            pub_line("ssh-ed25519", &[&[1; 32]]),
            pub_line("ssh-rsa", &[&[1, 0, 1], &modulus]),
            pub_line("ecdsa-sha2-nistp256", &[b"nistp256", &point(65)]),
            pub_line("ecdsa-sha2-nistp384", &[b"nistp384", &point(97)]),
            pub_line("ecdsa-sha2-nistp521", &[b"nistp521", &point(133)]),
            pub_line("sk-ssh-ed25519@openssh.com", &[&[1; 32], b"ssh:"]),
            pub_line("sk-ecdsa-sha2-nistp256@openssh.com", &[b"nistp256", &point(65), b"ssh:"]),
        ] {
            assert_eq!(check(&good), Ok(()), "{good}");
        }
    }

    #[test]
    fn a_whole_pub_file_is_the_key_in_it() {
        let key = pub_line("ssh-ed25519", &[&[1; 32]]);
        for file in [format!("{key}\n"), format!("{key}\r\n"), format!("{key} \t\n\n")] {
            assert_eq!(canonical(&file).as_ref(), Ok(&key), "{file:?}");
            assert_eq!(
                file.parse::<SshPublicKey>().map(|key| key.to_string()).as_ref(),
                Ok(&key),
                "{file:?}"
            );
        }
        assert!(canonical(&format!("{key}\n{key}\n")).unwrap_err().message.contains("several lines"));
    }

    #[test]
    fn what_is_wrong_with_a_key_is_said() {
        assert!(why("-----BEGIN OPENSSH PRIVATE KEY-----").contains("private key"));
        assert!(why("").contains("not with one of ssh-ed25519"));
        assert!(why("ssh-dss AAAA").contains(r#"begins with "ssh-dss""#));
        assert!(why("ssh-ed25519").contains("is missing"));
        assert!(why("ssh-ed25519 x!z").contains("not base64"));
        assert!(why("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA==").contains("is cut"));
        assert!(why("ssh-rsa AAAA\nssh-rsa AAAA").contains("several lines"));
        let renamed = pub_line("ssh-ed25519", &[&[1; 32]]).replace("ssh-ed25519 ", "ssh-rsa ");
        assert!(why(&renamed).contains(r#"says ssh-rsa, and the key itself "ssh-ed25519""#));
        assert!(why(&pub_line("ssh-ed25519", &[&[1; 31]])).contains("31 bytes instead of 32"));
        assert!(why(&pub_line("ssh-ed25519", &[&[1; 32], b"x"])).contains("5 bytes follow"));
        assert!(why(&pub_line("ssh-rsa", &[&[3], &[0x7f; 64]])).contains("511 bits"));
        assert!(why(&pub_line("ecdsa-sha2-nistp256", &[b"nistp384", &[4; 65]])).contains("another curve"));
        assert!(why(&pub_line("ecdsa-sha2-nistp256", &[b"nistp256", &[2; 65]])).contains("point"));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for length in 0..64 {
            let text = format!("ssh-ed25519 {}", STANDARD.encode(vec![0xff; length]));
            assert!(check(&text).is_err());
        }
    }
}
