//! Memory test: writes patterns to most of the memory and reads them back. Also compares the error counters of the memory controllers.
//!
//! Each CPU has its own area. A pattern is written to the whole area before it is read back, so that the caches hold little of it. Writing
//! takes at most half of the time that is left, so that everything can be read back.

mod edac;
mod patterns;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use basalt_api::agent::Verdict;

use super::parameters::{Parameter, Parameters, Takes};
use super::results::Results;
use super::{Finding, figure, tell};
use crate::inventory::meminfo;
use crate::root::Root;
use patterns::{Found, Mismatch, PATTERNS};

const MIB: u64 = 1 << 20;
/// Words of 64 bits in a mebibyte.
const MIB_WORDS: usize = 1 << 17;
/// Memory that the test never uses: the agent, the log and the kernel need it.
const RESERVE: u64 = 256 * MIB;
/// Memory that is allocated between two checks of the free memory.
const STEP: usize = 16 * MIB_WORDS;
/// Divisor of the time for allocation: a quarter. A hypervisor may be slow to provide memory.
const TAKING: u32 = 4;
/// Most mismatches of an area that are described. All are counted.
pub(super) const DESCRIBED: usize = 4;
/// Bytes of a page of memory in the kernel's table of pages (proc_pid_pagemap(5)).
const PAGE: u64 = 4096;

pub(super) const PARAMETERS: [Parameter; 3] = [
    Parameter {
        name: "percent",
        takes: Takes::Number { default: 90, range: 1..=98 },
        meaning: "part of the available memory that is tested; 256 MiB are always left",
    },
    Parameter {
        name: "passes",
        takes: Takes::Number { default: 1, range: 1..=1000 },
        meaning: "how often all patterns are written and read back",
    },
    Parameter {
        name: "seconds",
        takes: Takes::Number { default: 300, range: 1..=604_800 },
        meaning: "the test ends then, with what it has found",
    },
];

pub(super) fn run(root: &Root, parameters: &Parameters, results: &mut Results) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs(parameters.number("seconds"));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let before = edac::read(root);
    let available = meminfo(root, "MemAvailable").unwrap_or(0);
    let bytes = share(available, parameters.number("percent"));
    tell(&format!("memory: {} of {} MiB available are tested by {cpus} CPUs", bytes / MIB, available / MIB));
    let words = usize::try_from(bytes / 8).unwrap_or(usize::MAX) / cpus;
    let passes = parameters.number("passes");
    let areas: Vec<Area> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..cpus).map(|number| scope.spawn(move || tested(root, number, words, passes, end))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    });
    let after = edac::read(root);
    results.add(judge(&areas, bytes, passes, &after));
    for finding in edac::judge(&before, &after) {
        results.add(finding);
    }
    Ok(())
}

/// Number of bytes to test, of the available ones.
fn share(available: u64, percent: u64) -> u64 {
    (available / 100 * percent).min(available.saturating_sub(RESERVE))
}

/// The part of the memory that one thread tested.
#[derive(Debug, Default)]
struct Area {
    /// Words that were written and read back at least once.
    words: usize,
    /// Number of words written and read, for all patterns.
    moved: u64,
    seconds: f64,
    /// Patterns that were written and read back whole.
    patterns: u64,
    found: Found,
    /// Descriptions of the first mismatches, for people.
    places: Vec<String>,
}

