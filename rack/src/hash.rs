//! SHA-256, as the rack uses it to name files and blobs.

use std::fs::File;
use std::io::{self, Read};

use aws_lc_rs::digest;

/// The number of bytes read at once.
const CHUNK: usize = 256 << 10;

/// The SHA-256 of the bytes.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    out
}

/// The SHA-256 of a file from its current position on, in hexadecimal.
///
/// # Errors
/// `io::Error`: the file cannot be read.
pub fn of_file(mut file: &File) -> io::Result<String> {
    let (mut hash, mut buffer) = (digest::Context::new(&digest::SHA256), vec![0; CHUNK]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex::encode(hash.finish())),
            count => hash.update(buffer.get(..count).unwrap_or_default()),
        }
    }
}

/// True if the text is a SHA-256 in the rack's form: 64 lower-case hexadecimal digits.
#[must_use]
pub fn is_sha256_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
