//! Reads a sample of a disk: large spans at equal distances, from the first byte to the last.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

const MIB: u64 = 1 << 20;
/// Size of a span. It is large enough that the seek takes little of the time.
const SPAN: u64 = 32 * MIB;
/// Bytes of one read.
const PART: usize = 4 << 20;
/// Bytes of one read in the search for a bad sector.
const SMALL_PART: u64 = 64 * 1024;
/// Alignment of the buffer and of offsets, for reads past the page cache.
const ALIGN: usize = 4096;
/// Most errors before a disk is given up: each may take half a minute.
const ERRORS: usize = 4;
/// Bytes read between two lines of progress.
const TELL: u64 = 16 * 1024 * MIB;

/// A disk, or a file, or a disk that fails in a test.
pub(super) trait ReadAt {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }
}

/// The end of a read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Bytes read without an error.
    pub(super) bytes: u64,
    /// Offsets of errors, and their words.
    pub(super) errors: Vec<(u64, String)>,
    /// True if the read was ended after too many errors.
    pub(super) gave_up: bool,
}

/// The ranges to read of a disk of `size` bytes. `sample` 0: all of it.
pub(super) fn plan(size: u64, sample: u64, block: u64) -> Vec<Range<u64>> {
    if sample == 0 || sample >= size {
        return std::iter::once(0..size).collect();
    }
    let span = SPAN.min(sample);
    let spans = sample.div_ceil(span).max(2);
    let length = sample / spans / block.max(1) * block.max(1);
    let last = size - length;
    let unit = block.max(ALIGN as u64);
    let start = |number: u64| {
        let at = u128::from(last) * u128::from(number) / u128::from(spans - 1);
        let at = u64::try_from(at).unwrap_or(last);
        // The last span ends with the disk; the others begin at a whole block.
        if number == spans - 1 { at } else { at / unit * unit }
    };
    (0..spans).map(|number| start(number)..start(number) + length).collect()
}

/// Reads the spans. `tell` gets the progress: bytes read, and bytes in total.
pub(super) fn read(disk: &impl ReadAt, spans: &[Range<u64>], tell: impl Fn(u64, u64)) -> Outcome {
    let mut outcome = Outcome::default();
    let mut buffer = vec![0; PART + ALIGN];
    let skip = buffer.as_ptr().align_offset(ALIGN);
    let Some(buffer) = buffer.get_mut(skip..).and_then(|aligned| aligned.get_mut(..PART)) else {
        return outcome;
    };
    let all: u64 = spans.iter().map(|span| span.end - span.start).sum();
    let mut told = 0;
    for span in spans {
        let mut at = span.start;
        while at < span.end {
            let end = span.end.min(at + PART as u64);
            match read_range(disk, at..end, buffer) {
                Ok(()) => outcome.bytes += end - at,
                Err((offset, first)) => {
                    let (good, again) = narrow(disk, at..end, buffer);
                    outcome.bytes += good;
                    let once = || (offset, format!("{first}, and not when it was read again"));
                    outcome.errors.push(again.unwrap_or_else(once));
                    if outcome.errors.len() >= ERRORS {
                        outcome.gave_up = true;
                        return outcome;
                    }
                }
            }
            at = end;
            if outcome.bytes - told >= TELL {
                told = outcome.bytes;
                tell(told, all);
            }
        }
    }
    tell(outcome.bytes, all);
    outcome
}

/// Reads a range again in small parts, up to the first error. Returns the number of bytes, and the error if it occurred again.
fn narrow(disk: &impl ReadAt, range: Range<u64>, buffer: &mut [u8]) -> (u64, Option<(u64, String)>) {
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min(at + SMALL_PART);
        if let Err((offset, error)) = read_range(disk, at..end, buffer) {
            return (offset - range.start, Some((offset, error.to_string())));
        }
        at = end;
    }
    (range.end - range.start, None)
}

