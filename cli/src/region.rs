//! Connections of commands to a region, with the same flags and variables for all commands.

use std::path::{Path, PathBuf};

use basalt_api::Kind;
use basalt_api::client::{Client, ClientConfig, ClientError, Proxies};

use crate::session::Session;

/// Where the region is, and who we are to it.
#[derive(Debug, clap::Args)]
pub(crate) struct Connection {
    /// Regions, comma-separated: https://HOST:5240, http://127.0.0.1:5240 or unix:/PATH/api.sock; or racks: https://RACK:5248#spki=HEX
    #[arg(
        long,
        global = true,
        env = "BASALT_ENDPOINT",
        value_name = "URLS",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:5240"
    )]
    endpoint: Vec<String>,
    /// File with the API token (the token itself: BASALT_TOKEN); without one, the session of `basalt login`
    #[arg(long, global = true, env = "BASALT_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// PEM file with the certificates that may have signed the region's
    #[arg(long, global = true, env = "BASALT_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// The region refused, or did not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A file cannot be read or written.
    #[error("cannot use {}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A word of the command line is invalid.
    #[error("{0}")]
    Words(String),
    /// The asynchronous runtime could not be started.
    #[error("this program cannot start its runtime: {0}")]
    Runtime(std::io::Error),
}

impl Connection {
    /// A client of the region, with the given token or that of the session.
    pub(crate) fn client(&self) -> Result<Client, Failed> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|source| Failed::File { path: path.clone(), source })
        };
        let token = match (std::env::var("BASALT_TOKEN").ok().filter(|t| !t.is_empty()), &self.token_file) {
            (Some(token), _) => Some(token),
            (None, Some(path)) => Some(token(path, &read(path)?)?),
            (None, None) => self.session()?.token()?,
        };
        self.client_with(token)
    }

    /// The variable or flag that gives a token. `None`: the session's token is used.
    pub(crate) fn token_given_by(&self) -> Option<&'static str> {
        match std::env::var("BASALT_TOKEN") {
            Ok(token) if !token.is_empty() => Some("BASALT_TOKEN"),
            _ => self.token_file.as_ref().map(|_| "BASALT_TOKEN_FILE, or --token-file,"),
        }
    }

    /// The regions, as text for people.
    pub(crate) fn regions(&self) -> String {
        self.endpoint.join(", ")
    }

    /// Advice for a person whom the region does not know.
    pub(crate) fn who_to_be(&self) -> &'static str {
        match self.token_given_by() {
            Some("BASALT_TOKEN") => "look at BASALT_TOKEN",
            Some(_) => "look at the file of BASALT_TOKEN_FILE, or --token-file",
            None => "log in with `basalt login USER`, or give a token with BASALT_TOKEN or --token-file",
        }
    }

    /// The session with these regions.
    pub(crate) fn session(&self) -> Result<Session, Failed> {
        Session::of(&self.endpoint)
    }

    /// A client with this token.
    pub(crate) fn client_with(&self, token: Option<String>) -> Result<Client, Failed> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|source| Failed::File { path: path.clone(), source })
        };
        let config = ClientConfig {
            endpoints: self.endpoint.clone(),
            token,
            ca_pem: self.ca_file.as_ref().map(read).transpose()?,
            proxies: Proxies::from_env(|name| std::env::var(name).ok()),
            manager: Some(MANAGER.to_owned()),
            user_agent: Some(concat!("basalt/", env!("CARGO_PKG_VERSION")).to_owned()),
            ..ClientConfig::default()
        };
        Ok(Client::new(&config)?)
    }
}

/// The token in a file.
fn token(path: &Path, text: &str) -> Result<String, Failed> {
    let token = text.trim();
    if token.is_empty() {
        let at = path.display();
        return Err(Failed::Words(format!(
            "there is no token in {at}, which --token-file or BASALT_TOKEN_FILE names; `basalt token issue NAME > {at}` writes one"
        )));
    }
    Ok(token.to_owned())
}

/// The name of this command as a manager.
pub(crate) const MANAGER: &str = "cli";

/// Runs a command that talks to a region.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failed::Runtime)?
        .block_on(work)
}

/// The kind for `machine`, `machines`, `Machine` or `basalt_machine`. `ip-range` means `ip_range`.
pub(crate) fn kind(word: &str) -> Result<&'static Kind, Failed> {
    Kind::find(&word.replace('-', "_")).ok_or_else(|| {
        let kinds: Vec<_> = basalt_api::KINDS.iter().map(|kind| kind.plural).collect();
        Failed::Words(format!("there is no kind {word:?}; there are {}", kinds.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_without_a_token_is_told_as_such() {
        assert_eq!(token(Path::new("ci.tok"), " t0ken\n").unwrap(), "t0ken");
        for text in ["", "\n"] {
            let said = token(Path::new("ci.tok"), text).unwrap_err().to_string();
            assert!(said.starts_with("there is no token in ci.tok, which --token-file"), "{said}");
        }
    }
}
