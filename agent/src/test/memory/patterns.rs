//! Patterns of memory tests, over cells that may be faulty.
//!
//! | pattern | finds |
//! | --- | --- |
//! | address | cells that answer at two addresses |
//! | random | neighbours that disturb each other, weak cells |
//! | checkerboard | shorts between neighbouring bits |
//! | walking one | data lines that are stuck or joined |
//!
//! Each is followed by its inverse, so that every bit has been 0 and 1.

use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

use super::{DESCRIBED, MIB_WORDS};

/// Words of memory.
pub(super) trait Cells {
    fn count(&self) -> usize;
    fn write(&mut self, index: usize, word: u64);
    fn read(&self, index: usize) -> u64;
}

impl Cells for Vec<u64> {
    fn count(&self) -> usize {
        self.len()
    }

    fn write(&mut self, index: usize, word: u64) {
        if let Some(cell) = self.get_mut(index) {
            *cell = word;
        }
    }

    fn read(&self, index: usize) -> u64 {
        self.get(index).copied().unwrap_or_default()
    }
}

/// A word that was read back wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    pub(super) index: usize,
    pub(super) expected: u64,
    pub(super) read: u64,
    pub(super) pattern: &'static str,
}

/// All mismatches of an area: their count, and the first of them.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) count: u64,
    pub(super) described: Vec<Mismatch>,
}

/// Words that a pattern has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) written: usize,
    pub(super) read: usize,
}

#[derive(Clone, Copy)]
enum Kind {
    Address,
    Random,
    Checkerboard,
    WalkingOne,
}

pub(super) struct Pattern {
    pub(super) name: &'static str,
    kind: Kind,
    /// XOR mask for each word.
    mask: u64,
}

pub(super) const PATTERNS: [Pattern; 8] = [
    Pattern { name: "address", kind: Kind::Address, mask: 0 },
    Pattern { name: "address inverted", kind: Kind::Address, mask: u64::MAX },
    Pattern { name: "random", kind: Kind::Random, mask: 0 },
    Pattern { name: "random inverted", kind: Kind::Random, mask: u64::MAX },
    Pattern { name: "checkerboard", kind: Kind::Checkerboard, mask: 0 },
    Pattern { name: "checkerboard inverted", kind: Kind::Checkerboard, mask: u64::MAX },
    Pattern { name: "walking one", kind: Kind::WalkingOne, mask: 0 },
    Pattern { name: "walking zero", kind: Kind::WalkingOne, mask: u64::MAX },
];

impl Pattern {
    /// Writes the pattern and reads it back. Writing stops at half of the time until `end`, reading stops at `end`, each after at least one
    /// block.
    pub(super) fn exchange<C: Cells>(
        &self,
        cells: &mut C,
        pass: u64,
        end: Instant,
        found: &mut Found,
    ) -> Progress {
        let mask = self.mask;
        // A separate loop for each pattern avoids a function call for each word.
        match self.kind {
            Kind::Address => self.walk(cells, |index| (index * 8) ^ mask, end, found),
            Kind::Random => self.walk(cells, |index| random((pass << 48) ^ index) ^ mask, end, found),
            Kind::Checkerboard => self.walk(cells, |_| 0x5555_5555_5555_5555 ^ mask, end, found),
            Kind::WalkingOne => self.walk(cells, |index| (1 << ((index + pass) % 64)) ^ mask, end, found),
        }
    }

    fn walk<C: Cells>(
        &self,
        cells: &mut C,
        word: impl Fn(u64) -> u64,
        end: Instant,
        found: &mut Found,
    ) -> Progress {
        let now = Instant::now();
        let half = now + end.saturating_duration_since(now) / 2;
        let mut done = Progress { written: 0, read: 0 };
        for block in blocks(cells.count()) {
            done.written = block.end;
            for index in block {
                cells.write(index, word(index as u64));
            }
            if Instant::now() >= half {
                break;
            }
        }
        // Without this, the compiler could assume the written values and skip the read.
        let cells = black_box(cells);
        for block in blocks(done.written) {
            done.read = block.end;
            for index in block {
                let (expected, read) = (word(index as u64), cells.read(index));
                if read != expected {
                    found.count += 1;
                    if found.described.len() < DESCRIBED {
                        found.described.push(Mismatch { index, expected, read, pattern: self.name });
                    }
                }
            }
            if Instant::now() >= end {
                break;
            }
        }
        done
    }
}

