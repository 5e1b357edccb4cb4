//! The address of a region process that racks dial. Region settings, join tokens and racks all use the same form.

use tonic::codegen::http::uri::Authority;

/// The `HOST:PORT` of a region, from `https://HOST:PORT` or `HOST:PORT`. `None`: the text is no such address.
#[must_use]
pub fn address(url: &str) -> Option<String> {
    let rest = url.strip_prefix("https://").unwrap_or(url);
    let authority: Authority = rest.strip_suffix('/').unwrap_or(rest).parse().ok()?;
    let can_be_dialled = authority.port_u16().is_some_and(|port| port > 0)
        && !authority.host().is_empty()
        && !authority.as_str().contains('@');
    can_be_dialled.then(|| authority.to_string())
}

/// Like [`address`], for URLs only: join tokens and region settings must contain a full URL.
#[must_use]
pub fn address_of_url(url: &str) -> Option<String> {
    url.starts_with("https://").then(|| address(url)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_a_host_and_a_port() {
        for url in ["https://10.0.0.1:5250", "https://10.0.0.1:5250/", "10.0.0.1:5250"] {
            assert_eq!(address(url).as_deref(), Some("10.0.0.1:5250"), "{url}");
        }
        assert_eq!(address("https://[2001:db8::1]:5250").as_deref(), Some("[2001:db8::1]:5250"));
        assert_eq!(address("region-b:5251").as_deref(), Some("region-b:5251"));
        for url in
            ["", "https://", "http//x", "http://a:1", "10.0.0.1", "a:0", "a:65536", "u@a:1", "a:1/x", "a:1//"]
        {
            assert_eq!(address(url), None, "{url}");
        }
        assert_eq!(address_of_url("10.0.0.1:5250"), None);
    }
}
