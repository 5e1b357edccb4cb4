//! Questions for other servers, and the replies that become of them.

use std::fmt;
use std::net::IpAddr;

use hickory_proto::rr::{Name, RecordType};

use crate::forwarder::Age;
use crate::name::{WireName, display};
use crate::query::{AD, CD, Code, Query};
use crate::records::{RrSet, type_name};
use crate::reply::{Reply, Section};
use crate::response::Response;

/// Seconds for which a client may keep an answer past its time (RFC 8767 §4).
const STALE_TTL: u32 = 30;

/// Questions with the same key have the same answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// In wire form and lower case.
    pub(crate) name: Box<[u8]>,
    pub(crate) rtype: u16,
    /// The client takes DNSSEC records (RFC 3225).
    pub(crate) dnssec_ok: bool,
    /// The client checks signatures itself: it is given data that the upstream server knows to be forged (RFC 4035 §3.2.2).
    pub(crate) checking_disabled: bool,
}

impl Key {
    /// The name that is asked.
    #[must_use]
    pub fn name(&self) -> Name {
        crate::name::to_name(&self.name)
    }

    /// The type that is asked.
    #[must_use]
    pub fn record_type(&self) -> RecordType {
        self.rtype.into()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", display(&self.name), type_name(self.rtype))
    }
}

/// A question that another server answers, and the reply to the client as far as it is made. The reply has the aliases of our zones that
/// led to this question.
pub struct Question {
    key: Key,
    servers: Vec<IpAddr>,
    passed: Vec<u64>,
    /// The client reads AD (RFC 6840 §5.7).
    wants_authentic: bool,
    reply: Reply,
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question")
            .field("key", &self.key)
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

impl Question {
    pub(crate) fn new(query: &Query<'_>, name: WireName, reply: Reply, servers: Vec<IpAddr>) -> Self {
        let edns = query.edns.as_ref();
        let key = Key {
            name: name.as_bytes().into(),
            rtype: query.rtype,
            dnssec_ok: edns.is_some_and(|edns| edns.dnssec_ok),
            checking_disabled: query.has(CD),
        };
        Self {
            wants_authentic: key.dnssec_ok || query.has(AD),
            key,
            servers,
            passed: edns.map(|edns| edns.passed.clone()).unwrap_or_default(),
            reply,
        }
    }

    /// The question without its asker.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The name is in a zone that one of ours delegates to these servers. Empty: ask the upstream servers.
    #[must_use]
    pub fn servers(&self) -> &[IpAddr] {
        &self.servers
    }

    /// Forwarders of this kind that the question has passed. A forwarder that finds its own number here has asked itself.
    pub(crate) fn passed(&self) -> &[u64] {
        &self.passed
    }

    /// The reply when nobody answers: SERVFAIL.
    #[must_use]
    pub fn fail(self) -> Vec<u8> {
        self.fail_with(Code::ServFail)
    }

    pub(crate) fn fail_with(mut self, code: Code) -> Vec<u8> {
        self.reply.clear();
        self.reply.set_code(code);
        self.reply.finish()
    }

    /// The reply that another server's answer makes.
    pub(crate) fn reply(mut self, response: &Response, age: Age) -> Vec<u8> {
        let ttl = |set: &RrSet| match age {
            Age::Seconds(age) => set.ttl.saturating_sub(age),
            Age::Stale => set.ttl.min(STALE_TTL),
        };
        // Our own zones are not signed: an answer that begins in them is not authentic as a whole (RFC 4035 §3.2.3).
        if response.authentic && self.wants_authentic && self.reply.is_empty() {
            self.reply.set(AD);
        }
        self.reply.set_code(response.code);
        let answers = response.answers.iter().map(|(owner, set)| (Section::Answer, owner, set));
        let authorities = response.authorities.iter().map(|(owner, set)| (Section::Authority, owner, set));
        for (section, owner, set) in answers.chain(authorities) {
            if !self.reply.add(section, owner, set, ttl(set), 0) {
                break;
            }
        }
        self.reply.finish()
    }
}
