//! Computations with known results. The results are constants, since a faulty CPU must not be compared with its own results.

use std::fmt;
use std::hint::black_box;

use sha2::{Digest, Sha256};

/// Steps of each computation. All together take about a millisecond, so that a hot CPU can be stopped soon.
const STEPS: u64 = 20_000;
/// Number of matrices in a round, and of rows and columns in each. One matrix fits into a first-level cache.
const MATRICES: usize = 8;
const ROWS: usize = 48;

/// A computation for a CPU.
pub(super) struct Work {
    pub(super) name: &'static str,
    /// Computes. The argument is the CPU's number, for tests; the outcome does not depend on it.
    pub(super) run: fn(usize) -> u64,
    pub(super) expected: u64,
}

/// Arithmetic of each unit: integers, SHA instructions where the CPU has them, floating point with division and roots.
pub(super) const WORKS: [Work; 4] = [
    Work { name: "the chain of integers", run: |_| integers(STEPS), expected: 0x3677_4d5f_cfdd_b99d },
    Work { name: "the chain of SHA-256", run: |_| hashes(STEPS / 20), expected: 0xdcc5_102c_d673_329e },
    Work {
        name: "the orbit of floating point numbers",
        run: |_| floats(STEPS),
        expected: 0x4ddd_2935_a170_7175,
    },
    Work { name: "the products of matrices", run: |_| matrices(), expected: 0x980e_4d31_8285_161c },
];

/// A wrong result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    name: &'static str,
    result: u64,
    expected: u64,
}

impl fmt::Display for Wrong {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} came out as {:#x}, and {:#x} is right", self.name, self.result, self.expected)
    }
}

impl Work {
    /// Computes once. Absent: the result is right.
    pub(super) fn check(&self, cpu: usize) -> Option<Wrong> {
        let result = (self.run)(cpu);
        (result != self.expected).then_some(Wrong { name: self.name, result, expected: self.expected })
    }
}

/// Four chains at a time of multiplication, rotation and division.
fn integers(steps: u64) -> u64 {
    let mut chains = black_box([0x0123_4567_89ab_cdef_u64, 3, 5, 7]);
    for step in 0..steps {
        for chain in &mut chains {
            let mixed = chain.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ step;
            *chain = mixed.wrapping_add(mixed / (step | 1)) ^ (mixed >> 31);
        }
    }
    chains.iter().fold(0, |all, chain| all.rotate_left(13) ^ chain)
}

/// A chain of hashes, each over the previous one.
fn hashes(steps: u64) -> u64 {
    let mut hash: [u8; 32] = Sha256::digest(black_box(b"basalt")).into();
    for _ in 0..steps {
        hash = Sha256::digest(hash).into();
    }
    let (first, _) = hash.split_first_chunk().unwrap_or((&[0; 8], &[]));
    u64::from_be_bytes(*first)
}

/// Orbits of the logistic map, with a square root in each step. IEEE 754 defines the rounding of each operation (§4.3.1).
fn floats(steps: u64) -> u64 {
    let mut orbits = black_box([0.1_f64, 0.2, 0.3, 0.4]);
    for _ in 0..steps {
        for orbit in &mut orbits {
            *orbit = 3.99 * *orbit * (1.0 - *orbit);
            *orbit = (*orbit * *orbit / 1.25 + 0.01).sqrt();
        }
    }
    orbits.iter().fold(0, |all, orbit| all.rotate_left(13) ^ orbit.to_bits())
}

/// Matrices, multiplied by themselves three times, for the vector units, which take the most power. Loops fix the order of additions.
fn matrices() -> u64 {
    let mut next = black_box(1_u32);
    let mut all = 0_u64;
    for _ in 0..MATRICES {
        let mut matrix = [[0.0_f64; ROWS]; ROWS];
        for cell in matrix.iter_mut().flatten() {
            next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *cell = f64::from(next >> 16) / 1_048_576.0;
        }
        for _ in 0..3 {
            matrix = squared(&matrix);
        }
        all = matrix.iter().flatten().fold(all, |all, cell| all.rotate_left(7) ^ cell.to_bits());
    }
    all
}

fn squared(matrix: &[[f64; ROWS]; ROWS]) -> [[f64; ROWS]; ROWS] {
    let mut product = [[0.0; ROWS]; ROWS];
    for (row, out) in matrix.iter().zip(&mut product) {
        for (factor, line) in row.iter().zip(matrix) {
            for (sum, cell) in out.iter_mut().zip(line) {
                *sum += factor * cell;
            }
        }
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sound_cpu_computes_the_known_outcomes() {
        for work in &WORKS {
            assert_eq!(work.check(0), None, "{}", work.name);
        }
    }

    #[test]
    fn one_bit_in_the_work_changes_the_outcome() {
        assert_ne!(integers(STEPS), integers(STEPS - 1));
        assert_ne!(hashes(2), hashes(1));
        assert_ne!(floats(STEPS), floats(STEPS - 1));
    }
}
