//! Counters of DNS, for `/metrics`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use basalt_dns::Answer;

use super::forward::latency::Measured;

/// Response codes of replies (RFC 1035 §4.1.1).
const NO_ERROR: u8 = 0;
const NX_DOMAIN: u8 = 3;
const REFUSED: u8 = 5;

/// Answers since the start, without those of the forwarder.
#[derive(Debug, Default)]
pub(super) struct Counters {
    zone: AtomicU64,
    refused: AtomicU64,
    error: AtomicU64,
    secondary: AtomicU64,
    dropped: AtomicU64,
    closed: AtomicU64,
}

/// Figures of the DNS service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Answers since the start, by kind.
    ///
    /// | kind | answer |
    /// | --- | --- |
    /// | `zone` | from a zone, including NXDOMAIN |
    /// | `cache` | from the cache |
    /// | `stale` | from the cache, after its TTL has ended |
    /// | `forwarded` | from another server |
    /// | `failed` | SERVFAIL or REFUSED: no server answered, or the answer had a private address |
    /// | `refused` | REFUSED: the client may not use the forwarder, or the question came back to it |
    /// | `limited` | SERVFAIL: a limit was reached |
    /// | `error` | an error: the query could not be understood |
    /// | `secondary` | to a secondary |
    /// | `dropped` | none: the message is no query |
    pub answers: BTreeMap<&'static str, u64>,
    /// How often each limit was reached, since the start.
    pub limits: BTreeMap<&'static str, u64>,
    /// Queries to other servers.
    pub upstream: Measured,
    /// Answers in the cache.
    pub cache_entries: usize,
    /// The approximate size of the cache, in octets.
    pub cache_bytes: usize,
    /// Zones of this rack.
    pub zones: usize,
    /// Records in all zones.
    pub records: usize,
}

impl Counters {
    /// Counts an answer. The forwarder counts its answers itself.
    pub(super) fn answered(&self, answer: &Answer) {
        let count = match answer {
            Answer::Reply(reply) => match reply.get(3).map(|flags| flags & 0xf) {
                Some(NO_ERROR | NX_DOMAIN) => &self.zone,
                Some(REFUSED) => &self.refused,
                _ => &self.error,
            },
            Answer::Secondary => &self.secondary,
            Answer::Drop => &self.dropped,
            Answer::Forward(_) => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that was closed because its client had as many as one may have.
    pub(super) fn closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Counts {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let answers = [
            ("zone", value(&self.zone)),
            ("refused", value(&self.refused)),
            ("error", value(&self.error)),
            ("secondary", value(&self.secondary)),
            ("dropped", value(&self.dropped)),
        ];
        let limits = [("connections", value(&self.closed))];
        Counts { answers: answers.into(), limits: limits.into(), ..Counts::default() }
    }
}

impl Counts {
    /// Adds the answers of the forwarder.
    pub(super) fn add_forwarder(&mut self, counts: &basalt_dns::Counts) {
        for (kind, count) in [
            ("cache", counts.hits),
            ("stale", counts.stale),
            ("forwarded", counts.answered),
            ("failed", counts.unanswered),
            ("refused", counts.loops),
            ("limited", counts.full + counts.per_client),
        ] {
            *self.answers.entry(kind).or_default() += count;
        }
        self.limits.extend([("questions", counts.full), ("client", counts.per_client)]);
    }
}
