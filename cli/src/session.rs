//! Storage of session tokens: `$XDG_CONFIG_HOME/basalt/sessions`, one file (0600) for each list of regions, so that a token is never sent
//! to other regions.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::region::Failed;

/// The session with some regions.
#[derive(Debug)]
pub(crate) struct Session {
    path: Option<PathBuf>,
}

impl Session {
    /// The session for these endpoints. Without a home directory there are no sessions.
    pub(crate) fn of(endpoints: &[String]) -> Result<Self, Failed> {
        let config = std::env::var_os("XDG_CONFIG_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let home = || std::env::var_os("HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let config = config.or_else(|| Some(home()?.join(".config")));
        Ok(Self { path: config.map(|dir| file(dir, endpoints)) })
    }

    /// The session's token, if there is a session.
    pub(crate) fn token(&self) -> Result<Option<String>, Failed> {
        let Some(path) = &self.path else { return Ok(None) };
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Some(text.trim().to_owned()).filter(|token| !token.is_empty())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Failed::File { path: path.clone(), source }),
        }
    }

    /// Stores a token atomically.
    pub(crate) fn keep(&self, token: &str) -> Result<(), Failed> {
        let Some(path) = &self.path else {
            return Err(Failed::Words(
                "there is no place for the session: set HOME or XDG_CONFIG_HOME".into(),
            ));
        };
        let write = || {
            if let Some(dir) = path.parent() {
                std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            }
            let fresh = path.with_extension("new");
            // Remove an existing file first: other users might be able to read it.
            match std::fs::remove_file(&fresh) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file =
                std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
            writeln!(file, "{token}")?;
            std::fs::rename(&fresh, path)
        };
        write().map_err(|source| Failed::File { path: path.clone(), source })
    }

    /// Removes the token.
    pub(crate) fn forget(&self) -> Result<(), Failed> {
        let Some(path) = &self.path else { return Ok(()) };
        match std::fs::remove_file(path) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                Err(Failed::File { path: path.clone(), source })
            }
            _ => Ok(()),
        }
    }
}

fn file(config: PathBuf, endpoints: &[String]) -> PathBuf {
    let digest = hex::encode(Sha256::digest(endpoints.join(",")));
    config.join("basalt").join("sessions").join(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_kept_for_its_regions_alone_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let of = |url: &str| Session { path: Some(file(dir.path().into(), &[url.to_owned()])) };
        let (a, b) = (of("http://a:5240"), of("http://b:5240"));
        a.keep("secret").unwrap();
        a.keep("secret-2").unwrap();
        assert_eq!(a.token().unwrap().as_deref(), Some("secret-2"));
        assert_eq!(b.token().unwrap(), None);
        let mode = std::fs::metadata(a.path.as_ref().unwrap()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        a.forget().unwrap();
        a.forget().unwrap();
        assert_eq!(a.token().unwrap(), None);
    }
}
