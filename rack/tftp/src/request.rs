//! The first datagram of a transfer: which file, how, or why not.

use bytes::{BufMut, Bytes, BytesMut};

use crate::packet::{ErrorCode, OptionList, Packet};

/// Longest path that is looked up.
const MAX_PATH: usize = 255;
/// Longest file that is translated, in bytes. Each transfer of one needs a copy of its own, up to twice as long; files that are
/// larger than this are no texts.
pub const MAX_NETASCII: usize = 64 << 10;

/// How the file's bytes travel (RFC 1350 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As they are.
    Octet,
    /// Lines end with CR LF, a lone CR becomes CR NUL (RFC 764).
    Netascii,
}

impl Mode {
    /// The bytes on the wire for a file; `None` for one longer than [`MAX_NETASCII`] that would have to be translated.
    #[must_use]
    pub fn encode(self, content: Bytes) -> Option<Bytes> {
        if self == Self::Octet {
            return Some(content);
        }
        if content.len() > MAX_NETASCII {
            return None;
        }
        let mut out = BytesMut::with_capacity(content.len() + content.len() / 16);
        for &byte in &content {
            match byte {
                b'\n' => out.put_slice(b"\r\n"),
                b'\r' => out.put_slice(b"\r\0"),
                other => out.put_u8(other),
            }
        }
        Some(out.freeze())
    }
}

/// A file somebody wants to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    /// Relative, `/`-separated, without `.` and `..`: safe to join to a directory.
    pub path: String,
    /// How it travels.
    pub mode: Mode,
    /// Options, not negotiated yet.
    pub options: OptionList,
}

/// What to do with a first datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Send the file.
    Read(ReadRequest),
    /// Answer with this ERROR datagram.
    Refuse {
        /// The file asked for, as the client wrote it.
        file: String,
        /// Error code.
        code: ErrorCode,
        /// In words; also in the datagram.
        message: &'static str,
    },
    /// Not a request; say nothing, so that nothing can be made to bounce.
    Ignore,
}

/// Reads a datagram that came to the server's port.
#[must_use]
pub fn decide(datagram: &[u8]) -> Decision {
    let Ok(Packet::Request { write, file, mode, options }) = Packet::parse(datagram) else {
        return Decision::Ignore;
    };
    let refuse = |code, message| Decision::Refuse { file: file.to_owned(), code, message };
    if write {
        return refuse(ErrorCode::AccessViolation, "this server is read-only");
    }
    let mode = match mode {
        octet if octet.eq_ignore_ascii_case("octet") => Mode::Octet,
        ascii if ascii.eq_ignore_ascii_case("netascii") => Mode::Netascii,
        _ => return refuse(ErrorCode::IllegalOperation, "mode is neither octet nor netascii"),
    };
    match clean_path(file) {
        Some(path) => Decision::Read(ReadRequest { path, mode, options }),
        None => refuse(ErrorCode::AccessViolation, "not a file of this server"),
    }
}

/// `/a//b`, `a/./b` and `a\b` are `a/b`; nothing leads out of the root.
fn clean_path(file: &str) -> Option<String> {
    if file.len() > MAX_PATH || file.chars().any(char::is_control) {
        return None;
    }
    let mut parts = Vec::new();
    for part in file.split(['/', '\\']) {
        match part {
            "" | "." => {}
            ".." => return None,
            name => parts.push(name),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}
