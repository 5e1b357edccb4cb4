//! Questions for other servers, and the replies made from the responses.

use std::fmt;
use std::net::IpAddr;

use hickory_proto::rr::{Name, RecordType};

use crate::forwarder::Age;
use crate::name::{WireName, display};
use crate::query::{AD, CD, Code, Query};
use crate::records::{RrSet, type_name};
use crate::reply::{Reply, Section};
use crate::response::Response;

/// How long a client may cache an expired answer, in seconds (RFC 8767 §4).
const STALE_TTL: u32 = 30;

/// Questions with the same key have the same answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The name in wire format and lower case.
    pub(crate) name: Box<[u8]>,
    pub(crate) rtype: u16,
    /// The client wants DNSSEC records (RFC 3225).
    pub(crate) dnssec_ok: bool,
    /// The client checks signatures itself: it also gets data that the upstream server found forged (RFC 4035 §3.2.2).
    pub(crate) checking_disabled: bool,
}

impl Key {
    /// The name in the question.
    #[must_use]
    pub fn name(&self) -> Name {
        crate::name::to_name(&self.name)
    }

    /// The type in the question.
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

/// A question that another server must answer, and the beginning of the reply to the client: the aliases in this
/// server's zones that led to the question.
pub struct Question {
    key: Key,
    servers: Vec<IpAddr>,
    passed: Vec<u64>,
    /// The client evaluates AD (RFC 6840 §5.7).
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

    /// The question without its client.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The servers to ask, if a zone here delegates the name to them. Empty: the upstream servers.
    #[must_use]
    pub fn servers(&self) -> &[IpAddr] {
        &self.servers
    }

    /// The forwarders of this kind that the question has passed. A forwarder that finds its own number here is in a
    /// loop.
    pub(crate) fn passed(&self) -> &[u64] {
        &self.passed
    }

    /// The reply if no server answers: SERVFAIL.
    #[must_use]
    pub fn fail(self) -> Vec<u8> {
        self.fail_with(Code::ServFail)
    }

    pub(crate) fn fail_with(mut self, code: Code) -> Vec<u8> {
        self.reply.clear();
        self.reply.set_code(code);
        self.reply.finish()
    }

    /// The reply with the response of another server.
    pub(crate) fn reply(mut self, response: &Response, age: Age) -> Vec<u8> {
        let ttl = |set: &RrSet| match age {
            Age::Seconds(age) => set.ttl.saturating_sub(age),
            Age::Stale => set.ttl.min(STALE_TTL),
        };
        // This server's own zones are not signed. An answer that begins in them is not authentic as a whole (RFC 4035
        // §3.2.3).
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
