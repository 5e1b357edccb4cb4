//! A parser for untrusted requests: the head of a plain request for a blob, and its range (RFC 9112, RFC 9110 §14.2).

use http::Method;

use super::conditions::Conditions;

/// The most header lines of such a request.
const HEADERS: usize = 32;

/// The kind of request that the bytes in a socket are.
#[derive(Debug, PartialEq, Eq)]
pub enum Head {
    /// A request that is answered here.
    Plain(Asked),
    /// The bytes so far may be the beginning of such a request.
    Unfinished,
    /// Another request, or no HTTP.
    Other,
}

/// A blob request that is answered here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The length of its head, in bytes.
    pub length: usize,
    /// GET or HEAD.
    pub method: Method,
    /// The SHA-256 of the blob.
    pub sha256: String,
    /// The conditions on the answer.
    pub conditions: Conditions,
    /// The client wants the connection closed.
    pub close: bool,
}

/// The part of a file that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The whole file.
    Whole,
    /// A range: its first byte and its length.
    Range(u64, u64),
    /// No byte of the range is in the file: 416.
    Unsatisfiable,
}

/// The kind of request that these bytes of a client are.
#[must_use]
pub fn read(bytes: &[u8]) -> Head {
    let begins = |with: &&str| bytes.iter().zip(with.bytes()).all(|(byte, expected)| *byte == expected);
    if !["GET /blobs/", "HEAD /blobs/"].iter().any(begins) {
        return Head::Other;
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => Head::Unfinished,
        Ok(httparse::Status::Complete(length)) => asked(&request, length).map_or(Head::Other, Head::Plain),
        Err(_) => Head::Other,
    }
}

/// Parses a request whose head has this length. `None`: it is not plain.
fn asked(request: &httparse::Request<'_, '_>, length: usize) -> Option<Asked> {
    let method = [Method::GET, Method::HEAD].into_iter().find(|it| Some(it.as_str()) == request.method)?;
    let sha256 = request.path?.strip_prefix("/blobs/")?.to_owned();
    if request.version != Some(1) || sha256.contains(['/', '?', '%']) {
        return None;
    }
    let (mut conditions, mut close, mut host) = (Conditions::default(), false, false);
    for header in request.headers.iter() {
        let value = std::str::from_utf8(header.value).ok()?;
        match header.name.to_ascii_lowercase().as_str() {
            "host" => host = true,
            "connection" if value.eq_ignore_ascii_case("close") => close = true,
            "connection" if value.eq_ignore_ascii_case("keep-alive") => {}
            "connection" | "content-length" | "transfer-encoding" | "expect" | "upgrade" => return None,
            name => conditions.note(name, value),
        }
    }
    host.then_some(Asked { length, method, sha256, conditions, close })
}

/// Parses a Range header. Several ranges, and units other than bytes, are answered with the whole file, as RFC 9110
/// allows.
#[must_use]
pub fn part(range: Option<&str>, length: u64) -> Part {
    let Some(range) = range.and_then(|range| range.trim().strip_prefix("bytes=")) else { return Part::Whole };
    let Some((from, to)) = range.split_once('-').filter(|(_, to)| !to.contains(',')) else {
        return Part::Whole;
    };
    match (from.trim().parse::<u64>(), to.trim().parse::<u64>()) {
        (Ok(from), _) if from >= length => Part::Unsatisfiable,
        (Ok(from), Ok(to)) if to >= from => Part::Range(from, to.min(length - 1) - from + 1),
        (Ok(from), Err(_)) if to.trim().is_empty() => Part::Range(from, length - from),
        (Err(_), Ok(0)) if from.trim().is_empty() => Part::Unsatisfiable,
        (Err(_), Ok(last)) if from.trim().is_empty() && length > 0 => {
            Part::Range(length - last.min(length), last.min(length))
        }
        _ => Part::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_request_is_answered_here_once_all_of_its_head_is_there() {
        let plain = "GET /blobs/ab HTTP/1.1\r\nHost: r\r\nRange: bytes=1-\r\nConnection: close\r\n\r\n";
        let mut conditions = Conditions::default();
        conditions.note("range", "bytes=1-");
        let expected =
            Asked { length: plain.len(), method: Method::GET, sha256: "ab".into(), conditions, close: true };
        assert_eq!(read(plain.as_bytes()), Head::Plain(expected));
        let two = [plain, plain].concat();
        assert!(matches!(read(two.as_bytes()), Head::Plain(it) if it.length == plain.len()));
        for count in 0..plain.len() {
            assert_eq!(read(&plain.as_bytes()[..count]), Head::Unfinished, "its end is on its way");
        }
        assert!(matches!(
            read(b"HEAD /blobs/ab HTTP/1.1\r\nHost: r\r\n\r\n"),
            Head::Plain(it) if it.method == Method::HEAD && !it.close
        ));
        for other in [
            "GET /ipxe?mac=1 HTTP/1.1\r\nHost: r\r\n\r\n",
            "GET /i",
            "POST /blobs/ab HTTP/1.1\r\nHost: r\r\n\r\n",
            "GET /blobs/ab HTTP/1.0\r\nHost: r\r\n\r\n",
            "GET /blobs/ab HTTP/1.1\r\n\r\n",
            "GET /blobs/a/b HTTP/1.1\r\nHost: r\r\n\r\n",
            "GET /blobs/ab?c HTTP/1.1\r\nHost: r\r\n\r\n",
            "GET /blobs/ab HTTP/1.1\r\nHost: r\r\nContent-Length: 3\r\n\r\nabc",
            "GET /blobs/ab HTTP/1.1\r\nHost: r\r\nConnection: upgrade\r\n\r\n",
            "\u{16}\u{3}\u{1}",
        ] {
            assert_eq!(read(other.as_bytes()), Head::Other, "{other}");
        }
    }

    #[test]
    fn ranges_as_the_rfc_has_them() {
        let cases = [
            (None, Part::Whole),
            (Some("bytes=0-0"), Part::Range(0, 1)),
            (Some("bytes=0-99"), Part::Range(0, 10)),
            (Some("bytes=4-6"), Part::Range(4, 3)),
            (Some("bytes=4-"), Part::Range(4, 6)),
            (Some("bytes=-3"), Part::Range(7, 3)),
            (Some("bytes=-99"), Part::Range(0, 10)),
            (Some("bytes=10-"), Part::Unsatisfiable),
            (Some("bytes=-0"), Part::Unsatisfiable),
            (Some("bytes=6-4"), Part::Whole),
            (Some("bytes=0-1,3-4"), Part::Whole),
            (Some("lines=0-1"), Part::Whole),
            (Some("bytes=x-"), Part::Whole),
            (Some("bytes=99999999999999999999-"), Part::Whole),
        ];
        for (header, expected) in cases {
            assert_eq!(part(header, 10), expected, "{header:?}");
        }
        assert_eq!(part(Some("bytes=0-"), 0), Part::Unsatisfiable);
        assert_eq!(part(Some("bytes=-5"), 0), Part::Whole);
    }
}
