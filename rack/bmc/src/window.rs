//! The window of new session sequence numbers (IPMI 2.0 §6.12.13).
//!
//! A number is accepted once. The integrity check comes before this one, so a jump ahead is from the peer itself and is
//! accepted. The 31 numbers before the highest may still arrive late.

/// The size of the window: the highest number, and the 31 numbers before it.
const DEPTH: u32 = 32;

/// The sliding window of one direction of a session.
#[derive(Debug, Default)]
pub(crate) struct Window {
    highest: u32,
    /// Bit n: `highest - n` was seen.
    seen: u32,
}

impl Window {
    /// Notes `sequence`; true if it had not been seen before and is not too old.
    pub(crate) fn accept(&mut self, sequence: u32) -> bool {
        if sequence == 0 {
            return false;
        }
        let ahead = sequence.wrapping_sub(self.highest);
        if ahead != 0 && ahead < u32::MAX / 2 {
            self.seen = self.seen.checked_shl(ahead).unwrap_or(0) | 1;
            self.highest = sequence;
            return true;
        }
        let behind = self.highest.wrapping_sub(sequence);
        if behind >= DEPTH {
            return false;
        }
        let bit = 1 << behind;
        let fresh = self.seen & bit == 0;
        self.seen |= bit;
        fresh
    }
}

/// The number after `sequence`; 0 is never used inside a session.
pub(crate) fn next_sequence(sequence: u32) -> u32 {
    sequence.checked_add(1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_accepted_once() {
        let mut window = Window::default();
        assert!(window.accept(1));
        assert!(!window.accept(1));
        assert!(window.accept(3));
        assert!(window.accept(2), "late but new");
        assert!(!window.accept(2));
    }

    #[test]
    fn what_is_too_old_is_refused() {
        let mut window = Window::default();
        assert!(window.accept(100));
        assert!(window.accept(69));
        assert!(!window.accept(68));
        assert!(!window.accept(0));
    }

    #[test]
    fn the_window_goes_on_after_wrapping() {
        let mut window = Window { highest: u32::MAX - 1, seen: 1 };
        assert!(window.accept(u32::MAX));
        assert!(window.accept(next_sequence(u32::MAX)));
        assert_eq!(window.highest, 1);
        assert!(!window.accept(u32::MAX));
    }
}
