//! The conditions of a request, by the file's validator (RFC 9110 §13): the client may have the file already, and a
//! range may belong to another version of it.

use http::{Method, header};

use super::request::{Part, part};

/// The range and the validators of a request. Files here have no dates: conditions on dates are ignored or fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    range: Option<String>,
    if_range: Option<String>,
    if_match: Option<String>,
    if_none_match: Option<String>,
}

/// The answer to a conditional request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send this part of the file.
    Send(Part),
    /// The client has the file already: 304.
    NotModified,
    /// The file is not the one that the client means: 412.
    Failed,
}

impl Conditions {
    /// Stores a header if it is one of these. Several lines of one header form one list.
    pub fn note(&mut self, name: &str, value: &str) {
        let field = match name {
            name if name.eq_ignore_ascii_case(header::RANGE.as_str()) => &mut self.range,
            name if name.eq_ignore_ascii_case(header::IF_RANGE.as_str()) => &mut self.if_range,
            name if name.eq_ignore_ascii_case(header::IF_MATCH.as_str()) => &mut self.if_match,
            name if name.eq_ignore_ascii_case(header::IF_NONE_MATCH.as_str()) => &mut self.if_none_match,
            _ => return,
        };
        match field {
            Some(list) => list.extend([",", value]),
            None => *field = Some(value.to_owned()),
        }
    }

    /// The conditions in these headers.
    #[must_use]
    pub fn of(headers: &http::HeaderMap) -> Self {
        let mut conditions = Self::default();
        for (name, value) in headers {
            if let Ok(value) = value.to_str() {
                conditions.note(name.as_str(), value);
            }
        }
        conditions
    }

    /// The answer for a file of this length with this strong validator, in the order of RFC 9110 §13.2.2. Only GET has
    /// ranges (§14.2).
    #[must_use]
    pub fn judge(&self, method: &Method, etag: &str, length: u64) -> Verdict {
        if self.if_match.as_deref().is_some_and(|list| !names(list, etag, false)) {
            return Verdict::Failed;
        }
        if self.if_none_match.as_deref().is_some_and(|list| names(list, etag, true)) {
            return Verdict::NotModified;
        }
        let holds = self.if_range.as_deref().is_none_or(|one| one.trim() == etag);
        let range = self.range.as_deref().filter(|_| holds && method == Method::GET);
        Verdict::Send(part(range, length))
    }
}

/// True if the list contains the validator; `*` matches every one. A weak validator matches only if `weakly` is set.
fn names(list: &str, etag: &str, weakly: bool) -> bool {
    let same = |one: &str| one == "*" || one == etag || (weakly && one.strip_prefix("W/") == Some(etag));
    list.split(',').any(|one| same(one.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG: &str = "\"abc\"";

    #[test]
    fn what_is_answered_goes_by_validators_as_the_rfc_has_them() {
        let range = ("range", "bytes=2-3");
        let (part, whole) = (Verdict::Send(Part::Range(2, 2)), Verdict::Send(Part::Whole));
        let cases: [(&[(&str, &str)], Verdict); 15] = [
            (&[range], part),
            (&[range, ("If-Range", ETAG)], part),
            (&[range, ("if-range", "\"other\"")], whole),
            (&[range, ("if-range", "W/\"abc\"")], whole),
            (&[range, ("if-range", "Sun, 06 Nov 1994 08:49:37 GMT")], whole),
            (&[("if-range", ETAG)], whole),
            (&[("if-none-match", ETAG)], Verdict::NotModified),
            (&[("if-none-match", "\"x\", W/\"abc\"")], Verdict::NotModified),
            (&[("if-none-match", "\"x\""), ("if-none-match", ETAG)], Verdict::NotModified),
            (&[("if-none-match", "*"), range], Verdict::NotModified),
            (&[("if-none-match", "\"x\"")], whole),
            (&[("if-match", "\"x\"")], Verdict::Failed),
            (&[("if-match", "W/\"abc\"")], Verdict::Failed),
            (&[("if-match", ETAG), range], part),
            (&[("if-match", "\"x\""), ("if-none-match", ETAG)], Verdict::Failed),
        ];
        for (headers, expected) in cases {
            let mut conditions = Conditions::default();
            headers.iter().for_each(|(name, value)| conditions.note(name, value));
            assert_eq!(conditions.judge(&Method::GET, ETAG, 10), expected, "{headers:?}");
        }
    }

    #[test]
    fn a_range_is_of_get_alone() {
        let mut conditions = Conditions::default();
        conditions.note("range", "bytes=99-");
        assert_eq!(conditions.judge(&Method::GET, ETAG, 10), Verdict::Send(Part::Unsatisfiable));
        assert_eq!(conditions.judge(&Method::HEAD, ETAG, 10), Verdict::Send(Part::Whole));
    }
}
