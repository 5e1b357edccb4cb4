//! Questions for other servers, and the replies that become of them.

use std::fmt;
use std::net::IpAddr;

use hickory_proto::rr::{Name, RecordType};

use crate::name::{WireName, display};
use crate::query::{CD, Code, Query};
use crate::records::type_name;
use crate::reply::Reply;

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
        Self { key, servers, passed: edns.map(|edns| edns.passed.clone()).unwrap_or_default(), reply }
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
    #[must_use]
    pub fn passed(&self) -> &[u64] {
        &self.passed
    }

    /// The reply when nobody answers.
    #[must_use]
    pub fn fail(mut self) -> Vec<u8> {
        self.reply.clear();
        self.reply.set_code(Code::ServFail);
        self.reply.finish()
    }
}
