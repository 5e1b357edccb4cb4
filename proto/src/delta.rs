//! The difference between two versions of a concern's body.
//!
//! A body lists its entries in a fixed order, and one change leaves most entries unchanged. A delta copies the
//! unchanged ranges of the old body and contains the other bytes. So it is as long as the change. It needs no knowledge
//! of the message: the entries of all concerns, and entries inside others, are served alike.
//!
//! The caller compares a digest of the result: [`apply`] cannot see whether it was given the right body.

use std::collections::HashMap;

use crate::rack_v1::DeltaPart;

/// The length of the blocks by which equal ranges are found, in bytes. Shorter equal ranges are sent again: a part that
/// copies takes up to 12 bytes itself.
const BLOCK: usize = 32;

/// The reason why a delta cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadDelta {
    /// A part copies bytes that the body does not have.
    OutOfRange {
        /// The first byte of the part.
        offset: u64,
        /// The number of bytes of the part.
        length: u64,
        /// The length of the body.
        body: usize,
    },
    /// The result is longer than the limit.
    TooLong {
        /// The most bytes of a body.
        limit: usize,
    },
}

impl std::fmt::Display for BadDelta {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OutOfRange { offset, length, body } => {
                write!(f, "it copies {length} bytes at {offset} of a body of {body} bytes")
            }
            Self::TooLong { limit } => write!(f, "it makes a body of more than {limit} bytes"),
        }
    }
}

impl std::error::Error for BadDelta {}

/// The parts that make `new` of `old`. The work is in proportion to the length of the bodies.
#[must_use]
pub fn between(old: &[u8], new: &[u8]) -> Vec<DeltaPart> {
    let mut blocks: HashMap<&[u8], usize> = HashMap::new();
    for (number, block) in old.chunks_exact(BLOCK).enumerate() {
        blocks.entry(block).or_insert(number * BLOCK);
    }
    let mut parts = Vec::new();
    // `new[..sent]` is in `parts`; `new[sent..at]` is in no block of `old`.
    let (mut sent, mut at) = (0, 0);
    while let Some(block) = new.get(at..at + BLOCK) {
        let Some(&found) = blocks.get(block) else {
            at += 1;
            continue;
        };
        let before = common(old[..found].iter().rev(), new[sent..at].iter().rev());
        let behind = common(old[found + BLOCK..].iter(), new[at + BLOCK..].iter());
        insert(&mut parts, &new[sent..at - before]);
        let (offset, length) = ((found - before) as u64, (before + BLOCK + behind) as u64);
        parts.push(DeltaPart { offset, length, insert: Vec::new() });
        at += BLOCK + behind;
        sent = at;
    }
    insert(&mut parts, &new[sent..]);
    parts
}

/// The number of equal bytes at the beginning.
fn common<'a>(one: impl Iterator<Item = &'a u8>, other: impl Iterator<Item = &'a u8>) -> usize {
    one.zip(other).take_while(|(one, other)| one == other).count()
}

/// Inserts these bytes behind the last part.
fn insert(parts: &mut Vec<DeltaPart>, bytes: &[u8]) {
    match parts.last_mut() {
        _ if bytes.is_empty() => {}
        Some(last) => last.insert = bytes.to_vec(),
        None => parts.push(DeltaPart { insert: bytes.to_vec(), ..DeltaPart::default() }),
    }
}