/// Ranges of a mebibyte each.
fn blocks(words: usize) -> impl Iterator<Item = Range<usize>> {
    (0..words).step_by(MIB_WORDS).map(move |from| from..words.min(from + MIB_WORDS))
}

/// SplitMix64: the word of a sequence by its number.
const fn random(number: u64) -> u64 {
    let word = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Memory with a fault.
    struct Faulty {
        cells: Vec<u64>,
        fault: Fault,
    }

    #[derive(Clone, Copy)]
    enum Fault {
        /// These bits of a word are always 1, or always 0.
        Stuck { index: usize, ones: u64, zeroes: u64 },
        /// Writing one word writes another as well.
        Alias { written: usize, also: usize },
    }

    impl Cells for Faulty {
        fn count(&self) -> usize {
            self.cells.len()
        }

        fn write(&mut self, index: usize, word: u64) {
            self.cells[index] = word;
            match self.fault {
                Fault::Alias { written, also } if written == index => self.cells[also] = word,
                _ => {}
            }
        }

        fn read(&self, index: usize) -> u64 {
            match self.fault {
                Fault::Stuck { index: at, ones, zeroes } if at == index => {
                    (self.cells[index] | ones) & !zeroes
                }
                _ => self.cells[index],
            }
        }
    }

    fn found(fault: Fault) -> Found {
        let mut cells = Faulty { cells: vec![0; 3 * 512], fault };
        let mut found = Found::default();
        let end = Instant::now() + Duration::from_secs(60);
        for pattern in &PATTERNS {
            let done = pattern.exchange(&mut cells, 0, end, &mut found);
            assert_eq!(done, Progress { written: 3 * 512, read: 3 * 512 });
        }
        found
    }

    #[test]
    fn sound_memory_has_no_mismatch() {
        let mut cells = vec![0; MIB_WORDS + 7];
        let mut found = Found::default();
        let end = Instant::now() + Duration::from_secs(60);
        for pass in 0..2 {
            for pattern in &PATTERNS {
                let done = pattern.exchange(&mut cells, pass, end, &mut found);
                assert_eq!(done.read, cells.len());
            }
        }
        assert_eq!(found.count, 0);
    }

    #[test]
    fn every_bit_that_is_stuck_is_found_with_its_place() {
        for bit in 0..64 {
            for (ones, zeroes) in [(1 << bit, 0), (0, 1 << bit)] {
                let found = found(Fault::Stuck { index: 700, ones, zeroes });
                // A pattern or its inverse shows it.
                assert!(found.count >= 4, "bit {bit}: {}", found.count);
                let first = &found.described[0];
                assert_eq!((first.index, first.expected ^ first.read), (700, 1 << bit));
            }
        }
    }

    #[test]
    fn a_cell_that_answers_at_two_addresses_is_found() {
        let found = found(Fault::Alias { written: 1000, also: 3 });
        let first = &found.described[0];
        assert_eq!((first.index, first.pattern), (3, "address"));
        assert_eq!((first.expected, first.read), (24, 8000));
        assert!(found.count > found.described.len() as u64);
        assert_eq!(found.described.len(), DESCRIBED);
    }

    #[test]
    fn without_time_one_block_is_still_read_back() {
        let mut cells = vec![0; 3 * MIB_WORDS];
        let done = PATTERNS[0].exchange(&mut cells, 0, Instant::now(), &mut Found::default());
        assert_eq!(done, Progress { written: MIB_WORDS, read: MIB_WORDS });
    }
}
