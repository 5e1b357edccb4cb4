//! Texts with a defined form. They keep their spelling and are checked when they are made.

use super::name::label;
use super::{BadValue, quoted};
use std::net::IpAddr;

/// Declares text types. `$check` refuses invalid texts; `$kept` removes characters that are not stored.
macro_rules! checked_text {
    ($(#[doc = $doc:literal] $name:ident: $semantic:ident, $check:path $(=> $kept:path)?),* $(,)?) => {$(
        #[doc = $doc]
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The text, in its original spelling.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl std::str::FromStr for $name {
            type Err = $crate::BadValue;
            fn from_str(text: &str) -> Result<Self, $crate::BadValue> {
                $(let text = $kept(text);)?
                $check(text)?;
                Ok(Self(text.to_owned()))
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&self.0)
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&self.0, f)
            }
        }
        $crate::values::text_value!($name, $semantic);
    )*};
}
pub(super) use checked_text;

checked_text! {
    /// A host name, with or without a domain (RFC 1123 §2.1).
    Hostname: Hostname, hostname,
    /// An IP address or a host name.
    Host: Host, host,
    /// A word by which people group machines: `a-z`, `A-Z`, `0-9`, `-`, `_`, `.`, up to 63 bytes.
    Tag: Tag, tag,
}

impl Host {
    /// The address, if the host is one.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.0.parse().ok()
    }
}

impl From<IpAddr> for Host {
    fn from(ip: IpAddr) -> Self {
        Self(ip.to_string())
    }
}

pub(crate) fn hostname(text: &str) -> Result<(), BadValue> {
    let hint = "DNS labels joined by dots, like node-1 or node-1.example.com";
    if text.is_empty() || text.len() > 253 {
        return Err(BadValue::new(format!("{} is not a host name: 1 to 253 bytes", quoted(text)), hint));
    }
    for part in text.to_ascii_lowercase().split('.') {
        if let Err(bad) = label(part) {
            return Err(BadValue::new(format!("{} is not a host name: {bad}", quoted(text)), hint));
        }
    }
    Ok(())
}

pub(crate) fn host(text: &str) -> Result<(), BadValue> {
    let all_numeric = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    if text.parse::<IpAddr>().is_ok() || (!all_numeric && hostname(text).is_ok()) {
        return Ok(());
    }
    Err(BadValue::new(
        format!("{} is neither an IP address nor a host name", quoted(text)),
        "like 10.77.0.9 or bmc-1.example.com; ports have a field of their own",
    ))
}

pub(crate) fn tag(text: &str) -> Result<(), BadValue> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=63).contains(&text.len()) && text.chars().all(fits) {
        return Ok(());
    }
    Err(BadValue::new(format!("{} is not a tag", quoted(text)), "1 to 63 of a-z, A-Z, 0-9, '-', '_' and '.'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_or_a_name_and_has_no_port() {
        for good in ["10.0.0.1", "2001:db8::1", "bmc-1", "BMC-1.example.com"] {
            assert_eq!(host(good), Ok(()), "{good}");
        }
        for bad in ["", "10.0.0.256", "10.0.0", "bmc:623", "bmc 1", "http://bmc", "bmc..example"] {
            assert!(host(bad).is_err(), "{bad}");
        }
    }
}
