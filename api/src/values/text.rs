//! Texts with a form: they keep their spelling, and are checked when they are made.

use super::name::label;
use super::{BadValue, quoted, text_value};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

macro_rules! checked_text {
    ($(#[doc = $doc:literal] $name:ident: $semantic:ident, $check:path),* $(,)?) => {$(
        #[doc = $doc]
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The text, as it was written.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl FromStr for $name {
            type Err = BadValue;
            fn from_str(text: &str) -> Result<Self, BadValue> {
                $check(text)?;
                Ok(Self(text.to_owned()))
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
        text_value!($name, $semantic);
    )*};
}

checked_text! {
    /// A host name, with or without a domain (RFC 1123 §2.1).
    Hostname: Hostname, hostname,
    /// An IP address or a host name.
    Host: Host, host,
    /// A word that machines are grouped by: `a-z`, `A-Z`, `0-9`, `-`, `_`, `.`, up to 63 bytes.
    Tag: Tag, tag,
    /// An OpenSSH public key, one line, as in `authorized_keys` without options.
    SshKey: SshKey, ssh_key,
}

impl Host {
    /// The address, when it is one.
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

pub(crate) fn ssh_key(text: &str) -> Result<(), BadValue> {
    let hint = "one line of a .pub file, like \"ssh-ed25519 AAAA… me@example.com\"";
    let bad =
        |why: &str| Err(BadValue::new(format!("{} is not an SSH public key: {why}", quoted(text)), hint));
    if text.contains("PRIVATE KEY") {
        return Err(BadValue::new("this is a private key; it must not leave your machine", hint));
    }
    if text.contains(['\n', '\r']) {
        return bad("it has several lines");
    }
    let mut words = text.split(' ');
    let algorithm = words.next().unwrap_or_default();
    let known = ["ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-sha2-"];
    if !known.iter().any(|prefix| algorithm.starts_with(prefix)) {
        return bad("it does not begin with an algorithm such as ssh-ed25519");
    }
    let body = words.next().unwrap_or_default();
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    if body.len() < 16 || !body.starts_with("AAAA") || !body.chars().all(is_base64) {
        return bad("the key itself is missing or cut");
    }
    Ok(())
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

    #[test]
    fn ssh_keys_are_public_and_whole() {
        assert_eq!(ssh_key("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA me@example.com"), Ok(()));
        assert!(ssh_key("-----BEGIN OPENSSH PRIVATE KEY-----").unwrap_err().message.contains("private key"));
        for bad in
            ["", "ssh-ed25519", "ssh-ed25519 xyz", "AAAAC3NzaC1lZDI1NTE5AAAAIA", "ssh-rsa AAAA\nssh-rsa AAAA"]
        {
            assert!(ssh_key(bad).is_err(), "{bad}");
        }
    }
}
