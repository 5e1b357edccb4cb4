//! The unix socket for Terraform, in a directory that only this user can enter.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::ServeError;

/// Longest path that fits into a socket address, in bytes.
const LONGEST_PATH: usize = 107;

/// A bound socket. Dropping it removes the socket and its directory.
#[derive(Debug)]
pub(crate) struct PluginSocket {
    listener: StdListener,
    dir: PathBuf,
    path: PathBuf,
}

impl PluginSocket {
    /// Binds a socket under `dir`, by default the temporary directory. If that path would be too
    /// long, it uses `/tmp`.
    pub(crate) fn bind(dir: Option<&Path>) -> Result<Self, ServeError> {
        let mut parent = dir.map_or_else(std::env::temp_dir, Path::to_path_buf);
        if parent.as_os_str().len() + "/plugin-0000000000-0000000000/s".len() > LONGEST_PATH {
            parent = PathBuf::from("/tmp");
        }
        let error = |source| ServeError::Socket { dir: parent.display().to_string(), source };
        let dir = private_dir(&parent).map_err(error)?;
        let path = dir.join("s");
        let bound = StdListener::bind(&path).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        match bound {
            Ok(listener) => Ok(Self { listener, dir, path }),
            Err(source) => {
                let _ = fs::remove_dir(&dir);
                Err(error(source))
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn listener(&self) -> io::Result<StdListener> {
        self.listener.try_clone()
    }
}

impl Drop for PluginSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_dir(&self.dir);
    }
}

fn private_dir(parent: &Path) -> io::Result<PathBuf> {
    let mut number = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    loop {
        let dir = parent.join(format!("plugin-{}-{number}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                number = number.wrapping_add(1);
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_this_user_can_reach_the_socket_and_nothing_of_it_stays() {
        let parent = tempfile::tempdir().expect("a directory");
        let socket = PluginSocket::bind(Some(parent.path())).expect("a socket");
        let mode = fs::metadata(&socket.dir).expect("a directory").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop(socket);
        assert_eq!(fs::read_dir(parent.path()).expect("a directory").count(), 0);
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_avoided() {
        let long = PathBuf::from(format!("/tmp/{}", "x".repeat(120)));
        let socket = PluginSocket::bind(Some(&long)).expect("a socket elsewhere");
        assert!(socket.path().as_os_str().len() <= LONGEST_PATH);
    }
}
