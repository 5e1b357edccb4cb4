//! Passwords for BMCs. Vendors have rules that they do not document, so several forms are tried in turn.

use std::fs::File;
use std::io::{self, Read};

/// A form of passwords. Forms without special characters are tried first, since some BMCs refuse these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Characters. More than 16 need the longer form of IPMI 2.0 (§22.30).
    pub(super) length: usize,
    /// Two capital letters, two small ones, two digits and a special character at least, and no character twice in a row.
    pub(super) mixed: bool,
}

pub(super) const SHAPES: [Shape; 4] = [
    Shape { length: 15, mixed: false },
    Shape { length: 20, mixed: false },
    Shape { length: 15, mixed: true },
    Shape { length: 20, mixed: true },
];

const PLAIN: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// Special characters that no vendor forbids.
const SPECIAL: &[u8] = b"-_+=@";

/// A new password.
///
/// # Errors
/// The kernel cannot provide random bytes.
pub(super) fn random(shape: Shape) -> io::Result<String> {
    let mut source = File::open("/dev/urandom")?;
    loop {
        let mut password = String::with_capacity(shape.length);
        while password.len() < shape.length {
            let letters = if shape.mixed && password.len() % 5 == 4 { SPECIAL } else { PLAIN };
            password.push(char::from(pick(&mut source, letters)?));
        }
        if !shape.mixed || is_mixed(password.as_bytes()) {
            return Ok(password);
        }
    }
}

/// One of `letters`, with equal probability: random numbers beyond the last whole multiple are rejected.
fn pick(source: &mut impl Read, letters: &[u8]) -> io::Result<u8> {
    let whole = 256 - 256 % letters.len();
    loop {
        let mut drawn = [0];
        source.read_exact(&mut drawn)?;
        let [drawn] = drawn.map(usize::from);
        if let Some(letter) = letters.get(drawn % letters.len()).filter(|_| drawn < whole) {
            return Ok(*letter);
        }
    }
}

fn is_mixed(password: &[u8]) -> bool {
    let count = |class: fn(&u8) -> bool| password.iter().filter(|letter| class(letter)).count();
    count(u8::is_ascii_uppercase) >= 2
        && count(u8::is_ascii_lowercase) >= 2
        && count(u8::is_ascii_digit) >= 2
        && count(u8::is_ascii_punctuation) >= 1
        && password.windows(2).all(|pair| pair.first() != pair.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shape_keeps_its_promise() {
        for shape in SHAPES {
            let [one, two] = [random(shape).unwrap(), random(shape).unwrap()];
            assert_ne!(one, two);
            for password in [one, two] {
                assert_eq!(password.len(), shape.length);
                assert_eq!(is_mixed(password.as_bytes()) && shape.mixed, shape.mixed, "{password}");
            }
        }
    }
}
