//! References in a BMC's answers (`@odata.id`, targets, Location). They may only lead to paths on the BMC itself.

use http::uri::{Authority, PathAndQuery, Scheme, Uri};

/// The longest path accepted, in bytes; BMCs have shorter ones.
const MAX: usize = 2048;

/// The host and port of the BMC, as its clients know them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// A host name or an address; IPv6 without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Origin {
    /// The value of the header Host: the port is named if it is not 443.
    pub(crate) fn authority(&self) -> String {
        crate::header::authority(&self.host, self.port, 443)
    }

    /// The path of a reference, if it is on this BMC (RFC 3986 §4.2). DSP0266 has absolute paths; some BMCs send whole
    /// URIs.
    pub(crate) fn path(&self, reference: &str) -> Option<String> {
        // The fragment selects a part of the resource.
        let reference = reference.split('#').next().unwrap_or_default();
        if reference.len() > MAX {
            return None;
        }
        let path = if reference.starts_with('/') && !reference.starts_with("//") {
            reference.parse::<PathAndQuery>().ok()?
        } else {
            let uri: Uri = reference.parse().ok()?;
            let own = uri.scheme() == Some(&Scheme::HTTPS) && uri.authority().is_some_and(|it| self.is(it));
            uri.path_and_query().filter(|_| own)?.clone()
        };
        Some(path.as_str().to_owned()).filter(|path| path.starts_with('/'))
    }

    fn is(&self, authority: &Authority) -> bool {
        let host = authority.host().trim_matches(['[', ']']);
        let plain = !authority.as_str().contains('@');
        plain && host.eq_ignore_ascii_case(&self.host) && authority.port_u16().unwrap_or(443) == self.port
    }
}

/// The last segment of a path: the resource's name in its collection.
pub(crate) fn name(path: &str) -> &str {
    let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
    path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_on_the_bmc_itself_are_followed() {
        let origin = Origin { host: "bmc1.example.com".to_owned(), port: 443 };
        for (reference, path) in [
            ("/redfish/v1/Systems/1", Some("/redfish/v1/Systems/1")),
            ("/redfish/v1/Systems/1#/Boot", Some("/redfish/v1/Systems/1")),
            ("https://BMC1.example.com/redfish/v1/", Some("/redfish/v1/")),
            ("https://bmc1.example.com:443/a?b=c", Some("/a?b=c")),
            ("https://bmc1.example.com", Some("/")),
            ("https://bmc1.example.com:8443/a", None),
            ("http://bmc1.example.com/a", None),
            ("https://user@bmc1.example.com/a", None),
            ("https://elsewhere.example.com/a", None),
            ("//elsewhere.example.com/a", None),
            ("redfish/v1", None),
            ("/a b", None),
            ("", None),
        ] {
            assert_eq!(origin.path(reference).as_deref(), path, "{reference}");
        }
        let six = Origin { host: "2001:db8::1".to_owned(), port: 8443 };
        assert_eq!(six.authority(), "[2001:db8::1]:8443");
        assert_eq!(six.path("https://[2001:db8::1]:8443/a").as_deref(), Some("/a"));
    }

    #[test]
    fn a_resource_is_called_by_the_last_segment_of_its_path() {
        assert_eq!((name("/redfish/v1/Systems/437XR/"), name("/"), name("")), ("437XR", "", ""));
    }
}
