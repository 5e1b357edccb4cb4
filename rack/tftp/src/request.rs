//! The first datagram of a transfer: the file and mode that it asks for, or the reason to refuse it.

use bytes::{BufMut, Bytes, BytesMut};

use crate::packet::{ErrorCode, OptionList, Packet};

/// The longest path that is looked up, in bytes.
const MAX_PATH: usize = 255;
/// The longest file that is translated to netascii, in bytes. Each such transfer needs its own copy of the file, up to
/// twice as long. Longer files are not text.
pub const MAX_NETASCII: usize = 64 << 10;

/// The encoding of the file's bytes (RFC 1350 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The bytes unchanged.
    Octet,
    /// Lines end with CR LF, and a lone CR becomes CR NUL (RFC 764).
    Netascii,
}

impl Mode {
    /// The bytes to send for a file; `None` for a file that must be translated and is longer than [`MAX_NETASCII`].
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

/// A request to read a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    /// Relative, `/`-separated, without `.` and `..`: safe to join to a directory.
    pub path: String,
    /// The encoding of its bytes.
    pub mode: Mode,
    /// The requested options, before negotiation.
    pub options: OptionList,
}

/// The decision about a first datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Send the file.
    Read(ReadRequest),
    /// Answer with this ERROR datagram.
    Refuse {
        /// The requested file, as the client wrote it.
        file: String,
        /// The error code to send.
        code: ErrorCode,
        /// The message for people; also in the datagram.
        message: &'static str,
    },
    /// No request. Send nothing, so that the server cannot be used to reflect traffic.
    Ignore,
}

/// Decides about a datagram that came to the server's port.
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

/// Cleans a path: `/a//b`, `a/./b` and `a\b` become `a/b`. A path that leads out of the root is refused.
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
