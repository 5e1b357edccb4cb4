//! Proxies between client and region, from the usual environment variables.

use super::ClientError;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;
use std::net::IpAddr;

/// The variables by the region's URL scheme. The first one that is set counts.
const HTTP: [&str; 2] = ["HTTP_PROXY", "http_proxy"];
const HTTPS: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];
const NONE: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// The proxies by URL scheme, and the regions that are reached without one. This host and unix sockets are always reached without a proxy.
#[derive(Clone, Default)]
pub struct Proxies {
    http: Option<(&'static str, String)>,
    https: Option<(&'static str, String)>,
    /// Hosts, domains and networks that are reached without a proxy, comma-separated.
    none: String,
}

impl std::fmt::Debug for Proxies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL of a proxy may contain a password, so it is not printed.
        f.debug_struct("Proxies").field("none", &self.none).finish_non_exhaustive()
    }
}

impl Proxies {
    /// Reads `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, in upper or lower case.
    #[must_use]
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| Some((name, env(name).filter(|value| !value.is_empty())?)))
        };
        Self {
            http: first(HTTP),
            https: first(HTTPS),
            none: first(NONE).map(|(_, value)| value).unwrap_or_default(),
        }
    }

    /// The proxy on the way to a region, and its URL for display.
    pub(super) fn to(&self, region: &Url) -> Result<Option<(reqwest::Proxy, String)>, ClientError> {
        let Some((name, text)) = (if region.scheme() == "https" { &self.https } else { &self.http }) else {
            return Ok(None);
        };
        if is_this_host(region) || self.is_left_out(region) {
            return Ok(None);
        }
        let url = url(text).map_err(|why| ClientError::Config { setting: name, why })?;
        let shown = shown(&url);
        let proxy = reqwest::Proxy::all(url).map_err(|error| ClientError::Config {
            setting: name,
            why: super::transport::root_cause(&error),
        })?;
        Ok(Some((proxy, shown)))
    }

    /// True if `NO_PROXY` names the region.
    fn is_left_out(&self, region: &Url) -> bool {
        let matcher = Matcher::builder().all("http://proxy.invalid").no(self.none.as_str()).build();
        region.as_str().parse().is_ok_and(|region| matcher.intercept(&region).is_none())
    }
}

/// True if a region is on this host.
pub(super) fn is_this_host(region: &Url) -> bool {
    let host = region.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Parses `http://HOST:PORT`. The scheme may be absent.
fn url(text: &str) -> Result<Url, String> {
    const LIKE: &str = "like http://proxy.example.com:3128";
    let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    // The error does not show the text, which may contain a password.
    let url: Url = whole.parse().map_err(|error| format!("it is no URL of a proxy ({error}); {LIKE}"))?;
    match url.scheme() {
        "http" | "https" if url.host_str().is_some() => Ok(url),
        scheme => {
            Err(format!("{scheme:?} is not http or https, which are the proxies that are spoken to; {LIKE}"))
        }
    }
}

/// The URL without name and password.
fn shown(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(environment: &[(&str, &str)], region: &str) -> Result<Option<String>, String> {
        let env = |name: &str| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let through = Proxies::from_env(env).to(&region.parse().unwrap());
        through.map(|through| through.map(|(_, shown)| shown)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_region_is_reached_through_the_proxy_of_its_scheme() {
        let both = [("HTTPS_PROXY", "http://a:secret@one:3128"), ("http_proxy", "two:8080")];
        assert_eq!(to(&both, "https://region:5240"), Ok(Some("http://one:3128".to_owned())));
        assert_eq!(to(&both, "http://region:5240"), Ok(Some("http://two:8080".to_owned())));
        assert_eq!(to(&both[..1], "http://region:5240"), Ok(None));
        let capitals = [("https_proxy", "small:1"), ("HTTPS_PROXY", "large:1")];
        assert_eq!(to(&capitals, "https://region"), Ok(Some("http://large:1".to_owned())));
    }

    #[test]
    fn this_host_and_what_is_left_out_are_reached_without() {
        let proxy = ("HTTPS_PROXY", "http://one:3128");
        for here in ["https://127.0.0.1:5240", "https://[::1]:5240", "https://localhost"] {
            assert_eq!(to(&[proxy], here), Ok(None), "{here}");
        }
        let none = ("NO_PROXY", "region.example.com,.lab, 10.77.0.0/24");
        for out in ["https://region.example.com:5240", "https://a.lab", "https://10.77.0.9:5240"] {
            assert_eq!(to(&[proxy, none], out), Ok(None), "{out}");
        }
        for through in ["https://region.example.net", "https://10.78.0.9"] {
            assert!(to(&[proxy, none], through).unwrap().is_some(), "{through}");
        }
        assert_eq!(to(&[proxy, ("no_proxy", "*")], "https://region"), Ok(None));
    }

    #[test]
    fn what_is_no_proxy_is_refused_by_its_variable_and_its_password_is_not_shown() {
        for (wrong, why) in
            [("socks5://me:hush@proxy:1080", "\"socks5\" is not http"), ("http://me:hush@:x", "no URL")]
        {
            let error = to(&[("https_proxy", wrong)], "https://region").unwrap_err();
            assert!(error.starts_with("https_proxy: ") && error.contains(why), "{error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }
}