fn read_range(disk: &impl ReadAt, range: Range<u64>, buffer: &mut [u8]) -> Result<(), (u64, io::Error)> {
    let mut at = range.start;
    while at < range.end {
        let length = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(buffer.len());
        let part = buffer.get_mut(..length).unwrap_or_default();
        match disk.read_at(part, at) {
            Ok(0) => return Err((at, io::Error::other("the disk is shorter than it says"))),
            Ok(read) => at += read as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((at, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A disk with bad sectors. It keeps the ranges that were asked for.
    struct Bad {
        size: u64,
        sectors: Vec<u64>,
        /// The sectors can be read the second time.
        is_flaky: bool,
        asked: RefCell<Vec<Range<u64>>>,
    }

    impl ReadAt for Bad {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            assert_eq!(buffer.as_ptr().align_offset(ALIGN), 0);
            let end = self.size.min(offset + buffer.len() as u64);
            let is_again = self.asked.borrow().iter().any(|asked| asked.contains(&offset));
            self.asked.borrow_mut().push(offset..end);
            match !(self.is_flaky && is_again)
                && self.sectors.iter().any(|sector| (offset..end).contains(sector))
            {
                true => Err(io::Error::from_raw_os_error(5)),
                false => Ok(usize::try_from(end - offset).unwrap()),
            }
        }
    }

    fn bad(size: u64, sectors: &[u64]) -> Bad {
        Bad { size, sectors: sectors.to_vec(), is_flaky: false, asked: RefCell::default() }
    }

    #[test]
    fn a_sample_has_both_ends_and_is_spread_evenly() {
        let size = 1000 * MIB + 512;
        let spans = plan(size, 128 * MIB, 512);
        assert_eq!(spans.len(), 4);
        assert_eq!((spans[0].start, spans[3].end), (0, size));
        assert!(spans.iter().all(|span| span.end - span.start == 32 * MIB && span.start % 512 == 0));
        let gaps: Vec<u64> = spans.windows(2).map(|pair| (pair[1].start - pair[0].end) / MIB).collect();
        assert!(gaps.iter().all(|gap| gap.abs_diff(gaps[0]) <= 1), "{gaps:?}");
        assert_eq!(plan(size, 0, 512), Vec::from_iter(std::iter::once(0..size)));
        assert_eq!(plan(MIB, 2 * MIB, 512), Vec::from_iter(std::iter::once(0..MIB)));
        let small = plan(size, MIB, 4096);
        assert_eq!((small.len(), small[0].clone(), small[1].end), (2, 0..MIB / 2, size));
        // The largest disks do not overflow.
        assert_eq!(plan(u64::MAX, 1 << 40, 512).last().unwrap().end, u64::MAX);
    }

    #[test]
    fn a_sound_disk_is_read_whole() {
        let disk = bad(9 * MIB, &[]);
        let outcome = read(&disk, &plan(9 * MIB, 0, 512), |_, _| {});
        assert_eq!(outcome, Outcome { bytes: 9 * MIB, ..Outcome::default() });
        assert_eq!(*disk.asked.borrow(), [0..4 * MIB, 4 * MIB..8 * MIB, 8 * MIB..9 * MIB]);
    }

    #[test]
    fn an_error_is_told_with_its_place_and_the_rest_is_read() {
        let disk = bad(12 * MIB, &[5 * MIB + 70_000]);
        let outcome = read(&disk, &plan(12 * MIB, 0, 512), |_, _| {});
        let place = 5 * MIB + SMALL_PART;
        assert_eq!(outcome.errors, [(place, "Input/output error (os error 5)".to_owned())]);
        assert_eq!((outcome.bytes, outcome.gave_up), (8 * MIB + place - 4 * MIB, false));
    }

    #[test]
    fn an_error_that_does_not_come_again_is_told_too() {
        let disk = Bad { is_flaky: true, ..bad(12 * MIB, &[5 * MIB]) };
        let outcome = read(&disk, &plan(12 * MIB, 0, 512), |_, _| {});
        assert_eq!(outcome.bytes, 12 * MIB);
        let words = "Input/output error (os error 5), and not when it was read again";
        assert_eq!(outcome.errors, [(4 * MIB, words.to_owned())]);
    }

    #[test]
    fn a_disk_of_many_errors_is_given_up() {
        let sectors: Vec<u64> = (0..100).map(|number| number * 4 * MIB).collect();
        let outcome = read(&bad(400 * MIB, &sectors), &plan(400 * MIB, 0, 512), |_, _| {});
        assert_eq!((outcome.errors.len(), outcome.gave_up), (ERRORS, true));
    }

    #[test]
    fn a_disk_that_ends_early_is_an_error() {
        let outcome = read(&bad(MIB, &[]), &plan(2 * MIB, 0, 512), |_, _| {});
        assert_eq!(outcome.errors, [(MIB, "the disk is shorter than it says".to_owned())]);
    }
}
