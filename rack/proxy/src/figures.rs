//! Figures of Squid's requests, from its access log.
//!
//! Squid's own figures need its cache manager, which `http_access` denies to everybody. The log has a line for each request:
//! `1764356400.123     45 10.9.0.7 TCP_MISS/200 1234 GET http://… - HIER_DIRECT/… text/html`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The results of requests. `hit`: the cache had it, or the server said that it has not changed. `error`: no request was read.
pub const RESULTS: [&str; 5] = ["hit", "miss", "tunnel", "denied", "error"];
/// The longest line that is read, in bytes. Squid cuts URLs at 8 KiB.
const LINE: u64 = 64 << 10;

/// Requests and bytes to clients, in the order of [`RESULTS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Requests that Squid has finished.
    pub requests: [u64; RESULTS.len()],
    /// The bytes of the answers, with their headers.
    pub bytes: [u64; RESULTS.len()],
}

/// Follows the access log of a directory, across its rotation.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    figures: Figures,
    /// The file that was read last, and the bytes of it that count already.
    inode: u64,
    offset: u64,
}

impl Reader {
    /// A reader that counts lines from now on.
    pub(crate) fn new(dir: &Path) -> Self {
        let log = dir.join("access.log").metadata();
        log.map_or_else(
            |_| Self::default(),
            |it| Self { inode: it.ino(), offset: it.len(), ..Self::default() },
        )
    }

    /// Counts the new lines. A log that cannot be read has none.
    pub(crate) fn read(&mut self, dir: &Path) -> Figures {
        let Ok(log) = File::open(dir.join("access.log")) else { return self.figures };
        let Ok(metadata) = log.metadata() else { return self.figures };
        let (inode, length) = (metadata.ino(), metadata.len());
        if inode != self.inode {
            // The last lines before the rotation.
            let old = File::open(dir.join("access.log.old"));
            if let Ok(old) = old
                && old.metadata().is_ok_and(|it| it.ino() == self.inode)
            {
                self.count(old).ok();
            }
            (self.inode, self.offset) = (inode, 0);
        } else if length < self.offset {
            self.offset = 0;
        }
        self.count(log).ok();
        self.figures
    }

    /// Counts the whole lines from the offset on.
    fn count(&mut self, mut log: File) -> io::Result<()> {
        log.seek(SeekFrom::Start(self.offset))?;
        let mut log = BufReader::new(log);
        let mut line = Vec::new();
        loop {
            line.clear();
            let length = io::Read::take(&mut log, LINE).read_until(b'\n', &mut line)? as u64;
            // Squid still writes the last line.
            if length == 0 || (length < LINE && !line.ends_with(b"\n")) {
                return Ok(());
            }
            self.offset += length;
            self.figures.add(&String::from_utf8_lossy(&line));
        }
    }
}

impl Figures {
    fn add(&mut self, line: &str) {
        let mut words = line.split_ascii_whitespace().skip(3);
        let (Some(code), Some(bytes)) = (words.next(), words.next().and_then(|it| it.parse::<u64>().ok()))
        else {
            return;
        };
        let result = match code {
            _ if code.contains("DENIED") => "denied",
            _ if code.starts_with("TCP_TUNNEL") => "tunnel",
            _ if code.starts_with("NONE") => "error",
            _ if code.contains("HIT") || code.contains("UNMODIFIED") => "hit",
            _ => "miss",
        };
        for (name, (requests, sum)) in RESULTS.iter().zip(self.requests.iter_mut().zip(&mut self.bytes)) {
            if *name == result {
                *requests += 1;
                *sum = sum.saturating_add(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    use super::*;

    fn log(dir: &Path, lines: &[&str]) {
        let mut file = OpenOptions::new().create(true).append(true).open(dir.join("access.log")).unwrap();
        for (code, bytes) in lines.iter().zip(100..) {
            writeln!(file, "1764356400.123     45 10.9.0.7 {code} {bytes} GET http://x/y - HIER_NONE/- -")
                .unwrap();
        }
    }

    #[test]
    fn requests_are_counted_by_result_once_across_a_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        log(dir, &["TCP_MISS/200"]);
        let mut reader = Reader::new(dir);
        assert_eq!(reader.read(dir), Figures::default(), "lines of before the start do not count");
        log(dir, &["TCP_MISS/200", "TCP_HIT/200", "TCP_MEM_HIT/200", "TCP_REFRESH_UNMODIFIED/200"]);
        log(dir, &["TCP_TUNNEL/200", "TCP_DENIED/403", "NONE_NONE/000"]);
        let first = Figures { requests: [3, 1, 1, 1, 1], bytes: [101 + 102 + 103, 100, 100, 101, 102] };
        assert_eq!(reader.read(dir), first);
        assert_eq!(reader.read(dir), first);

        // A line is written before the rotation, one after it, and one is not whole yet.
        log(dir, &["TCP_HIT/200"]);
        fs::rename(dir.join("access.log"), dir.join("access.log.old")).unwrap();
        log(dir, &["TCP_HIT/200"]);
        let mut file = OpenOptions::new().append(true).open(dir.join("access.log")).unwrap();
        write!(file, "1764356400.123     45 10.9.0.7 TCP_HIT/200 1").unwrap();
        assert_eq!(reader.read(dir).requests, [5, 1, 1, 1, 1]);
        writeln!(file, "00 GET http://x/y - HIER_NONE/- -").unwrap();
        assert_eq!(reader.read(dir), Figures { requests: [6, 1, 1, 1, 1], bytes: [606, 100, 100, 101, 102] });
    }
}
