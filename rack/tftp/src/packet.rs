//! TFTP datagrams (RFC 1350 §5, RFC 2347).

/// The longest request that is read, in bytes (RFC 2347 §2).
pub const MAX_REQUEST: usize = 512;
/// The most options accepted; all RFCs together define fewer.
const MAX_OPTIONS: usize = 16;

const RRQ: u16 = 1;
const WRQ: u16 = 2;
const DATA: u16 = 3;
const ACK: u16 = 4;
const ERROR: u16 = 5;
const OACK: u16 = 6;

/// The reason why a datagram is not TFTP.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The datagram ends too early.
    #[error("the datagram of {0} bytes is incomplete")]
    Incomplete(usize),
    /// The operation code is unknown.
    #[error("operation {0} is not one of TFTP's")]
    Operation(u16),
    /// A string is not UTF-8.
    #[error("a file name, mode or option is not text")]
    NotText,
    /// The request is longer than [`MAX_REQUEST`], or has more than 16 options.
    #[error("the request is too long")]
    TooLong,
}

/// Error codes (RFC 1350 appendix, RFC 2347).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// Code 0: the message describes the error.
    Undefined,
    /// Code 1: the server has no such file.
    FileNotFound,
    /// Code 2: the server does not allow the access.
    AccessViolation,
    /// Code 3: disk full or allocation exceeded.
    DiskFull,
    /// Code 4: the operation is not allowed here.
    IllegalOperation,
    /// Code 5: the sender does not take part in this transfer.
    UnknownTransferId,
    /// Code 6: the file to write exists already.
    FileExists,
    /// Code 7: the server does not know the user.
    NoSuchUser,
    /// Code 8: the client refuses the options.
    OptionNegotiation,
    /// A code that no RFC defines.
    Other(u16),
}

const CODES: [ErrorCode; 9] = [
    ErrorCode::Undefined,
    ErrorCode::FileNotFound,
    ErrorCode::AccessViolation,
    ErrorCode::DiskFull,
    ErrorCode::IllegalOperation,
    ErrorCode::UnknownTransferId,
    ErrorCode::FileExists,
    ErrorCode::NoSuchUser,
    ErrorCode::OptionNegotiation,
];

impl From<u16> for ErrorCode {
    fn from(code: u16) -> Self {
        CODES.get(usize::from(code)).copied().unwrap_or(Self::Other(code))
    }
}

impl From<ErrorCode> for u16 {
    fn from(code: ErrorCode) -> Self {
        match code {
            ErrorCode::Other(code) => code,
            known => (0..).zip(CODES).find(|(_, it)| *it == known).map_or(0, |(number, _)| number),
        }
    }
}

/// Options by name, in the order they came. Names are compared without case (RFC 2347 §2).
pub type OptionList = Vec<(String, String)>;

/// A decoded datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A request to read or write.
    Request {
        /// It is a write request.
        write: bool,
        /// The file as the client wrote it.
        file: &'a str,
        /// `octet`, `netascii` or something else, as the client wrote it.
        mode: &'a str,
        /// The requested options.
        options: OptionList,
    },
    /// DATA: one block of the file.
    Data {
        /// The number of the block, modulo 65536.
        block: u16,
        /// The bytes of the block.
        data: &'a [u8],
    },
    /// ACK: an acknowledgement.
    Ack {
        /// The last block received in order.
        block: u16,
    },
    /// ERROR: the end of a transfer.
    Error {
        /// The error code.
        code: ErrorCode,
        /// The message for people.
        message: &'a str,
    },
    /// OACK: the options that a server grants.
    Oack {
        /// The names and granted values.
        options: OptionList,
    },
}

impl<'a> Packet<'a> {
    /// Decodes a datagram.
    ///
    /// # Errors
    /// `Malformed`: the fault in the datagram.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let incomplete = Malformed::Incomplete(datagram.len());
        let (operation, body) = split_u16(datagram).ok_or_else(|| incomplete.clone())?;
        match operation {
            RRQ | WRQ => {
                if datagram.len() > MAX_REQUEST {
                    return Err(Malformed::TooLong);
                }
                let mut body = body;
                let file = string(&mut body)?.ok_or_else(|| incomplete.clone())?;
                let mode = string(&mut body)?.ok_or(incomplete)?;
                Ok(Self::Request { write: operation == WRQ, file, mode, options: options(body)? })
            }
            DATA => {
                let (block, data) = split_u16(body).ok_or(incomplete)?;
                Ok(Self::Data { block, data })
            }
            ACK => Ok(Self::Ack { block: split_u16(body).ok_or(incomplete)?.0 }),
            ERROR => {
                let (code, text) = split_u16(body).ok_or(incomplete)?;
                // Some clients omit the NUL, or the message. Only the code matters.
                let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
                Ok(Self::Error { code: code.into(), message: std::str::from_utf8(text).unwrap_or("") })
            }
            OACK => Ok(Self::Oack { options: options(body)? }),
            other => Err(Malformed::Operation(other)),
        }
    }

    /// Encodes the datagram.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Request { write, file, mode, options } => {
                number(if *write { WRQ } else { RRQ }, &mut out);
                put_strings(&mut out, [*file, *mode]);
                put_options(&mut out, options);
            }
            Self::Data { block, data } => {
                out.reserve(4 + data.len());
                number(DATA, &mut out);
                number(*block, &mut out);
                out.extend_from_slice(data);
            }
            Self::Ack { block } => {
                number(ACK, &mut out);
                number(*block, &mut out);
            }
            Self::Error { code, message } => {
                number(ERROR, &mut out);
                number((*code).into(), &mut out);
                put_strings(&mut out, [*message]);
            }
            Self::Oack { options } => {
                number(OACK, &mut out);
                put_options(&mut out, options);
            }
        }
        out
    }

    /// An ERROR datagram.
    #[must_use]
    pub fn error(code: ErrorCode, message: &str) -> Vec<u8> {
        Packet::Error { code, message }.encode()
    }
}

fn split_u16(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<2>()?;
    Some((u16::from_be_bytes(*number), rest))
}

/// The next NUL-terminated string; `None` when there is none.
fn string<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a str>, Malformed> {
    let Some(end) = bytes.iter().position(|&byte| byte == 0) else { return Ok(None) };
    let Some((text, rest)) = bytes.split_at_checked(end) else { return Ok(None) };
    *bytes = rest.split_first().map_or(&[], |(_, rest)| rest);
    std::str::from_utf8(text).map(Some).map_err(|_| Malformed::NotText)
}

/// Pairs of strings. Padding and an incomplete pair at the end are ignored: some ROMs send them.
fn options(mut bytes: &[u8]) -> Result<OptionList, Malformed> {
    let mut list = OptionList::new();
    while let Some(name) = string(&mut bytes)? {
        if name.is_empty() {
            break;
        }
        let Some(value) = string(&mut bytes)? else { break };
        if list.len() == MAX_OPTIONS {
            return Err(Malformed::TooLong);
        }
        list.push((name.to_owned(), value.to_owned()));
    }
    Ok(list)
}

fn number(value: u16, out: &mut Vec<u8>) {
    out.extend(value.to_be_bytes());
}

fn put_strings<'a>(out: &mut Vec<u8>, texts: impl IntoIterator<Item = &'a str>) {
    for text in texts {
        out.extend(text.bytes().filter(|&byte| byte != 0));
        out.push(0);
    }
}

fn put_options(out: &mut Vec<u8>, options: &OptionList) {
    put_strings(out, options.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]));
}
