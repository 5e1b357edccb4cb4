//! HTTP with the agent's client, for parts of a machine that have a whole URL.

use std::io::Read;

use basalt_agent::http::{Client, Request, Security};
use basalt_agent::tls;

use crate::life::{Life, Stop};

/// Limit of the size of a boot script, in bytes.
const MAX_SCRIPT: u64 = 64 << 10;

/// Fetches a URL without TLS and drops the bytes. Returns their number, or the error.
pub(crate) fn discard(life: &Life, url: &str) -> Result<Result<u64, String>, Stop> {
    exchange(life, url, None, |_| {})
}

/// Fetches a small text.
pub(crate) fn text(life: &Life, url: &str) -> Result<Result<String, String>, Stop> {
    let mut bytes = Vec::new();
    let got = exchange(life, url, None, |part| {
        if bytes.len() as u64 <= MAX_SCRIPT {
            bytes.extend_from_slice(part);
        }
    })?;
    Ok(match got {
        Ok(length) if length > MAX_SCRIPT => {
            Err(format!("{url} has {length} bytes; no script is longer than {MAX_SCRIPT}"))
        }
        Ok(_) => String::from_utf8(bytes).map_err(|error| format!("{url}: {error}")),
        Err(why) => Err(why),
    })
}

/// Posts a body to a URL.
pub(crate) fn post(life: &Life, url: &str, body: &[u8]) -> Result<Result<u64, String>, Stop> {
    exchange(life, url, Some(body), |_| {})
}

/// Posts the body, or fetches the URL without one.
fn exchange(
    life: &Life,
    url: &str,
    body: Option<&[u8]>,
    mut take: impl FnMut(&[u8]),
) -> Result<Result<u64, String>, Stop> {
    life.check()?;
    let Some((authority, path)) = split(url) else {
        return Ok(Err(format!("{url:?} is no http:// URL")));
    };
    let request = match body {
        Some(body) => Request::post(&path, "application/octet-stream", body),
        None => Request::get(&path),
    };
    // The client is made for a rack's https address; without TLS, the key is unused.
    let client = tls::pinned([0; 32]).map_err(|error| error.to_string());
    let client = client.and_then(|tls| Client::new(&authority, tls).map_err(|error| error.to_string()));
    let response = client.and_then(|it| it.send(Security::Clear, request).map_err(|error| error.to_string()));
    let mut response = match response {
        Ok(response) => response,
        Err(why) => {
            life.check()?;
            return Ok(Err(why));
        }
    };
    let mut buffer = vec![0; 256 << 10];
    let mut length = 0;
    loop {
        let read = response.read(&mut buffer);
        life.check()?;
        match read {
            Ok(0) => return Ok(Ok(length)),
            Ok(read) => {
                length += read as u64;
                take(buffer.get(..read).unwrap_or_default());
            }
            Err(error) => return Ok(Err(format!("{url}: {error}"))),
        }
    }
}

/// `https://HOST:PORT`, and the path with its query.
fn split(url: &str) -> Option<(String, String)> {
    let rest = url.strip_prefix("http://")?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let port = if host.rsplit(']').next().is_some_and(|tail| tail.contains(':')) { "" } else { ":80" };
    let path = if path.is_empty() { "/" } else { path };
    (!host.is_empty()).then(|| (format!("https://{host}{port}"), path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_host_port_and_path() {
        let halves = |url| split(url).map(|(a, b)| format!("{a} {b}"));
        assert_eq!(
            halves("http://10.0.0.1:5248/ipxe?mac=a").as_deref(),
            Some("https://10.0.0.1:5248 /ipxe?mac=a")
        );
        assert_eq!(halves("http://rack").as_deref(), Some("https://rack:80 /"));
        assert_eq!(halves("http://[::1]/x").as_deref(), Some("https://[::1]:80 /x"));
        assert_eq!(halves("ftp://rack/x"), None);
        assert_eq!(halves("http:///x"), None);
    }
}
