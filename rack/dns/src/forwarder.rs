//! Questions for other servers: answered by a kept answer, by a new query, or by the query of another client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::cache::{Cache, Hit, Kept};
use crate::query::{AD, CD, Code, DO, FORWARDER_OPTION, HEADER, IN, MAX_FORWARDERS, RD};
use crate::question::{Key, Question};
use crate::records::rtype;
use crate::reply::UDP_SIZE;
use crate::response::Response;

/// The limits of a forwarder.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The approximate size of the cache, in octets.
    pub cache: usize,
    /// The most questions that other servers are asked at the same time.
    pub questions: usize,
    /// The most clients that wait for the answer to one question.
    pub askers: usize,
    /// The most questions of one client that wait for answers.
    pub per_client: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { cache: 32 << 20, questions: 10_000, askers: 1_000, per_client: 250 }
    }
}

/// Figures of a forwarder since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Questions that were answered from the cache.
    pub hits: u64,
    /// Queries to other servers.
    pub queries: u64,
    /// Questions that joined a query that was under way.
    pub joined: u64,
    /// Questions that were answered from the cache, after the TTL had ended.
    pub stale: u64,
    /// Questions that were answered by the answer to a query.
    pub answered: u64,
    /// Questions that were answered SERVFAIL or REFUSED, because nobody answered the query or the answer must not reach clients.
    pub unanswered: u64,
    /// Questions that were answered SERVFAIL, because the number of waiting questions or clients had reached its limit.
    pub full: u64,
    /// Questions that were answered SERVFAIL, because too many questions of their client were waiting.
    pub per_client: u64,
    /// Questions that were answered REFUSED, because they came back to this forwarder.
    pub loops: u64,
    /// Queries that nobody answered.
    pub failed: u64,
}

/// The next action for a question.
#[derive(Debug)]
pub enum Next<A> {
    /// Send this reply.
    Reply(A, Vec<u8>),
    /// Ask another server, and pass its answer to [`Forwarder::finish`].
    Ask(Upstream),
    /// Do nothing: the same question is being asked already, and its answer is also the reply to this one.
    Wait,
}

/// The answer to a query, or none.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// A server answered.
    Response(Response),
    /// No server answered.
    Failed,
    /// The answer must not reach clients.
    Refused,
}

/// The number of a configuration: the servers to ask, and the cache of their answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Generation(u64);

/// A query for other servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    generation: Generation,
    key: Key,
    servers: Vec<IpAddr>,
    passed: Vec<u64>,
}

impl Upstream {
    /// The question, as the cache knows it.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Ask these servers. Empty: those that the configuration has for the name.
    #[must_use]
    pub fn servers(&self) -> &[IpAddr] {
        &self.servers
    }

    /// The message to send. `random` decides the case of the letters of its name, which a forger would have to guess (RFC 5452,
    /// draft-vixie-dnsext-dns0x20).
    #[must_use]
    pub fn query(&self, id: u16, random: &[u8; 32]) -> Vec<u8> {
        let flags = RD | AD | if self.key.checking_disabled { CD } else { 0 };
        let mut query = Vec::with_capacity(HEADER + self.key.name.len() + 4 + 15 + 8 * self.passed.len());
        for field in [id, flags, 1, 0, 0, 1] {
            query.extend_from_slice(&field.to_be_bytes());
        }
        // Lengths of labels are no letters.
        let bits = random.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
        query.extend(
            self.key
                .name
                .iter()
                .zip(bits)
                .map(|(byte, upper)| if upper { byte.to_ascii_uppercase() } else { *byte }),
        );
        let dnssec_ok = if self.key.dnssec_ok { DO } else { 0 };
        // Eight octets each, eight of them at most.
        let ids = u16::try_from(8 * self.passed.len()).unwrap_or(0);
        for field in [self.key.rtype, IN] {
            query.extend_from_slice(&field.to_be_bytes());
        }
        query.push(0);
        for field in [rtype::OPT, UDP_SIZE, 0, dnssec_ok, 4 + ids, FORWARDER_OPTION, ids] {
            query.extend_from_slice(&field.to_be_bytes());
        }
        query.extend(self.passed.iter().flat_map(|id| id.to_be_bytes()));
        query
    }
}

/// A client that waits, and its question.
#[derive(Debug)]
struct Asker<A> {
    client: IpAddr,
    question: Question,
    reply_to: A,
}

/// The part of a forwarder without sockets and clock. `A` is the way back to a client.
#[derive(Debug)]
pub struct Forwarder<A> {
    /// The number by which this forwarder knows its own queries.
    number: u64,
    limits: Limits,
    /// The current configuration, which the cache is for. Questions of earlier ones neither read nor change the cache.
    generation: Generation,
    cache: Cache,
    waiting: HashMap<(Generation, Key), Vec<Asker<A>>>,
    clients: HashMap<IpAddr, usize>,
    counts: Counts,
}

impl<A> Forwarder<A> {
    /// A forwarder with an empty cache. `number` is random, so that no two forwarders have the same.
    #[must_use]
    pub fn new(number: u64, limits: Limits) -> Self {
        Self {
            number,
            limits,
            generation: Generation::default(),
            cache: Cache::new(limits.cache),
            waiting: HashMap::new(),
            clients: HashMap::new(),
            counts: Counts::default(),
        }
    }

    /// Takes a question of a client, for the current configuration.
    pub fn ask(&mut self, now: Instant, client: IpAddr, question: Question, reply_to: A) -> Next<A> {
        self.ask_in(self.generation, now, client, question, reply_to)
    }

