//! The number of files that this process may open; each connection is a file.
//!
//! Shells and service managers start a process with a limit of 1,024 and let it raise the limit: to 524,288 under
//! systemd.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that are not connections: the database's, logs, blobs, pipes.
const KEPT: u64 = 256;
/// The least number of places, whatever the limit: with fewer, the service would be useless.
const LEAST: u64 = 16;

/// Raises the limit as far as this process may.
///
/// # Errors
/// `io::Error`: the kernel refuses.
pub fn raise_limit() -> std::io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}

/// The number of places for connections: a `part`th of the files that this process may open, `most` at most.
#[must_use]
pub fn places(part: u64, most: usize) -> usize {
    of_limit(getrlimit(Resource::Nofile).current, part, most)
}

fn of_limit(limit: Option<u64>, part: u64, most: usize) -> usize {
    let Some(limit) = limit else { return most };
    let part = limit.saturating_sub(KEPT) / part.max(1);
    usize::try_from(part.max(LEAST)).unwrap_or(usize::MAX).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_other_files() {
        assert_eq!(of_limit(Some(1024), 2, 4096), 384);
        assert_eq!(of_limit(Some(524_288), 2, 4096), 4096);
        assert_eq!(of_limit(None, 2, 4096), 4096);
        assert_eq!(of_limit(Some(100), 2, 4096), 16);
    }

    #[test]
    fn the_limit_is_raised_to_the_most_that_is_allowed() {
        raise_limit().unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
