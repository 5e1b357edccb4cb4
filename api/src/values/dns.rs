//! Names of the DNS (RFC 1035 §2.3, RFC 2181 §11), in ASCII: other scripts are written as `xn--…` (RFC 5890).

use super::text::checked_text;
use super::{BadValue, quoted};

checked_text! {
    /// The part of a record's name below its domain: `www`, `_ldap._tcp`, `*`, or `@` for the domain itself.
    OwnerName: OwnerName, check_owner,
}

/// The longest name in text, without its final dot: 255 bytes on the wire.
pub(crate) const LONGEST_NAME: usize = 253;

/// The longest label.
const LONGEST_LABEL: usize = 63;

/// Checks one label. The error is the reason why it is invalid.
fn label(label: &str, is_host: bool) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || (c == '_' && !is_host);
    if label.is_empty() {
        return Err("a label of it is empty".to_owned());
    }
    if label.len() > LONGEST_LABEL {
        return Err(format!("its label {} is longer than {LONGEST_LABEL} bytes", quoted(label)));
    }
    if let Some(c) = label.chars().find(|c| !fits(*c)) {
        let hint = if c.is_ascii() { "" } else { "; other scripts are written as xn--…" };
        return Err(format!("it contains {c:?}{hint}"));
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Err(format!("its label {} starts or ends with '-'", quoted(label)));
    }
    Ok(())
}

/// Checks the length of `text` and every label of it.
fn labels(text: &str, is_host: bool) -> Result<(), String> {
    if text.len() > LONGEST_NAME {
        return Err(format!("it is longer than {LONGEST_NAME} bytes"));
    }
    text.split('.').try_for_each(|part| label(part, is_host))
}

/// The name of a domain that Basalt can serve: lower case, without a final dot.
pub(crate) fn check_domain(text: &str) -> Result<(), BadValue> {
    let hint = "DNS labels of a-z, 0-9 and - joined by dots, like lab.example.com";
    let bad =
        |why: String| BadValue::new(format!("{} is not the name of a domain: {why}", quoted(text)), hint);
    if text.ends_with('.') {
        return Err(bad("leave out the final dot".to_owned()));
    }
    if let Some(c) = text.chars().find(char::is_ascii_uppercase) {
        return Err(bad(format!("it contains {c:?}; write it in lower case")));
    }
    labels(text, true).map_err(bad)
}

/// A whole name in a record's data, in lower case and with its final dot.
pub(crate) fn target(text: &str) -> Result<String, BadValue> {
    let bad = |why: String| {
        let hint = "a whole name, like www.lab.example.com";
        BadValue::new(format!("{} is not a domain name: {why}", quoted(text)), hint)
    };
    if text == "." {
        return Ok(text.to_owned());
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    labels(name, false).map_err(bad)?;
    if name.parse::<std::net::IpAddr>().is_ok() {
        return Err(bad("it is an address".to_owned()));
    }
    Ok(format!("{}.", name.to_ascii_lowercase()))
}

pub(crate) fn check_owner(text: &str) -> Result<(), BadValue> {
    let hint = "like www, _ldap._tcp, *, or @ for the domain itself; the domain is not repeated";
    let bad =
        |why: String| BadValue::new(format!("{} is not a name below a domain: {why}", quoted(text)), hint);
    if text == "@" || text == "*" {
        return Ok(());
    }
    if text.ends_with('.') {
        return Err(bad("it ends with a dot, as a whole name does".to_owned()));
    }
    // RFC 4592 §2.1.1: an asterisk is a wildcard as the first label alone.
    labels(text.strip_prefix("*.").unwrap_or(text), false).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_named_in_lower_case_without_a_final_dot() {
        for good in ["lab.example.com", "maas", "1.168.192.in-addr.arpa", "xn--mnchen-3ya.example"] {
            assert_eq!(check_domain(good), Ok(()), "{good}");
        }
        let long = ["x".repeat(63), "x".repeat(63), "x".repeat(63), "x".repeat(63)].join(".");
        for bad in [
            "",
            ".",
            "example.com.",
            "Example.com",
            "a..b",
            "-a.b",
            "a-.b",
            "a_b.c",
            "münchen.example",
            &long,
        ] {
            assert!(check_domain(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_owner_is_named_without_its_domain() {
        for good in ["@", "*", "www", "WWW", "*.apps", "_ldap._tcp", "a.b.c"] {
            assert_eq!(check_owner(good), Ok(()), "{good}");
        }
        for bad in ["", "www.", "a.*", "a*", "@.a", "a b", "a..b"] {
            assert!(check_owner(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_target_is_a_whole_name() {
        assert_eq!(target("WWW.Example.com").as_deref(), Ok("www.example.com."));
        assert_eq!(target("www.example.com.").as_deref(), Ok("www.example.com."));
        assert_eq!(target(".").as_deref(), Ok("."));
        for bad in ["", "..", "a b", "10.0.0.1", "a..b"] {
            assert!(target(bad).is_err(), "{bad}");
        }
    }
}
