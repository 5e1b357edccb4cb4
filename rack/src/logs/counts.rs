//! Counts of log lines, for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

/// The sender of a line.
#[derive(Debug, Clone, Copy)]
pub(super) enum From {
    /// A machine, by syslog.
    Machine,
    /// A host that is no machine, by syslog.
    Other,
    /// An agent, by HTTP.
    Agent,
    /// This rack, of lines that were dropped.
    Rack,
}

/// The bound for which a line was dropped.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reason {
    /// Messages of one sender.
    Sender,
    /// Octets of all senders that are no machines.
    Others,
    /// Octets of an agent.
    Agent,
    /// Lines that wait for the disk.
    Queue,
}

const FROM: [&str; 4] = ["machine", "other", "agent", "rack"];
const REASONS: [&str; 4] = ["sender", "others", "agent", "queue"];

/// Lines since the start.
#[derive(Debug, Default)]
pub(super) struct Counters {
    kept: [AtomicU64; FROM.len()],
    dropped: [AtomicU64; REASONS.len()],
}

/// Lines since the start, by words of the metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Lines that were taken, by sender.
    pub kept: [(&'static str, u64); FROM.len()],
    /// Lines that were dropped, by the bound. For streams no line is dropped by sender: the sender waits.
    pub dropped: [(&'static str, u64); REASONS.len()],
}

impl Counters {
    pub(super) fn kept(&self, from: From) {
        let [machine, other, agent, rack] = &self.kept;
        let count = match from {
            From::Machine => machine,
            From::Other => other,
            From::Agent => agent,
            From::Rack => rack,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn dropped(&self, reason: Reason, lines: u64) {
        let [sender, others, agent, queue] = &self.dropped;
        let count = match reason {
            Reason::Sender => sender,
            Reason::Others => others,
            Reason::Agent => agent,
            Reason::Queue => queue,
        };
        count.fetch_add(lines, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Counts {
        let [a, b, c, d] = self.kept.each_ref().map(|it| it.load(Ordering::Relaxed));
        let [e, f, g, h] = self.dropped.each_ref().map(|it| it.load(Ordering::Relaxed));
        let [machine, other, agent, rack] = FROM;
        let [sender, others, of_agent, queue] = REASONS;
        Counts {
            kept: [(machine, a), (other, b), (agent, c), (rack, d)],
            dropped: [(sender, e), (others, f), (of_agent, g), (queue, h)],
        }
    }
}
