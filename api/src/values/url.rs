//! URLs of `http` and `https` (RFC 3986, RFC 9110 §4.2).

use super::text::checked_text;
use super::{BadValue, check_host, quoted};
use std::net::IpAddr;

checked_text! {
    /// The `http` or `https` URL of something, without an account and without a fragment.
    Url: Url, check,
}

impl Url {
    /// The canonical form: scheme and host in lower case. Two spellings of one URL have the same form.
    #[must_use]
    pub fn canonical(&self) -> String {
        canonical(self.as_str()).unwrap_or_else(|_| self.to_string())
    }

    /// True if the content cannot be changed on its way: by TLS, or because the server is this host.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        let Ok((scheme, authority, _)) = parts(self.as_str()) else { return false };
        scheme.eq_ignore_ascii_case("https") || is_local(authority)
    }
}

/// `localhost` or a loopback address, with a port or without.
fn is_local(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => authority.split(':').next(),
    };
    host.is_some_and(|host| {
        host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    })
}

/// Characters of a path or query, besides letters and digits (RFC 3986 §3.3, §3.4); `%` begins an escape.
const SIGNS: &str = "-._~:/?[]@!$&'()*+,;=%";

pub(crate) fn check(text: &str) -> Result<(), BadValue> {
    parts(text).map(drop)
}

/// Scheme and host are the same in either case.
pub(crate) fn canonical(text: &str) -> Result<String, BadValue> {
    let (scheme, authority, path) = parts(text)?;
    Ok(format!("{}://{}{path}", scheme.to_ascii_lowercase(), authority.to_ascii_lowercase()))
}

/// Scheme, authority, and the rest.
fn parts(text: &str) -> Result<(&str, &str, &str), BadValue> {
    let hint = "like https://images.example.com/debian";
    let bad = |why: &str| BadValue::new(format!("{} is not a URL: {why}", quoted(text)), hint);
    let (scheme, rest) = text.split_once("://").ok_or_else(|| bad("it does not begin with https://"))?;
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(bad("its scheme is neither https nor http"));
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if authority.contains('@') {
        // The URL is not quoted: the text before the @ may be a password.
        let message = "the URL has an account or a password in it, which everybody who reads it would see";
        return Err(BadValue::new(message, "leave out what stands before the @"));
    }
    if path.contains('#') {
        return Err(bad("it has a fragment, which no server is ever sent"));
    }
    if path.chars().any(|c| !c.is_ascii_alphanumeric() && !SIGNS.contains(c)) {
        return Err(bad("a sign in it has to be written as %XX"));
    }
    let mut escapes = path.split('%').skip(1);
    if !escapes.all(|e| e.len() >= 2 && e.bytes().take(2).all(|b| b.is_ascii_hexdigit())) {
        return Err(bad("a % in it is not followed by two hexadecimal digits"));
    }
    let (host, port) = match authority.strip_prefix('[').and_then(|a| a.split_once(']')) {
        Some((_, rest)) if !rest.is_empty() && !rest.starts_with(':') => {
            return Err(bad("only a port can follow ]"));
        }
        Some((host, rest)) if host.parse::<std::net::Ipv6Addr>().is_ok() => (host, rest.strip_prefix(':')),
        Some(_) => return Err(bad("what stands in [] is not an IPv6 address")),
        None if authority.matches(':').count() > 1 => return Err(bad("an IPv6 address stands in []")),
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err(bad("it has no host"));
    }
    check_host(host)?;
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|n| n > 0 && !port.starts_with('+'));
    if port.is_some_and(|port| !is_port(port)) {
        return Err(bad("its port is not a number from 1 to 65535"));
    }
    Ok((scheme, authority, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_and_a_host() {
        for good in [
            "https://example.com",
            "http://10.0.0.1:8080/a%20b?x=1&y=2",
            "HTTPS://[2001:db8::1]:443/",
            "https://example.com/~a/(b)",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "example.com",
            "ftp://example.com",
            "https://",
            "https:///x",
            "https://:80",
            "https://example.com:0",
            "https://example.com:65536",
            "https://example.com:+1",
            "https://example.com/a b",
            "https://example.com/%2",
            "https://example.com/%zz",
            "https://example.com/%é",
            "https://example.com/#top",
            "https://2001:db8::1/",
            "https://[2001:db8::1",
            "https://[x]/",
            "https://exa mple.com",
            "https://[2001:db8::1]x",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_password_is_refused_and_not_repeated() {
        let error = check("https://me:hunter2@example.com/").unwrap_err();
        assert!(!error.to_string().contains("hunter2") && error.message.contains("password"), "{error}");
    }

    #[test]
    fn tls_protects_and_so_does_this_host() {
        let is_protected = |text: &str| text.parse::<Url>().unwrap().is_protected();
        for good in [
            "https://id.example.com",
            "HTTPS://a",
            "http://localhost:9/x",
            "http://127.0.0.1",
            "http://[::1]:80/",
        ] {
            assert!(is_protected(good), "{good}");
        }
        for bad in [
            "http://id.example.com",
            "http://10.0.0.1",
            "http://localhost.example.com",
            "http://[2001:db8::1]",
        ] {
            assert!(!is_protected(bad), "{bad}");
        }
    }

    #[test]
    fn the_host_s_case_means_nothing_and_the_path_s_does() {
        assert_eq!(canonical("HTTPS://Example.COM/A").as_deref(), Ok("https://example.com/A"));
    }
}