/// Takes memory and tests it.
fn tested(root: &Root, number: usize, words: usize, passes: u64, end: Instant) -> Area {
    let now = Instant::now();
    let take_until = now + end.saturating_duration_since(now) / TAKING;
    let mut cells = take(words, || {
        Instant::now() < take_until && meminfo(root, "MemAvailable").is_none_or(|left| left >= RESERVE)
    });
    let mut area = Area { words: cells.len(), ..Area::default() };
    let began = Instant::now();
    let mut most = 0;
    for step in 0..passes.saturating_mul(PATTERNS.len() as u64) {
        let Some(pattern) = PATTERNS.get(usize::try_from(step).unwrap_or(0) % PATTERNS.len()) else { break };
        if cells.is_empty() || Instant::now() >= end {
            break;
        }
        let done = pattern.exchange(&mut cells, step / PATTERNS.len() as u64, end, &mut area.found);
        area.moved += (done.written + done.read) as u64;
        most = most.max(done.read);
        if done.read == cells.len() {
            area.patterns += 1;
        }
        if number == 0 {
            tell(&format!("memory: {} {:.0} s", pattern.name, began.elapsed().as_secs_f64()));
        }
    }
    area.seconds = began.elapsed().as_secs_f64();
    area.words = most;
    area.places = area.found.described.iter().map(|mismatch| place(root, &cells, number, mismatch)).collect();
    area
}

/// Allocates and touches memory in steps before the time is measured, while `enough` is true.
fn take(words: usize, enough: impl Fn() -> bool) -> Vec<u64> {
    let mut cells = Vec::new();
    // The kernel promises more memory than it has. It provides pages only when they are written.
    if cells.try_reserve_exact(words).is_err() {
        return cells;
    }
    while cells.len() < words && enough() {
        cells.resize(words.min(cells.len() + STEP), 0);
    }
    cells
}

/// The place of a mismatch. By the physical address, a person finds the module in the board's manual or firmware.
fn place(root: &Root, cells: &[u64], area: usize, mismatch: &Mismatch) -> String {
    let offset = mismatch.index as u64 * 8;
    let address = cells.as_ptr().addr() as u64 + offset;
    let physical = physical(root, address).map(|physical| format!("physical address {physical:#x}, "));
    let Mismatch { pattern, expected, read, .. } = mismatch;
    format!(
        "{}offset {offset:#x} of area {area}: expected {expected:#018x}, read {read:#018x} (bits {:#x}, {pattern})",
        physical.unwrap_or_default(),
        expected ^ read
    )
}

/// The physical address behind one of this process, by the frame number of its page (proc_pid_pagemap(5)).
fn physical(root: &Root, address: u64) -> Option<u64> {
    let mut entry = [0; 8];
    let pages = File::open(root.path("proc/self/pagemap")).ok()?;
    pages.read_exact_at(&mut entry, address / PAGE * 8).ok()?;
    let entry = u64::from_ne_bytes(entry);
    let (present, frame) = (entry >> 63 == 1, entry & ((1 << 55) - 1));
    // The kernel shows zero to processes without the right to read frame numbers.
    (present && frame != 0).then_some(frame * PAGE + address % PAGE)
}

