//! The account that PostgreSQL runs as. PostgreSQL refuses to run as root.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The accounts to try, in this order, if none is named.
const USUAL: [&str; 2] = ["basalt", "postgres"];

/// An account of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The account's name.
    pub name: String,
    /// Its user id.
    pub uid: u32,
    /// Its group id.
    pub gid: u32,
}

/// The reason why PostgreSQL cannot run as an account.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// The account does not exist.
    #[error(
        "PostgreSQL does not run as root, and this host has no account {wanted}; \
         make one: useradd --system --no-create-home --shell /usr/sbin/nologin basalt"
    )]
    Missing {
        /// The names that were tried.
        wanted: String,
    },
    /// An account was named, but only root can change to it.
    #[error("only root can run PostgreSQL as another account; leave out the setting postgres-user ({0:?})")]
    NotRoot(String),
    /// The account may not enter a directory on the path.
    #[error("account {account:?} cannot enter {path}, which is on the way to the data directory; chmod o+x {path}, or choose another --data-dir", path = path.display())]
    Closed {
        /// The account's name.
        account: String,
        /// The closed directory.
        path: PathBuf,
    },
    /// A directory on the path cannot be inspected.
    #[error("cannot look at {path}", path = path.display())]
    Unknown {
        /// The path of the directory.
        path: PathBuf,
        /// The error of the file system.
        source: std::io::Error,
    },
}

impl Account {
    /// The account to change to; `None` if this process is not root.
    pub(crate) fn choose(wanted: Option<&str>) -> Result<Option<Self>, AccountError> {
        if !rustix::process::geteuid().is_root() {
            return match wanted {
                Some(name) => Err(AccountError::NotRoot(name.to_owned())),
                None => Ok(None),
            };
        }
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let names = wanted.map_or_else(|| USUAL.to_vec(), |name| vec![name]);
        match names.iter().find_map(|name| find(&passwd, name)) {
            Some(account) => Ok(Some(account)),
            None => Err(AccountError::Missing { wanted: names.join(" or ") }),
        }
    }

    /// Checks that the account can enter every directory on the path to `dir`.
    pub(crate) fn can_reach(&self, dir: &Path) -> Result<(), AccountError> {
        for path in dir.ancestors().collect::<Vec<_>>().into_iter().rev() {
            let meta = std::fs::metadata(path)
                .map_err(|source| AccountError::Unknown { path: path.to_owned(), source })?;
            let enter = match () {
                () if meta.uid() == self.uid => 0o100,
                () if meta.gid() == self.gid => 0o010,
                () => 0o001,
            };
            if meta.mode() & enter == 0 {
                return Err(AccountError::Closed { account: self.name.clone(), path: path.to_owned() });
            }
        }
        Ok(())
    }
}

/// Finds an account in the text of /etc/passwd.
fn find(passwd: &str, name: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then_some(())?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Account { name: name.to_owned(), uid, gid })
    })
}

/// Runs the child as the account, in its own process group: a ctrl-C at the region's terminal does not reach it.
pub(crate) fn run_as(command: &mut tokio::process::Command, account: Option<&Account>) {
    command.process_group(0);
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn accounts_are_found_by_name() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nbasalt:x:998:997::/nonexistent:/usr/sbin/nologin\n";
        assert_eq!(find(passwd, "basalt"), Some(Account { name: "basalt".to_owned(), uid: 998, gid: 997 }));
        assert_eq!(find(passwd, "bas"), None);
        assert_eq!(find("basalt:x", "basalt"), None);
    }

    #[test]
    fn a_closed_directory_on_the_way_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let stranger = Account { name: "basalt".to_owned(), uid: 4_000_000, gid: 4_000_000 };
        let set = |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        set(0o700);
        let error = stranger.can_reach(&inner).unwrap_err().to_string();
        assert!(error.contains(&format!("cannot enter {}", dir.path().display())), "{error}");
        set(0o711);
        stranger.can_reach(&inner).unwrap();
    }
}