    /// Takes a question of a client that arrived in a configuration. The answer is of that configuration, too.
    pub fn ask_in(
        &mut self,
        generation: Generation,
        now: Instant,
        client: IpAddr,
        question: Question,
        reply_to: A,
    ) -> Next<A> {
        // A query of ours that came back would be asked for ever (RFC 9520 §3.1 counts such loops as failures).
        if question.passed().contains(&self.number) || question.passed().len() >= MAX_FORWARDERS {
            self.counts.loops += 1;
            return Next::Reply(reply_to, question.fail_with(Code::Refused));
        }
        let is_current = generation == self.generation;
        match is_current.then(|| self.cache.get(now, question.key())).flatten() {
            Some(Hit::Fresh(kept, age)) => {
                self.counts.hits += 1;
                return Next::Reply(reply_to, reply(question, &kept, Age::Seconds(age)));
            }
            Some(Hit::Stale(response)) => {
                self.counts.stale += 1;
                return Next::Reply(reply_to, question.reply(&response, Age::Stale));
            }
            Some(Hit::Expired) | None => {}
        }
        let of_client = self.clients.get(&client).copied().unwrap_or(0);
        let line = (generation, question.key().clone());
        let in_line = self.waiting.get(&line).map(Vec::len);
        let full = match in_line {
            Some(askers) => askers >= self.limits.askers,
            None => self.waiting.len() >= self.limits.questions,
        };
        if full || of_client >= self.limits.per_client {
            let stale = is_current.then(|| self.cache.stale(now, question.key())).flatten();
            match &stale {
                Some(_) => self.counts.stale += 1,
                None if full => self.counts.full += 1,
                None => self.counts.per_client += 1,
            }
            return Next::Reply(
                reply_to,
                match stale {
                    Some(response) => question.reply(&response, Age::Stale),
                    None => question.fail(),
                },
            );
        }
        *self.clients.entry(client).or_default() += 1;
        let mut passed = question.passed().to_vec();
        passed.push(self.number);
        let key = question.key().clone();
        let upstream = Upstream { generation, key, servers: question.servers().to_vec(), passed };
        let asker = Asker { client, question, reply_to };
        match self.waiting.get_mut(&line) {
            Some(askers) => {
                askers.push(asker);
                self.counts.joined += 1;
                Next::Wait
            }
            None => {
                self.waiting.insert(line, vec![asker]);
                self.counts.queries += 1;
                Next::Ask(upstream)
            }
        }
    }

    /// The replies to all clients that wait for the answer to a query.
    pub fn finish(&mut self, now: Instant, upstream: &Upstream, outcome: Outcome) -> Vec<(A, Vec<u8>)> {
        let Upstream { generation, key, .. } = upstream;
        let cache = Some(&mut self.cache).filter(|_| *generation == self.generation);
        let (kept, age) = match outcome {
            Outcome::Response(response) => {
                let response = Arc::new(response);
                if let Some(cache) = cache {
                    cache.insert(now, key.clone(), response.clone());
                }
                (Kept::Response(response), Age::Seconds(0))
            }
            Outcome::Failed => {
                self.counts.failed += 1;
                match cache.and_then(|cache| cache.fail(now, key.clone(), Code::ServFail)) {
                    Some(response) => (Kept::Response(response), Age::Stale),
                    None => (Kept::Failure(Code::ServFail), Age::Stale),
                }
            }
            Outcome::Refused => {
                if let Some(cache) = cache {
                    cache.refuse(now, key.clone());
                }
                (Kept::Failure(Code::Refused), Age::Stale)
            }
        };
        let askers = self.waiting.remove(&(*generation, key.clone())).unwrap_or_default();
        self.reply_all(askers, &kept, age)
    }

    /// Call this if the servers have not answered after 1.8 seconds (RFC 8767 §5). Returns replies from an expired answer in the cache, if
    /// there is one. The query continues.
    pub fn overdue(&mut self, now: Instant, upstream: &Upstream) -> Vec<(A, Vec<u8>)> {
        let Upstream { generation, key, .. } = upstream;
        if *generation != self.generation {
            return Vec::new();
        }
        let Some(response) = self.cache.stale(now, key) else { return Vec::new() };
        let line = (*generation, key.clone());
        let askers = self.waiting.get_mut(&line).map(std::mem::take).unwrap_or_default();
        self.reply_all(askers, &Kept::Response(response), Age::Stale)
    }

    fn reply_all(&mut self, askers: Vec<Asker<A>>, kept: &Kept, age: Age) -> Vec<(A, Vec<u8>)> {
        let mut replies = Vec::with_capacity(askers.len());
        for Asker { client, question, reply_to } in askers {
            if let Some(waits) = self.clients.get_mut(&client) {
                *waits -= 1;
                if *waits == 0 {
                    self.clients.remove(&client);
                }
            }
            match (kept, age) {
                (Kept::Response(_), Age::Stale) => self.counts.stale += 1,
                (Kept::Response(_), Age::Seconds(_)) => self.counts.answered += 1,
                (Kept::Failure(_), _) => self.counts.unanswered += 1,
            }
            replies.push((reply_to, reply(question, kept, age)));
        }
        replies
    }

    /// Begins a new configuration, with an empty cache.
    pub fn forget(&mut self) -> Generation {
        self.generation = Generation(self.generation.0 + 1);
        self.cache = Cache::new(self.limits.cache);
        self.generation
    }

    /// The current configuration.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Figures since the start.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The number of answers in the cache, and their approximate size in octets.
    #[must_use]
    pub fn kept(&self) -> (usize, usize) {
        (self.cache.len(), self.cache.size())
    }
}

/// The age of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// Seconds in the cache. They are subtracted from the TTLs.
    Seconds(u32),
    /// The TTLs have ended.
    Stale,
}

fn reply(question: Question, kept: &Kept, age: Age) -> Vec<u8> {
    match kept {
        Kept::Response(response) => question.reply(response, age),
        Kept::Failure(code) => question.fail_with(*code),
    }
}
