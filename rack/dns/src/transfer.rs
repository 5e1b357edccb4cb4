//! Zone transfers as a sequence of messages (RFC 5936).

use std::iter::Peekable;
use std::sync::Arc;

use crate::query::AA;
use crate::records::RrSet;
use crate::reply::{Reply, Section};
use crate::tsig::Signer;
use crate::zone::Zone;

/// The size of a message in octets, unless one record is larger. Pointers reach this far (RFC 1035 §4.1.4).
const MESSAGE: usize = 16 << 10;
/// The longest message over TCP (RFC 1035 §4.2.2).
const LONGEST: usize = 65_535;

/// A zone transfer that has not started.
#[derive(Debug)]
pub struct Transfer {
    pub(crate) zone: Arc<Zone>,
    pub(crate) id: u16,
    pub(crate) flags: u16,
    /// The bytes of the question, as received.
    pub(crate) question: Vec<u8>,
    pub(crate) signer: Signer,
}

impl Transfer {
    /// The serial of the copy.
    #[must_use]
    pub fn serial(&self) -> u32 {
        self.zone.serial()
    }

    /// The messages, each made when it is requested. All are of the same version of the zone.
    #[must_use]
    pub fn messages(&mut self) -> Messages<'_> {
        let zone = &*self.zone;
        let soa = || zone.soa().map(|set| (zone.key(), set));
        let all = soa().into_iter().chain(zone.sets()).chain(soa());
        let records = all.flat_map(|(owner, set)| {
            set.rdatas().map(move |rdata| (owner, RrSet::new(set.rtype, set.ttl, [rdata])))
        });
        let records: Records<'_> = Box::new(records);
        Messages {
            records: records.peekable(),
            id: self.id,
            flags: self.flags,
            question: &self.question,
            signer: &mut self.signer,
        }
    }
}

/// Records with their owners.
type Records<'a> = Box<dyn Iterator<Item = (&'a [u8], RrSet)> + Send + 'a>;

/// The messages of a transfer.
pub struct Messages<'a> {
    records: Peekable<Records<'a>>,
    id: u16,
    flags: u16,
    /// Empty after the first message (RFC 5936 §2.2.1).
    question: &'a [u8],
    signer: &'a mut Signer,
}

impl std::fmt::Debug for Messages<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Messages").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Messages<'_> {
    /// The next message, signed at `now`, in seconds since 1970. `None`: the transfer is complete.
    pub fn next(&mut self, now: u64) -> Option<Vec<u8>> {
        self.records.peek()?;
        let mut reply = self.reply(MESSAGE);
        while let Some((owner, record)) = self.records.peek() {
            if !reply.add(Section::Answer, owner, record, record.ttl, 0) {
                if !reply.is_empty() {
                    break;
                }
                // Every record of a zone fits into this size.
                reply = self.reply(LONGEST);
                let (owner, record) = self.records.next()?;
                reply.add(Section::Answer, owner, &record, record.ttl, 0);
                break;
            }
            self.records.next();
        }
        self.question = &[];
        let mut message = reply.finish_whole();
        self.signer.sign(&mut message, now);
        Some(message)
    }

    fn reply(&self, limit: usize) -> Reply {
        let mut reply = Reply::new(self.id, self.flags, self.question, None, limit - self.signer.room());
        reply.set(AA);
        reply
    }
}
