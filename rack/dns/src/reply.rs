//! Replies, written record by record (RFC 1035 §4.1, §4.1.4; RFC 2181 §9).

use crate::name::{ROOT, WireName, parent};
use crate::query::{AD, CD, Code, DO, HEADER, IN, OPCODE, QR, RD, TC};
use crate::records::{RrSet, names_in, rtype};

/// The length of an OPT record without options.
const OPT: usize = 11;
/// The longest datagram that is sent or accepted, in octets. It passes every network unfragmented (RFC 9715 §3).
pub(crate) const UDP_SIZE: u16 = 1232;
/// The most names that later names may point to.
const MAX_TARGETS: usize = 48;

/// Sections after the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Answer = 0,
    Authority = 1,
    Additional = 2,
}

/// A reply under construction.
#[derive(Clone)]
pub(crate) struct Reply {
    bytes: Vec<u8>,
    /// The most octets, without EDNS.
    limit: usize,
    question: usize,
    counts: [u16; 3],
    flags: u16,
    code: Code,
    /// `Some`: the client uses EDNS. True: with DO.
    edns: Option<bool>,
    /// The offsets of labels that pointers may lead to.
    targets: [u16; MAX_TARGETS],
    known: usize,
}

impl Reply {
    /// A reply without a question, for a query that could not be read. The flags are the query's.
    pub(crate) fn bare(id: u16, flags: u16, code: Code) -> Vec<u8> {
        let mut reply = Self::new(id, flags, &[], None, usize::from(UDP_SIZE));
        reply.set_code(code);
        reply.finish()
    }

    /// A reply with the question as received. RD and CD of the query's `flags` are copied. `limit` counts all octets of
    /// the message.
    pub(crate) fn new(id: u16, flags: u16, question: &[u8], edns: Option<bool>, limit: usize) -> Self {
        let mut bytes = Vec::with_capacity(512);
        bytes.extend_from_slice(&id.to_be_bytes());
        bytes.extend_from_slice(&[0; HEADER - 2]);
        bytes.extend_from_slice(question);
        Self {
            question: bytes.len(),
            bytes,
            limit: limit.saturating_sub(if edns.is_some() { OPT } else { 0 }),
            counts: [0; 3],
            flags: QR | flags & (OPCODE | RD | CD),
            code: Code::NoError,
            edns,
            targets: [0; MAX_TARGETS],
            known: 0,
        }
    }

    /// Makes the labels of the question's name targets of pointers.
    pub(crate) fn point_at(&mut self, asked: &WireName) {
        for start in asked.starts() {
            self.remember(HEADER + usize::from(*start));
        }
    }

    pub(crate) fn set(&mut self, flag: u16) {
        self.flags |= flag;
    }

