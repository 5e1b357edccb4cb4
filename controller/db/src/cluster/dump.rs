//! Dumps a database to a file and loads it from a file, by `pg_dump` and `pg_restore`.

use super::binaries::Binaries;
use super::{ClusterError, data_dir, file_error};
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

/// Writes the database at `url` to the file `to`, in the state of one moment. Other clients can continue to write meanwhile.
///
/// # Errors
/// Fails if this host has no fitting PostgreSQL, or if `pg_dump` fails.
pub async fn dump(dir: &Path, url: &str, to: &Path) -> Result<(), ClusterError> {
    let binaries = Binaries::find(&data_dir(dir))?;
    let mut command = Command::new(binaries.bin.join("pg_dump"));
    command.args(["--format=custom", "--no-owner", "--no-privileges", "--file"]).arg(to);
    run(command, url).await
}

/// Loads a file of [`dump`] into the empty database at `url`, in one transaction.
///
/// # Errors
/// Fails if this host has no fitting PostgreSQL, or if `pg_restore` fails.
pub async fn load(dir: &Path, url: &str, from: &Path) -> Result<(), ClusterError> {
    let binaries = Binaries::find(&data_dir(dir))?;
    let mut command = Command::new(binaries.bin.join("pg_restore"));
    command.args(["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"]).arg(from);
    run(command, url).await
}

/// Passes the password in the environment, because every user of the host can read command lines.
async fn run(mut command: Command, url: &str) -> Result<(), ClusterError> {
    let (url, password) = apart(url);
    command.arg("--dbname").arg(url).stdin(Stdio::null()).kill_on_drop(true);
    if let Some(password) = password {
        command.env("PGPASSWORD", password);
    }
    let program = Path::new(command.as_std().get_program()).to_owned();
    let output = command.output().await.map_err(file_error(&program))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let output = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(ClusterError::Tool { program, output })
        }
    }
}

/// `postgres://user:secret@host/db` without `:secret`, and the secret.
fn apart(url: &str) -> (String, Option<String>) {
    let parts = || {
        let (scheme, rest) = url.split_once("://")?;
        let (user, host) = rest.split_once('@')?;
        let (user, password) = user.split_once(':')?;
        Some((format!("{scheme}://{user}@{host}"), decoded(password)))
    };
    parts().map_or_else(|| (url.to_owned(), None), |(url, password)| (url, Some(password)))
}

/// Without percent signs (RFC 3986 §2.1).
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let coded = tail.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match coded.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_leaves_the_url() {
        let plain = "postgres:///basalt?host=/run";
        assert_eq!(apart(plain), (plain.to_owned(), None));
        let (url, password) = apart("postgres://basalt:a%40b%zz@db/basalt");
        assert_eq!((url.as_str(), password.as_deref()), ("postgres://basalt@db/basalt", Some("a@b%zz")));
    }
}
