//! Retransmission of a message until it is answered, or until its limits are reached (RFC 8415 §15 and §7.6).

use std::time::Duration;

use super::message;

/// The retransmission parameters of a message type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) kind: u8,
    /// IRT, the first interval.
    first: Duration,
    /// MRT, the longest interval. For SOLICIT a server may set another one.
    longest: Duration,
    /// MRC, the most transmissions. 0: no limit.
    times: u32,
    /// The first transmission has a random delay, and the first interval is never below IRT. Machines that start together then do not send
    /// together (§18.2.1).
    staggered: bool,
}

const fn rules(kind: u8, first: u64, longest: u64, times: u32) -> Rules {
    let staggered = kind == message::SOLICIT;
    Rules { kind, first: Duration::from_secs(first), longest: Duration::from_secs(longest), times, staggered }
}

pub(super) static SOLICIT: Rules = rules(message::SOLICIT, 1, 3600, 0);
pub(super) static REQUEST: Rules = rules(message::REQUEST, 1, 30, 10);
pub(super) static RENEW: Rules = rules(message::RENEW, 10, 600, 0);
pub(super) static REBIND: Rules = rules(message::REBIND, 10, 600, 0);
pub(super) static DECLINE: Rules = rules(message::DECLINE, 1, 3600, 4);

/// Random numbers (xorshift64*). With a secret seed, other hosts cannot guess them.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        u32::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32).unwrap_or_default()
    }

    /// A random number from 0 to 1.
    fn part(&mut self) -> f64 {
        f64::from(self.next()) / f64::from(u32::MAX)
    }
}

/// One message with its retransmissions.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) rules: &'static Rules,
    pub(super) xid: [u8; 3],
    /// Number of transmissions so far.
    pub(super) sent: u32,
    /// Time of the next transmission.
    pub(super) due: Duration,
    longest: Duration,
    began: Duration,
    wait: Duration,
}

impl Exchange {
    pub(super) fn start(rules: &'static Rules, now: Duration, random: &mut Random) -> Self {
        let [_, xid @ ..] = random.next().to_be_bytes();
        let delay =
            if rules.staggered { Duration::from_secs(1).mul_f64(random.part()) } else { Duration::ZERO };
        let due = now.saturating_add(delay);
        Self { rules, xid, sent: 0, due, longest: rules.longest, began: due, wait: Duration::ZERO }
    }

    /// Sets another MRT (§18.2.1, SOL_MAX_RT).
    pub(super) fn at_most_every(mut self, longest: Option<Duration>) -> Self {
        self.longest = longest.unwrap_or(self.longest);
        self
    }

    /// True if the last allowed transmission was sent and its interval has passed.
    pub(super) const fn is_over(&self) -> bool {
        self.rules.times > 0 && self.sent >= self.rules.times
    }

    /// Time since the first transmission.
    pub(super) fn elapsed(&self, now: Duration) -> Duration {
        now.saturating_sub(self.began)
    }

    /// Notes a transmission, and computes the time of the next.
    pub(super) fn send(&mut self, now: Duration, random: &mut Random) {
        let part = random.part();
        // RAND: up to a tenth more or less.
        let rand = if self.rules.staggered && self.sent == 0 { part / 10.0 } else { part / 5.0 - 0.1 };
        if self.sent == 0 {
            self.began = now;
            self.wait = self.rules.first.mul_f64(1.0 + rand);
        } else {
            let doubled = self.wait.mul_f64(2.0 + rand);
            self.wait = if doubled > self.longest { self.longest.mul_f64(1.0 + rand) } else { doubled };
        }
        self.sent = self.sent.saturating_add(1);
        self.due = now.saturating_add(self.wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times of the transmissions, in seconds after the start.
    fn times(rules: &'static Rules, seed: u64, until: f64) -> Vec<f64> {
        let mut random = Random::new(seed);
        let mut exchange = Exchange::start(rules, Duration::ZERO, &mut random);
        let mut times = Vec::new();
        while !exchange.is_over() && exchange.due.as_secs_f64() < until {
            let now = exchange.due;
            times.push(now.as_secs_f64());
            exchange.send(now, &mut random);
        }
        times
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        for seed in 1..200 {
            let sent = times(&REQUEST, seed * 7919, f64::INFINITY);
            assert_eq!((sent.len(), sent[0]), (10, 0.0), "as often as it may be, and at once");
            let waits: Vec<f64> = sent.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!((0.9..=1.1).contains(&waits[0]), "{waits:?}");
            for pair in waits.windows(2) {
                let expected = if pair[0] * 2.1 > 30.0 { 0.0..=33.0 } else { pair[0] * 1.9..=pair[0] * 2.1 };
                assert!(expected.contains(&pair[1]), "{waits:?}");
            }
        }
    }

    #[test]
    fn the_first_solicit_comes_a_moment_later_and_its_wait_is_never_short() {
        for seed in 1..200 {
            let sent = times(&SOLICIT, seed * 7919, 60.0);
            assert!((0.0..=1.0).contains(&sent[0]), "{sent:?}");
            assert!((1.0..=1.1001).contains(&(sent[1] - sent[0])), "{sent:?}");
            assert!((5..=7).contains(&sent.len()), "{sent:?}");
        }
    }
}
