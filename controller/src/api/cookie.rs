//! Sessions of browsers: the token comes in a cookie, which no script reads.
//!
//! A browser adds the cookie to requests of any origin. `SameSite=Strict` excludes requests that other sites cause. In addition, a request
//! that writes with a cookie must come from a page of this region, by its `Sec-Fetch-Site` or `Origin` (RFC 6454 §7).

use super::guard::Peer;
use super::problem::{Answer, Refusal};
use axum::http::{HeaderMap, HeaderValue, header};
use basalt_api::ProblemCode;
use basalt_api::values::Timestamp;

/// The names of a cookie. Over TLS its name has the prefix `__Host-`: browsers accept such a cookie only from the host itself, over TLS
/// (RFC 6265bis §4.1.3.2).
#[derive(Clone, Copy, Debug)]
struct Names {
    guarded: &'static str,
    plain: &'static str,
}

const SESSION: Names = Names { guarded: "__Host-basalt-session", plain: "basalt-session" };

/// The cookie of a login through an issuer. The issuer redirects the browser to a page of the region, and this page sends the request. So
/// `SameSite=Strict` is right for this cookie too.
const ATTEMPT: Names = Names { guarded: "__Host-basalt-login", plain: "basalt-login" };

impl Names {
    /// Over TLS, a cookie without the prefix is ignored: other hosts of the domain can set it.
    fn found(self, peer: Peer, headers: &HeaderMap) -> Option<&str> {
        let name = if matches!(peer, Peer::Tls(_)) { self.guarded } else { self.plain };
        named(headers, name)
    }

    fn written(self, peer: Peer, value: &str, lasts: Option<i64>) -> Answer<HeaderValue> {
        let is_secure = matches!(peer, Peer::Tls(_));
        let name = if is_secure { self.guarded } else { self.plain };
        let secure = if is_secure { "; Secure" } else { "" };
        let lasts = lasts.map(|seconds| format!("; Max-Age={seconds}")).unwrap_or_default();
        let text = format!("{name}={value}; HttpOnly; SameSite=Strict; Path=/{secure}{lasts}");
        HeaderValue::from_str(&text).map_err(|_| {
            Refusal::new(ProblemCode::Unauthenticated, "this token has characters that no token has")
        })
    }
}

/// The token in the cookie of a request.
pub(super) fn token(peer: Peer, headers: &HeaderMap) -> Option<&str> {
    SESSION.found(peer, headers)
}

/// The secret of the login that this browser has begun.
pub(super) fn attempt(peer: Peer, headers: &HeaderMap) -> Option<&str> {
    ATTEMPT.found(peer, headers)
}

fn named<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == wanted).map(|(_, value)| value).filter(|value| !value.is_empty())
}

/// The header that sets the session cookie. Without `until`, the cookie ends with the browser session.
pub(super) fn given(peer: Peer, token: &str, until: Option<Timestamp>) -> Answer<HeaderValue> {
    let lasts = until.map(|until| until.duration_since(Timestamp::now()).as_secs().max(0));
    SESSION.written(peer, token, lasts)
}

/// The header that deletes the session cookie.
pub(super) fn taken(peer: Peer) -> Answer<HeaderValue> {
    SESSION.written(peer, "", Some(0))
}

/// The header that binds a login to a browser for `lasts` seconds.
pub(super) fn begun(peer: Peer, secret: &str, lasts: i64) -> Answer<HeaderValue> {
    ATTEMPT.written(peer, secret, Some(lasts))
}

/// Refuses requests that do not come from a page of this region.
pub(super) fn same_origin(headers: &HeaderMap) -> Answer<()> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text("host");
    let is_own = match (text("sec-fetch-site"), text("origin")) {
        (Some(site), _) => site == "same-origin",
        (None, Some(origin)) => origin.split_once("://").is_some_and(|(_, from)| Some(from) == host),
        (None, None) => false,
    };
    if is_own {
        return Ok(());
    }
    let detail = "a request with a cookie writes from pages of this region alone (Sec-Fetch-Site, Origin); programs send \
                  Authorization: Bearer TOKEN";
    Err(Refusal::new(ProblemCode::Forbidden, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| ((*name).parse().unwrap(), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn the_token_is_found_among_other_cookies() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let by = |peer, line| token(peer, &headers(&[("cookie", line)])).map(str::to_owned);
        let of = |line| by(Peer::Tcp(address), line);
        assert_eq!(of("a=b; basalt-session=t1;c=d"), Some("t1".to_owned()));
        let both = "basalt-session=t1; __Host-basalt-session=t2";
        assert_eq!(by(Peer::Tls(address), both), Some("t2".to_owned()));
        assert_eq!(by(Peer::Tls(address), "basalt-session=t1"), None, "another host may have set it");
        assert_eq!((of("basalt-session="), of("xbasalt-session=t"), of("")), (None, None, None));
    }

    #[test]
    fn no_script_and_no_other_site_uses_the_cookie_and_no_plain_http_under_tls() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let plain = given(Peer::Tcp(address), "t", None).unwrap();
        assert_eq!(plain, "basalt-session=t; HttpOnly; SameSite=Strict; Path=/");
        let taken = taken(Peer::Tls(address)).unwrap();
        assert_eq!(taken, "__Host-basalt-session=; HttpOnly; SameSite=Strict; Path=/; Secure; Max-Age=0");
    }

    #[test]
    fn only_pages_of_the_region_are_of_its_origin() {
        let is = |pairs: &[(&'static str, &'static str)]| same_origin(&headers(pairs)).is_ok();
        assert!(is(&[("sec-fetch-site", "same-origin")]));
        for site in ["same-site", "cross-site", "none", ""] {
            assert!(!is(&[("host", "r"), ("origin", "http://r"), ("sec-fetch-site", site)]), "{site}");
        }
        assert!(is(&[("host", "r:5240"), ("origin", "https://r:5240")]));
        assert!(!is(&[("host", "r:5240"), ("origin", "https://r:5241")]));
        assert!(!is(&[("host", "r:5240"), ("origin", "null")]) && !is(&[("host", "r:5240")]));
    }
}