/// The row of the machine's memory. `wanted` bytes were to be tested.
fn judge(areas: &[Area], wanted: u64, passes: u64, counters: &edac::Counters) -> Finding {
    let mut finding = Finding::at(None);
    let words: usize = areas.iter().map(|area| area.words).sum();
    let mib = words as u64 * 8 / MIB;
    let patterns = areas.iter().map(|area| area.patterns).min().unwrap_or(0);
    let wrong: u64 = areas.iter().map(|area| area.found.count).sum();
    let speed: f64 = areas
        .iter()
        .filter(|area| area.seconds > 0.0)
        .map(|area| figure(area.moved) * 8.0 / area.seconds)
        .sum();
    finding.figure("mib_tested", figure(mib));
    finding.figure("gib_per_s", speed / figure(1024 * MIB));
    finding.figure("passes", figure(patterns / PATTERNS.len() as u64));
    finding.figure("wrong_words", figure(wrong));
    if words == 0 {
        finding
            .add(Verdict::Degraded, "nothing was tested: less than 256 MiB of memory, or no time, is left");
    } else if wrong > 0 {
        finding.add(Verdict::Failed, format!("{wrong} words of {mib} MiB were read back wrong"));
        for place in areas.iter().flat_map(|area| &area.places).take(DESCRIBED) {
            finding.add(Verdict::Failed, place);
        }
    } else {
        finding.add(Verdict::Passed, format!("{mib} MiB were read back as they were written"));
    }
    let all = passes.saturating_mul(PATTERNS.len() as u64);
    if words > 0 && patterns < all {
        finding.add(Verdict::Passed, format!("the time was up after {patterns} of {all} patterns"));
    }
    // Areas have whole words for each CPU, so they may be a little smaller than wanted.
    let at_most = mib + areas.len() as u64;
    if words > 0 && at_most < wanted / MIB {
        let wanted = wanted / MIB;
        finding.add(
            Verdict::Passed,
            format!("{wanted} MiB were to be tested, and the time or the memory did not suffice"),
        );
    }
    if counters.is_empty() {
        finding.add(Verdict::Passed, "the kernel shows no error counters of memory (EDAC)");
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_leaves_what_the_system_needs() {
        assert_eq!(share(10_000 * MIB, 90), 9000 * MIB);
        assert_eq!(share(1024 * MIB, 90), 768 * MIB);
        assert_eq!(share(200 * MIB, 90), 0);
    }

    #[test]
    fn no_more_is_taken_once_memory_runs_short() {
        let left = std::cell::Cell::new(3);
        let cells = take(10 * STEP, || left.replace(left.get() - 1) > 0);
        assert_eq!(cells.len(), 3 * STEP);
    }

    fn area(count: u64, patterns: u64) -> Area {
        let mismatch = Mismatch { index: 2, expected: 1, read: 3, pattern: "walking one" };
        let found =
            Found { count, described: vec![mismatch; usize::try_from(count).unwrap().min(DESCRIBED)] };
        let root = Root::at("/no/such/tree");
        let places = found.described.iter().map(|it| place(&root, &[], 1, it)).collect();
        Area { words: MIB_WORDS, moved: 1 << 27, seconds: 2.0, patterns, found, places }
    }

    #[test]
    fn a_mismatch_fails_with_its_place() {
        let all = PATTERNS.len() as u64;
        let row = judge(&[area(0, all), area(7, all)], 2 * MIB, 1, &edac::Counters::new()).row;
        assert_eq!(row.verdict, Verdict::Failed);
        assert!(row.message.starts_with("7 words of 2 MiB were read back wrong; "), "{}", row.message);
        assert!(!row.message.contains("to be tested"), "{}", row.message);
        let place = "offset 0x10 of area 1: expected 0x0000000000000001, read 0x0000000000000003 (bits 0x2, walking one)";
        assert_eq!(row.message.matches(place).count(), DESCRIBED, "{}", row.message);
        assert_eq!(
            (row.figures["mib_tested"], row.figures["gib_per_s"], row.figures["passes"]),
            (2.0, 1.0, 1.0)
        );
    }

    #[test]
    fn memory_that_was_not_tested_does_not_pass() {
        let row = judge(&[Area::default()], MIB, 1, &edac::Counters::new()).row;
        assert_eq!(row.verdict, Verdict::Degraded);
        let row = judge(&[area(0, 3)], 100 * MIB, 1, &edac::Counters::new()).row;
        assert_eq!(row.verdict, Verdict::Passed);
        assert!(row.message.contains("100 MiB were to be tested"), "{}", row.message);
        assert!(row.message.contains("the time was up after 3 of 8 patterns"), "{}", row.message);
    }

    #[test]
    fn a_physical_address_comes_from_the_kernels_table() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        let entries = [0_u64, 1 << 63 | 0x1234, 1 << 63].map(u64::to_ne_bytes).concat();
        std::fs::write(dir.path().join("proc/self/pagemap"), entries).unwrap();
        let root = Root::at(dir.path());
        let addresses = [0x0010, 0x1010, 0x2010, 0x3010].map(|address| physical(&root, address));
        assert_eq!(addresses, [None, Some(0x0123_4010), None, None]);
    }
}