    /// True if it has no records.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts == [0; 3]
    }

    pub(crate) fn set_code(&mut self, code: Code) {
        self.code = code;
    }

    /// Removes all records.
    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(self.question);
        self.counts = [0; 3];
        self.forget_from(self.question);
        self.flags &= !(TC | AD);
    }

    /// Adds an RRset, starting with the record number `first`. Returns false if the whole set does not fit: it is then
    /// left out, and TC is set, except in the additional section (RFC 2181 §9).
    pub(crate) fn add(
        &mut self,
        section: Section,
        owner: &[u8],
        set: &RrSet,
        ttl: u32,
        first: usize,
    ) -> bool {
        let (start, counts) = (self.bytes.len(), self.counts);
        let total = set.rdatas().count();
        let rdatas = set.rdatas().cycle().skip(if total > 1 { first % total } else { 0 }).take(total);
        let mut pointer: Option<[u8; 2]> = None;
        for rdata in rdatas {
            let at = self.bytes.len();
            match pointer {
                Some(pointer) => self.bytes.extend_from_slice(&pointer),
                None => self.write_name(owner),
            }
            pointer = pointer.or_else(|| self.pointer_to(at));
            self.bytes.extend_from_slice(&set.rtype.to_be_bytes());
            self.bytes.extend_from_slice(&IN.to_be_bytes());
            self.bytes.extend_from_slice(&ttl.to_be_bytes());
            self.write_rdata(set.rtype, rdata);
            let count = self.counts.get_mut(section as usize).and_then(|count| {
                *count = count.checked_add(1)?;
                Some(())
            });
            if self.bytes.len() > self.limit || count.is_none() {
                self.bytes.truncate(start);
                self.counts = counts;
                self.forget_from(start);
                if section != Section::Additional {
                    self.flags |= TC;
                }
                return false;
            }
        }
        true
    }

    /// One message of several: the rest is in the next one, so TC is not set.
    pub(crate) fn finish_whole(mut self) -> Vec<u8> {
        self.flags &= !TC;
        self.finish()
    }

    /// The message, with EDNS if the client uses it.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        // The low four bits of a code are in the header, the others in the OPT record (RFC 6891 §6.1.3).
        let code = self.code as u8;
        let (extended, code) = (code >> 4, u16::from(code & 0xf));
        if let Some(dnssec_ok) = self.edns {
            let [high, low] = if dnssec_ok { DO } else { 0 }.to_be_bytes();
            let [size_high, size_low] = UDP_SIZE.to_be_bytes();
            let [_, opt] = rtype::OPT.to_be_bytes();
            self.bytes.extend_from_slice(&[0, 0, opt, size_high, size_low, extended, 0, high, low, 0, 0]);
        }
        let [answers, authorities, additionals] = self.counts;
        let additionals = additionals.saturating_add(u16::from(self.edns.is_some()));
        let questions = u16::from(self.question > HEADER);
        let header = [self.flags | code, questions, answers, authorities, additionals];
        for (place, field) in
            self.bytes.iter_mut().skip(2).zip(header.iter().flat_map(|field| field.to_be_bytes()))
        {
            *place = field;
        }
        self.bytes
    }

    fn write_rdata(&mut self, rtype: u16, rdata: &[u8]) {
        let length_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        let (before, names) = names_in(rtype);
        let (head, mut rest) = rdata.split_at_checked(before).unwrap_or((rdata, &[]));
        self.bytes.extend_from_slice(head);
        for _ in 0..names {
            let mut end = rest;
            while end.first().is_some_and(|length| *length > 0) {
                end = parent(end);
            }
            let Some((name, tail)) = rest.split_at_checked(rest.len() - end.len() + ROOT.len()) else {
                break;
            };
            self.write_name(name);
            rest = tail;
        }
        self.bytes.extend_from_slice(rest);
        let length = u16::try_from(self.bytes.len() - length_at - 2).unwrap_or(u16::MAX).to_be_bytes();
        for (place, byte) in self.bytes.iter_mut().skip(length_at).zip(length) {
            *place = byte;
        }
    }

    /// Writes a name. The longest possible part of it becomes a pointer to an earlier name.
    fn write_name(&mut self, name: &[u8]) {
        let mut suffix = name;
        let before = self.known;
        while suffix.first().is_some_and(|length| *length > 0) {
            let known = self.targets.get(..before).unwrap_or(&[]);
            if let Some(target) = known.iter().copied().find(|target| self.is_at(*target, suffix)) {
                self.bytes.extend_from_slice(&(0xc000 | target).to_be_bytes());
                return;
            }
            self.remember(self.bytes.len());
            let rest = parent(suffix);
            self.bytes.extend_from_slice(suffix.get(..suffix.len() - rest.len()).unwrap_or(suffix));
            suffix = rest;
        }
        self.bytes.push(0);
    }

    /// True if the message has this name at this offset.
    fn is_at(&self, target: u16, name: &[u8]) -> bool {
        let (mut at, mut name) = (usize::from(target), name);
        loop {
            let (Some(here), Some(length)) = (self.bytes.get(at), name.first()) else { return false };
            if *here >= 0xc0 {
                let low = self.bytes.get(at + 1).copied().unwrap_or(0);
                at = usize::from(u16::from_be_bytes([here & 0x3f, low]));
                continue;
            }
            if here != length {
                return false;
            }
            if *length == 0 {
                return true;
            }
            let end = 1 + usize::from(*length);
            let same = self.bytes.get(at..at + end).zip(name.get(..end));
            if !same.is_some_and(|(here, label)| here.eq_ignore_ascii_case(label)) {
                return false;
            }
            at += end;
            name = name.get(end..).unwrap_or(ROOT);
        }
    }

    fn remember(&mut self, offset: usize) {
        // A pointer has 14 bits for the offset.
        if let Ok(offset) = u16::try_from(offset)
            && offset < 0x4000
            && let Some(place) = self.targets.get_mut(self.known)
        {
            *place = offset;
            self.known += 1;
        }
    }

    fn forget_from(&mut self, offset: usize) {
        let known = self.targets.get(..self.known).unwrap_or(&[]);
        self.known = known.iter().take_while(|target| usize::from(**target) < offset).count();
    }

    /// A pointer to the name that was just written at `at`.
    fn pointer_to(&self, at: usize) -> Option<[u8; 2]> {
        let [high, low] = *self.bytes.get(at..)?.first_chunk()?;
        match high {
            0xc0.. => Some([high, low]),
            0 => None,
            _ => u16::try_from(at).ok().filter(|at| *at < 0x4000).map(|at| (0xc000 | at).to_be_bytes()),
        }
    }
}
