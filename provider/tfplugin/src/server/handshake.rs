//! The handshake: Terraform's variables in the environment, and the plugin's answer of one line.

use std::env;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::ServeError;

/// Terraform sets this variable for plugins that it starts. It is not a secret.
const COOKIE: (&str, &str) =
    ("TF_PLUGIN_MAGIC_COOKIE", "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2");

/// The contents of Terraform's variables.
#[derive(Debug, PartialEq)]
pub(crate) struct Handshake {
    /// PEM of the one certificate that may connect. Without it, no TLS.
    pub(crate) client_cert: Option<String>,
    /// Directory for the socket.
    pub(crate) socket_dir: Option<PathBuf>,
    /// Ports to choose from. Zero means any port.
    pub(crate) ports: RangeInclusive<u16>,
    /// True if the host knows the line's seventh field.
    multiplex: bool,
}

impl Handshake {
    pub(crate) fn from_env() -> Result<Self, ServeError> {
        Self::from(|name| env::var(name).ok())
    }

    pub(crate) fn from(env: impl Fn(&str) -> Option<String>) -> Result<Self, ServeError> {
        let env = |name: &str| env(name).filter(|value| !value.is_empty());
        if env(COOKIE.0).as_deref() != Some(COOKIE.1) {
            return Err(ServeError::NotStartedByTerraform);
        }
        let port = |name: &str| env(name).and_then(|port| port.parse::<u16>().ok());
        let ports = match (port("PLUGIN_MIN_PORT"), port("PLUGIN_MAX_PORT")) {
            (Some(first), Some(last)) if first <= last => first..=last,
            _ => 0..=0,
        };
        Ok(Self {
            ports,
            client_cert: env("PLUGIN_CLIENT_CERT"),
            socket_dir: env("PLUGIN_UNIX_SOCKET_DIR").map(PathBuf::from),
            multiplex: env("PLUGIN_MULTIPLEX_GRPC").is_some(),
        })
    }

    /// Core protocol 1, plugin protocol 6, the address, and the certificate (DER) to expect there,
    /// in base64 without padding: Terraform cannot read padding.
    pub(crate) fn line(&self, place: &impl Display, certificate: Option<&[u8]>) -> String {
        let certificate = certificate.map(|der| STANDARD_NO_PAD.encode(der)).unwrap_or_default();
        let multiplex = if self.multiplex { "|false" } else { "" };
        format!("1|6|{place}|grpc|{certificate}{multiplex}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<'a>(given: &'a [(&'a str, &'a str)]) -> Result<Handshake, ServeError> {
        Handshake::from(|name| {
            let (_, value) = given.iter().find(|(known, _)| *known == name)?;
            Some((*value).to_owned())
        })
    }

    impl Handshake {
        /// The handshake with the cookie and these variables.
        pub(crate) fn told(more: &[(&str, &str)]) -> Self {
            let all: Vec<_> = more.iter().copied().chain([COOKIE]).collect();
            with(&all).expect("a handshake")
        }
    }

    #[test]
    fn explains_itself_when_started_by_hand_or_with_a_wrong_cookie() {
        for given in [&[][..], &[("TF_PLUGIN_MAGIC_COOKIE", "wrong")]] {
            let error = with(given).expect_err("not Terraform");
            assert!(error.to_string().starts_with("This program is a Terraform provider"));
        }
    }

    #[test]
    fn the_line_has_six_fields_and_a_seventh_only_when_asked() {
        let plain = with(&[COOKIE]).expect("a handshake");
        assert_eq!(plain.line(&"unix|/run/p", None), "1|6|unix|/run/p|grpc|");
        let multiplex = with(&[COOKIE, ("PLUGIN_MULTIPLEX_GRPC", "true")]).expect("a handshake");
        assert_eq!(multiplex.line(&"unix|/run/p", None), "1|6|unix|/run/p|grpc||false");
    }

    #[test]
    fn the_certificate_is_base64_without_padding() {
        let handshake = with(&[COOKIE]).expect("a handshake");
        for length in 1..=3 {
            let line = handshake.line(&"unix|/run/p", Some(&vec![0xff; length]));
            assert!(!line.contains('='), "{line}");
        }
    }
}
