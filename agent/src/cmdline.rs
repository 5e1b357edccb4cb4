//! Parser for the kernel command line, which holds the agent's first settings.

use thiserror::Error;

/// The agent's settings on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootConfig {
    /// `basalt.url`: the rack, `https://HOST:PORT`.
    pub url: String,
    /// `basalt.token`: exchanged for a session by the claim.
    pub token: String,
    /// `basalt.spki`: SHA-256 of the rack's public key (DER SubjectPublicKeyInfo).
    pub spki: [u8; 32],
    /// `basalt.root`: SHA-256 of the squashfs. Absent if the agent runs in a stock live image.
    pub root: Option<[u8; 32]>,
    /// `BOOTIF`: MAC of the interface that the firmware booted from, lower-case with colons.
    pub boot_mac: Option<String>,
    /// The `console=` words, in order. An installed system gets the same ones.
    pub consoles: Vec<String>,
}

/// An error in the command line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CmdlineError {
    /// A required word is missing.
    #[error("the kernel command line has no {0}=; the boot script of the rack has to set it")]
    Missing(&'static str),
    /// A word has an invalid value.
    #[error("{word}={value} on the kernel command line is not {expected}")]
    Invalid {
        /// Name of the word.
        word: &'static str,
        /// Value of the word.
        value: String,
        /// Description of a valid value.
        expected: &'static str,
    },
}

impl BootConfig {
    /// Parses the content of `/proc/cmdline`. If a word occurs twice, the last one counts, as in the kernel.
    ///
    /// # Errors
    /// A required word is missing or malformed.
    pub fn parse(line: &str) -> Result<Self, CmdlineError> {
        let last = |word: &str| {
            line.split_ascii_whitespace().rev().find_map(|part| part.strip_prefix(word)?.strip_prefix('='))
        };
        let required =
            |word: &'static str| last(word).filter(|v| !v.is_empty()).ok_or(CmdlineError::Missing(word));

        let url = required("basalt.url")?.trim_end_matches('/');
        if !url.starts_with("https://") {
            return Err(invalid("basalt.url", url, "an https:// address"));
        }
        let root = last("basalt.root")
            .map(|value| {
                value
                    .strip_prefix("sha256:")
                    .and_then(digest)
                    .ok_or_else(|| invalid("basalt.root", value, "sha256: and 64 hexadecimal digits"))
            })
            .transpose()?;
        let spki = required("basalt.spki")?;
        Ok(Self {
            url: url.to_owned(),
            token: required("basalt.token")?.to_owned(),
            spki: digest(spki).ok_or_else(|| invalid("basalt.spki", spki, "64 hexadecimal digits"))?,
            root,
            boot_mac: last("BOOTIF")
                .map(|value| {
                    boot_mac(value)
                        .ok_or_else(|| invalid("BOOTIF", value, "01- and a MAC address with dashes"))
                })
                .transpose()?,
            consoles: line
                .split_ascii_whitespace()
                .filter(|word| word.starts_with("console="))
                .map(str::to_owned)
                .collect(),
        })
    }
}

fn invalid(word: &'static str, value: &str, expected: &'static str) -> CmdlineError {
    CmdlineError::Invalid { word, value: value.to_owned(), expected }
}

fn digest(text: &str) -> Option<[u8; 32]> {
    hex::decode(text).ok()?.try_into().ok()
}

/// PXELINUX's `BOOTIF`: the ARP hardware type, then the address. The type may be absent, since some loaders omit it.
fn boot_mac(value: &str) -> Option<String> {
    let octets: Vec<&str> = value.split(['-', ':']).collect();
    let octets = match octets.len() {
        7 => octets.get(1..)?,
        6 => octets.as_slice(),
        _ => return None,
    };
    let hex = |octet: &&str| octet.len() == 2 && octet.bytes().all(|b| b.is_ascii_hexdigit());
    octets.iter().all(hex).then(|| octets.join(":").to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn line(extra: &str) -> String {
        format!("basalt.url=https://10.77.0.1:5248 basalt.token=T basalt.spki={HASH} {extra}\n")
    }

    #[test]
    fn reads_what_the_boot_script_writes() {
        let config = BootConfig::parse(&line(&format!(
            "basalt.root=sha256:{HASH} BOOTIF=01-52-54-00-AA-00-01 console=tty0 console=ttyS0"
        )))
        .unwrap();
        assert_eq!(config.url, "https://10.77.0.1:5248");
        assert_eq!(config.root, Some(config.spki));
        assert_eq!(config.boot_mac.as_deref(), Some("52:54:00:aa:00:01"));
        assert_eq!(config.consoles, ["console=tty0", "console=ttyS0"]);
    }

    #[test]
    fn the_last_of_two_equal_words_counts() {
        assert_eq!(BootConfig::parse(&line("basalt.token=later")).unwrap().token, "later");
    }

    #[test]
    fn runs_without_a_root_and_without_bootif() {
        let config = BootConfig::parse(&line("")).unwrap();
        assert_eq!((config.root, config.boot_mac), (None, None));
    }

    #[test]
    fn names_the_word_that_is_missing_or_wrong() {
        assert_eq!(
            BootConfig::parse("basalt.url=https://x basalt.token=t"),
            Err(CmdlineError::Missing("basalt.spki"))
        );
        for (extra, word) in [
            ("basalt.url=http://10.77.0.1", "basalt.url"),
            ("basalt.spki=12", "basalt.spki"),
            ("basalt.root=00", "basalt.root"),
            ("BOOTIF=01-52-54-00-aa", "BOOTIF"),
            ("BOOTIF=01-52-54-00-aa-00-0x", "BOOTIF"),
        ] {
            let error = BootConfig::parse(&line(extra)).unwrap_err();
            assert!(error.to_string().starts_with(word) || error.to_string().contains(word), "{error}");
        }
    }
}
