//! Sends one file: a state machine from events to datagrams.
//!
//! Loss is detected by the timer or, with windows, by an acknowledgement inside the window (RFC 7440 §4). A repeated
//! acknowledgement is answered at most once per window, and without windows never: if each one were answered, the
//! traffic would double from there on (RFC 1123 §4.2.3.1, "Sorcerer's Apprentice").

use std::time::Instant;

use bytes::Bytes;

use crate::negotiation::Negotiated;
use crate::packet::{ErrorCode, Packet};
use crate::rto::Rto;

/// How often the same blocks are sent again before the client is given up; together up to half a minute.
const MAX_RETRIES: u32 = 10;

/// An instruction to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send to the client.
    Send(Vec<u8>),
    /// The transfer is over.
    Done(Outcome),
}

/// How a transfer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The client has the whole file.
    Completed,
    /// The client only wanted the size: it refused the OACK with error 8 or 0, as EDK2's first request does.
    Probed,
    /// The client ended the transfer.
    Aborted {
        /// Its error code.
        code: ErrorCode,
        /// The message of the client.
        message: String,
    },
    /// The client stopped answering.
    TimedOut,
    /// The client's port is closed. Only the shell can detect this.
    Unreachable,
}

/// The transfer of one file to one client.
#[derive(Debug)]
pub struct Transfer {
    content: Bytes,
    options: Negotiated,
    /// Blocks acknowledged, counted from 1 without wrapping.
    acked: u64,
    /// Blocks sent at least once in this window: `acked + 1 ..= sent`.
    sent: u64,
    /// The OACK was sent, and its ACK 0 has not arrived.
    offering: bool,
    /// This window was already sent again for a repeated acknowledgement.
    answered_repeat: bool,
    retries: u32,
    retransmissions: u64,
    rto: Rto,
    deadline: Instant,
    over: bool,
}

impl Transfer {
    /// Starts a transfer. The action sends the OACK, or the first block if no option was granted.
    #[must_use]
    pub fn start(now: Instant, content: Bytes, options: Negotiated) -> (Self, Vec<Action>) {
        let rto = Rto::new(options.timeout);
        let offering = !options.granted.is_empty();
        let mut transfer = Self {
            content,
            acked: 0,
            sent: 0,
            offering,
            answered_repeat: false,
            retries: 0,
            retransmissions: 0,
            deadline: now + rto.current(),
            rto,
            over: false,
            options,
        };
        let actions = transfer.send_window(now);
        transfer.rto.sent(now);
        (transfer, actions)
    }

    /// When to call [`Transfer::on_timer`].
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Datagrams that were sent more than once.
    #[must_use]
    pub const fn retransmissions(&self) -> u64 {
        self.retransmissions
    }

    /// Bytes of the file that the client acknowledged.
    #[must_use]
    pub fn acknowledged_bytes(&self) -> u64 {
        (self.acked * u64::from(self.options.blksize)).min(self.content.len() as u64)
    }

    /// Takes a datagram from the client. An unexpected one changes nothing.
    pub fn on_packet(&mut self, now: Instant, datagram: &[u8]) -> Vec<Action> {
        if self.over {
            return Vec::new();
        }
        match Packet::parse(datagram) {
            Ok(Packet::Ack { block }) => self.on_ack(now, block),
            Ok(Packet::Error { code, message }) => {
                let refusal = matches!(code, ErrorCode::OptionNegotiation | ErrorCode::Undefined);
                if self.offering && refusal {
                    return self.end(Outcome::Probed);
                }
                self.end(Outcome::Aborted { code, message: message.to_owned() })
            }
            _ => Vec::new(),
        }
    }

    /// Sends unacknowledged blocks again, or gives up.
    pub fn on_timer(&mut self, now: Instant) -> Vec<Action> {
        if self.over || now < self.deadline {
            return Vec::new();
        }
        if self.retries == MAX_RETRIES {
            return self.end(Outcome::TimedOut);
        }
        self.retries += 1;
        self.rto.sent_again();
        self.answered_repeat = false;
        self.send_again(now)
    }

    fn on_ack(&mut self, now: Instant, block: u16) -> Vec<Action> {
        // The distance from the last acknowledged block, modulo 65536; windows are far shorter than that.
        let ahead = u64::from(block.wrapping_sub(wire_number(self.acked)));
        let in_flight = self.sent - self.acked;
        if self.offering {
            if block != 0 {
                return Vec::new();
            }
            self.offering = false;
        } else if ahead == 0 {
            if self.options.windowsize == 1 || self.answered_repeat {
                return Vec::new();
            }
            self.answered_repeat = true;
            return self.send_again(now);
        } else if ahead > in_flight {
            return Vec::new();
        }
        let lost_some = ahead < in_flight;
        self.acked += ahead;
        self.retries = 0;
        self.answered_repeat = false;
        self.rto.answered(now);
        if self.acked == self.last_block() {
            return self.end(Outcome::Completed);
        }
        if lost_some {
            self.retransmissions += in_flight - ahead;
        }
        let actions = self.send_window(now);
        if !lost_some {
            self.rto.sent(now);
        }
        actions
    }

    fn send_again(&mut self, now: Instant) -> Vec<Action> {
        let actions = self.send_window(now);
        self.retransmissions += actions.len() as u64;
        actions
    }

    fn send_window(&mut self, now: Instant) -> Vec<Action> {
        self.deadline = now + self.rto.current();
        if self.offering {
            return vec![Action::Send(Packet::Oack { options: self.options.granted.clone() }.encode())];
        }
        let first = self.acked + 1;
        self.sent = self.last_block().min(self.acked + u64::from(self.options.windowsize));
        (first..=self.sent).map(|block| Action::Send(self.block(block))).collect()
    }

    fn block(&self, block: u64) -> Vec<u8> {
        let size = usize::from(self.options.blksize);
        let rest = usize::try_from(block - 1)
            .ok()
            .and_then(|before| self.content.get(before.saturating_mul(size)..));
        let rest = rest.unwrap_or_default();
        let data = rest.get(..size).unwrap_or(rest);
        Packet::Data { block: wire_number(block), data }.encode()
    }

    /// The number of the last block, the first one that is not full. It may be empty.
    fn last_block(&self) -> u64 {
        self.content.len() as u64 / u64::from(self.options.blksize) + 1
    }

    fn end(&mut self, outcome: Outcome) -> Vec<Action> {
        self.over = true;
        vec![Action::Done(outcome)]
    }
}

/// Block numbers wrap to 0, as every client of large files expects.
const fn wire_number(block: u64) -> u16 {
    (block & 0xffff) as u16
}
