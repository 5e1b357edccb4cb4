//! The trace context of W3C (Trace Context, Recommendation of 2021-11-23), as in the header `traceparent`.

use std::fmt;

/// A span, with its trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Context {
    /// The id of the trace.
    pub trace: [u8; 16],
    /// The id of the span.
    pub span: [u8; 8],
    /// True if the trace is recorded, by the decision of the party that began it.
    pub sampled: bool,
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The specification forbids ids of zeros only. Without random bytes, ids are not unique, and traces are useless.
    if aws_lc_rs::rand::fill(&mut bytes).is_err() || bytes == [0; N] {
        bytes = [1; N];
    }
    bytes
}

impl Context {
    /// A new trace.
    #[must_use]
    pub fn fresh() -> Self {
        Self { trace: random(), span: random(), sampled: true }
    }

    /// Another span of the same trace.
    #[must_use]
    pub fn child(self) -> Self {
        Self { span: random(), ..self }
    }

    /// Reads a header. If its version is later, only the parts of version 00 are read. `None` if it is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().splitn(5, '-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if ![version, trace, span, flags].into_iter().all(is_hex) || version.len() != 2 || flags.len() != 2 {
            return None;
        }
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let (mut trace_bytes, mut span_bytes, mut flag) = ([0; 16], [0; 8], [0; 1]);
        hex::decode_to_slice(trace, &mut trace_bytes).ok()?;
        hex::decode_to_slice(span, &mut span_bytes).ok()?;
        hex::decode_to_slice(flags, &mut flag).ok()?;
        if trace_bytes == [0; 16] || span_bytes == [0; 8] {
            return None;
        }
        Some(Self { trace: trace_bytes, span: span_bytes, sampled: flag[0] & 1 == 1 })
    }

    /// The id of the trace, as 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(self) -> String {
        hex::encode(self.trace)
    }

    /// The ids of trace and span: the request's id in logs and problems.
    #[must_use]
    pub fn request_id(self) -> String {
        format!("{}-{}", hex::encode(self.trace), hex::encode(self.span))
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{:02x}", self.request_id(), u8::from(self.sampled))
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_is_written_is_read_again() {
        let context = Context::parse(EXAMPLE).unwrap();
        assert_eq!((context.to_string().as_str(), context.sampled), (EXAMPLE, true));
        assert_eq!(context.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        let child = context.child();
        assert!(child.trace == context.trace && child.span != context.span);
        assert_ne!(Context::fresh().trace, Context::fresh().trace);
    }

    #[test]
    fn what_is_malformed_is_no_trace() {
        for bad in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0\u{e9}",
        ] {
            assert_eq!(Context::parse(bad), None, "{bad}");
        }
        let later = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-what-comes-then";
        assert_eq!(Context::parse(later).map(|c| c.sampled), Some(false));
    }
}
