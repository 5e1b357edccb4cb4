//! Randomness as an argument of the cores, so that tests can choose it.

use crate::error::Failure;

/// A source of random bytes for session ids, challenges and initialisation vectors.
pub trait Random {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// [`Failure::Crypto`] when the source fails.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Failure>;

    /// Fills an array.
    ///
    /// # Errors
    /// As [`Random::fill`].
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Failure>
    where
        Self: Sized,
    {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// A session id: any number but 0, which means "no session" (§13.17).
    ///
    /// # Errors
    /// As [`Random::fill`].
    fn session_id(&mut self) -> Result<u32, Failure>
    where
        Self: Sized,
    {
        Ok(u32::from_le_bytes(self.array()?).max(1))
    }
}

/// The operating system's randomness, through aws-lc.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Failure> {
        aws_lc_rs::rand::fill(bytes).map_err(|_| Failure::Crypto("the system gave no random bytes"))
    }
}