/// The new body of `old` and a delta. Each part copies a range of `old`, and then inserts its own bytes.
///
/// # Errors
/// A part is outside `old`, or the result is longer than `limit` bytes.
pub fn apply(old: &[u8], parts: &[DeltaPart], limit: usize) -> Result<Vec<u8>, BadDelta> {
    let mut new = Vec::new();
    for DeltaPart { offset, length, insert } in parts {
        let outside = BadDelta::OutOfRange { offset: *offset, length: *length, body: old.len() };
        let start = usize::try_from(*offset).map_err(|_| outside)?;
        let end =
            usize::try_from(*length).ok().and_then(|length| start.checked_add(length)).ok_or(outside)?;
        let copied = old.get(start..end).ok_or(outside)?;
        if copied.len() + insert.len() > limit.saturating_sub(new.len()) {
            return Err(BadDelta::TooLong { limit });
        }
        new.extend_from_slice(copied);
        new.extend_from_slice(insert);
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::Message;

    const LIMIT: usize = 1 << 20;

    /// Entries of some length; few different ones, so that equal blocks are frequent.
    fn entries() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let entry = (0..12u8, 0..90usize).prop_map(|(seed, length)| {
            (0..length).map(|at| seed.wrapping_mul(31).wrapping_add((at / 3) as u8)).collect()
        });
        prop::collection::vec(entry, 0..40)
    }

    fn length(parts: &[DeltaPart]) -> usize {
        parts.iter().map(Message::encoded_len).sum()
    }

    proptest! {
        #[test]
        fn a_delta_makes_the_new_body_of_the_old_one(old in entries(), new in entries()) {
            let (old, new) = (old.concat(), new.concat());
            prop_assert_eq!(apply(&old, &between(&old, &new), LIMIT), Ok(new));
        }

        #[test]
        fn an_entry_that_is_changed_added_or_removed_costs_its_own_length(
            seeds in prop::collection::vec(any::<u64>(), 3..200),
            at in any::<prop::sample::Index>(),
            other in any::<u64>(),
        ) {
            // Bytes of an entry look like random ones, as keys and hashes do.
            let entry = |seed: &u64| {
                let mut state = *seed | 1;
                std::iter::repeat_with(move || {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 56) as u8
                }).take(200).collect::<Vec<u8>>()
            };
            let old: Vec<Vec<u8>> = seeds.iter().map(entry).collect();
            let at = at.index(old.len());
            let (mut changed, mut longer, mut shorter) = (old.clone(), old.clone(), old.clone());
            changed[at] = entry(&other);
            longer.insert(at, entry(&other));
            shorter.remove(at);
            let old = old.concat();
            for (new, most) in [(changed, 300), (longer, 300), (shorter, 100)] {
                let new = new.concat();
                let parts = between(&old, &new);
                prop_assert!(length(&parts) < most, "{} bytes", length(&parts));
                prop_assert_eq!(apply(&old, &parts, LIMIT), Ok(new));
            }
        }

        #[test]
        fn parts_of_another_body_never_panic(
            old in prop::collection::vec(any::<u8>(), 0..100),
            parts in prop::collection::vec((any::<u64>(), 0..200u64, any::<bool>()), 0..6),
        ) {
            let part = |(offset, length, near): (u64, u64, bool)| {
                DeltaPart { offset: if near { offset % 120 } else { offset }, length, insert: vec![7] }
            };
            let parts: Vec<_> = parts.into_iter().map(part).collect();
            if let Ok(new) = apply(&old, &parts, 250) {
                prop_assert!(new.len() <= 250);
            }
        }
    }

    #[test]
    fn a_part_outside_the_body_and_a_body_without_bound_are_refused() {
        let part = |offset, length| DeltaPart { offset, length, insert: vec![0; 4] };
        let outside = |offset, length| Err(BadDelta::OutOfRange { offset, length, body: 10 });
        assert_eq!(apply(&[1; 10], &[part(8, 3)], LIMIT), outside(8, 3));
        assert_eq!(apply(&[1; 10], &[part(u64::MAX, 3)], LIMIT), outside(u64::MAX, 3));
        assert_eq!(apply(&[1; 10], &[part(0, 10), part(0, 10)], 27), Err(BadDelta::TooLong { limit: 27 }));
        assert_eq!(apply(&[1; 10], &[part(0, 10), part(0, 10)], 28).map(|it| it.len()), Ok(28));
        assert_eq!(between(&[], &[]), []);
    }
}
