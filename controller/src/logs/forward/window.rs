//! Lines that were written to a stream and are not confirmed yet.
//!
//! Syslog over TCP has no answers, so a region cannot know what a receiver has stored. It counts a line as received in one of these cases:
//!
//! 1. More than [`BUFFERED`] bytes were written after it. The kernel's buffer holds fewer, so the receiver's kernel has acknowledged it.
//! 2. It was written [`AGE`] ago, and the connection still exists. The kernel ends a connection without an acknowledgement for
//!    [`UNACKNOWLEDGED`].
//! 3. The receiver closed its side after the region had closed its own.
//!
//! Other lines are sent again after a connection has failed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use basalt_db::Positions;

use crate::logs::files::Position;

/// The largest size of the kernel's send buffer, in bytes. The socket option is half of it, since the kernel doubles the value (socket(7)).
pub(super) const BUFFERED: u64 = 512 << 10;
/// The kernel ends a connection after this long without an acknowledgement (TCP_USER_TIMEOUT, RFC 5482).
pub(super) const UNACKNOWLEDGED: Duration = Duration::from_secs(20);
/// Longer than [`UNACKNOWLEDGED`], by a margin.
const AGE: Duration = Duration::from_secs(25);

/// Lines that were written together.
#[derive(Debug)]
struct Written {
    /// Number of bytes in the stream up to the end of these lines.
    end: u64,
    at: Instant,
    batch: Batch,
}

/// Lines that are confirmed together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    /// The last number of each spool in the batch.
    pub(super) positions: Positions,
    /// The number of lines.
    pub(super) lines: u64,
    /// The number of lines that are missing before them.
    pub(super) lost: u64,
    /// The position after them in this region's journal.
    pub(super) position: Position,
}

impl Batch {
    /// Appends later lines.
    pub(super) fn extend(&mut self, later: Self) {
        self.positions.extend(later.positions);
        self.lines += later.lines;
        self.lost += later.lost;
        self.position = self.position.max(later.position);
    }
}

/// Lines that are not confirmed yet, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Window {
    written: VecDeque<Written>,
    end: u64,
}

impl Window {
    /// Adds lines that were just written, with their size in bytes.
    pub(super) fn wrote(&mut self, bytes: u64, at: Instant, batch: Batch) {
        self.end += bytes;
        self.written.push_back(Written { end: self.end, at, batch });
    }

    /// Removes the lines that count as received, and returns them.
    pub(super) fn confirmed(&mut self, now: Instant) -> Batch {
        let mut confirmed = Batch::default();
        while let Some(first) = self.written.front()
            && (self.end - first.end > BUFFERED || now.duration_since(first.at) >= AGE)
        {
            confirmed.extend(self.written.pop_front().map(|it| it.batch).unwrap_or_default());
        }
        confirmed
    }

    /// Removes and returns all lines: the receiver has read everything.
    pub(super) fn all(&mut self) -> Batch {
        let mut all = Batch::default();
        self.written.drain(..).for_each(|written| all.extend(written.batch));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(seq: u64) -> Batch {
        Batch {
            positions: Positions::from([("a".to_owned(), seq)]),
            lines: 1,
            lost: 0,
            position: Position::start(seq),
        }
    }

    #[test]
    fn lines_are_received_when_the_buffer_holds_them_no_more_or_they_are_old() {
        let (mut window, start) = (Window::default(), Instant::now());
        window.wrote(100, start, batch(1));
        window.wrote(BUFFERED, start, batch(2));
        assert_eq!(window.confirmed(start), Batch::default());
        window.wrote(1, start + AGE / 2, batch(3));
        assert_eq!(window.confirmed(start + AGE / 2), batch(1));
        assert_eq!(window.confirmed(start + AGE), batch(2));
        window.wrote(1, start + AGE, batch(4));
        assert_eq!(window.all(), Batch { lines: 2, ..batch(4) });
        assert_eq!(window.all(), Batch::default());
    }
}
