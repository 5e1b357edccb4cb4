//! The concerns that a rack was sent on one link, and the next message for each.
//!
//! The first version of a link is sent whole, unless the rack's Hello names it. Later versions are sent as deltas of the
//! version before. A version is sent whole again in these cases:
//!
//! | case | reason |
//! | --- | --- |
//! | the rack asks for it ([`Sent::needs_whole`]) | it holds another body than the delta changes |
//! | the rack did not apply the version before ([`Sent::refused`]) | it would ask |
//! | the delta would not be shorter | |

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use basalt_db::{Concern, ConcernHead};
use basalt_proto::delta;
use basalt_proto::rack_v1::from_region::Message;
use basalt_proto::rack_v1::{ConcernDelta, ConcernVersion, HeldConcern};
use prost::Message as _;

use crate::telemetry::Context;

type Digest = [u8; 32];

/// The bodies that racks were sent last. Many racks hold equal ones: each is in memory once.
#[derive(Debug, Default)]
pub struct Bodies(Mutex<HashMap<Digest, Weak<[u8]>>>);

impl Bodies {
    /// The shared copy of a body.
    fn shared(&self, sha256: Digest, body: &[u8]) -> Arc<[u8]> {
        let mut bodies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = bodies.get(&sha256).and_then(Weak::upgrade) {
            return shared;
        }
        let shared: Arc<[u8]> = body.into();
        bodies.retain(|_, body| body.strong_count() > 0);
        bodies.insert(sha256, Arc::downgrade(&shared));
        shared
    }
}

/// The version of one concern that a rack holds, as far as this link knows.
#[derive(Debug)]
struct Version {
    sha256: Vec<u8>,
    incarnation: String,
    generation: u64,
    /// The bytes, if this link has sent them.
    body: Option<Arc<[u8]>>,
    /// True if they were sent as a delta.
    is_delta: bool,
}

/// The versions that a rack was sent, by concern.
#[derive(Debug)]
pub struct Sent {
    incarnation: String,
    bodies: Arc<Bodies>,
    versions: BTreeMap<String, Version>,
}

impl Sent {
    /// Before the first message of a link. `held` are the versions in the rack's Hello, and `incarnation` is the database's.
    #[must_use]
    pub fn new(incarnation: String, bodies: Arc<Bodies>, held: Vec<HeldConcern>) -> Self {
        let version = |held: HeldConcern| {
            let HeldConcern { concern, generation, sha256, incarnation } = held;
            (concern, Version { sha256, incarnation, generation, body: None, is_delta: false })
        };
        Self { incarnation, bodies, versions: held.into_iter().map(version).collect() }
    }

    /// True if the rack holds this version, or was sent it.
    #[must_use]
    pub fn has(&self, head: &ConcernHead) -> bool {
        let version = self.versions.get(&head.name);
        version.is_some_and(|it| it.sha256 == head.sha256 && it.incarnation == self.incarnation)
    }

    /// The message with this version, which counts as sent from now on.
    pub fn next(&mut self, concern: Concern) -> Message {
        let parent = concern.trace.as_deref().and_then(Context::parse);
        let Concern { name, generation, sha256, body, .. } = concern;
        let before = self.versions.remove(&name);
        let mut version = ConcernVersion {
            concern: name.clone(),
            generation: generation.get(),
            sha256: sha256.to_vec(),
            incarnation: self.incarnation.clone(),
            body: Vec::new(),
            traceparent: parent.map(|parent| parent.child().to_string()).unwrap_or_default(),
        };
        let delta = before.and_then(|before| {
            let parts = delta::between(before.body.as_deref()?, &body);
            let length: usize = parts.iter().map(|part| part.encoded_len()).sum();
            (length < body.len()).then_some((before.sha256, parts))
        });
        let sent = Version {
            sha256: version.sha256.clone(),
            incarnation: self.incarnation.clone(),
            generation: version.generation,
            body: Some(self.bodies.shared(sha256, &body)),
            is_delta: delta.is_some(),
        };
        self.versions.insert(name, sent);
        match delta {
            Some((base_sha256, parts)) => {
                Message::ConcernDelta(ConcernDelta { version: Some(version), base_sha256, parts })
            }
            None => {
                version.body = body;
                Message::Concern(version)
            }
        }
    }

    /// The rack could not apply the delta to this generation: the concern is sent whole next. Ignored if it was sent
    /// whole already, so that a rack cannot ask without end.
    pub fn needs_whole(&mut self, concern: &str, generation: u64) {
        if self.versions.get(concern).is_some_and(|it| it.is_delta && it.generation == generation) {
            self.versions.remove(concern);
        }
    }

    /// The rack did not apply this generation. The next one is sent whole.
    pub fn refused(&mut self, concern: &str, generation: u64) {
        if let Some(version) = self.versions.get_mut(concern).filter(|it| it.generation == generation) {
            version.body = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_api::values::Generation;

    fn concern(generation: u64, body: &[u8]) -> Concern {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, body);
        Concern {
            name: "boot".to_owned(),
            generation: Generation::new(generation),
            sha256: digest.as_ref().try_into().unwrap(),
            body: body.to_vec(),
            trace: None,
        }
    }

    fn sent() -> Sent {
        Sent::new("now".to_owned(), Arc::default(), Vec::new())
    }

    fn is_whole(message: &Message) -> bool {
        matches!(message, Message::Concern(_))
    }

    #[test]
    fn the_first_version_is_whole_and_the_next_one_changes_it() {
        let mut sent = sent();
        let (old, new) = ([[1; 100], [2; 100]].concat(), [[1; 100], [2; 100], [3; 100]].concat());
        assert!(is_whole(&sent.next(concern(1, &old))));
        let Message::ConcernDelta(delta) = sent.next(concern(2, &new)) else { panic!("it is whole") };
        assert_eq!(delta.base_sha256, concern(1, &old).sha256);
        assert_eq!(delta::apply(&old, &delta.parts, 1000), Ok(new.clone()));
        let version = delta.version.unwrap();
        assert_eq!((version.generation, version.sha256), (2, concern(2, &new).sha256.to_vec()));
        assert!(version.body.is_empty());
        assert!(is_whole(&sent.next(concern(3, &[9; 20]))), "a delta would be as long");
    }

    #[test]
    fn a_version_is_whole_after_the_rack_asked_for_it_or_refused_the_one_before() {
        let mut sent = sent();
        let body = |number: u8| [[0; 100], [number; 100]].concat();
        assert!(is_whole(&sent.next(concern(1, &body(1)))));
        sent.needs_whole("boot", 1);
        assert!(!is_whole(&sent.next(concern(2, &body(2)))), "it got a whole one, and asks again");
        sent.needs_whole("boot", 1);
        assert!(!is_whole(&sent.next(concern(3, &body(3)))), "it asks for an old one");
        sent.needs_whole("boot", 3);
        assert!(is_whole(&sent.next(concern(3, &body(3)))));
        sent.refused("boot", 3);
        assert!(is_whole(&sent.next(concern(4, &body(4)))));
    }

    #[test]
    fn a_version_of_the_hello_is_not_sent_and_changes_by_a_whole_one() {
        let now = concern(4, &[1; 100]);
        let head = ConcernHead { name: now.name.clone(), generation: now.generation, sha256: now.sha256 };
        let held = |incarnation: &str| HeldConcern {
            concern: "boot".to_owned(),
            generation: 4,
            sha256: now.sha256.to_vec(),
            incarnation: incarnation.to_owned(),
        };
        let with = |held| Sent::new("now".to_owned(), Arc::default(), vec![held]);
        assert!(!with(held("before")).has(&head), "another database");
        let mut sent = with(held("now"));
        assert!(sent.has(&head));
        assert!(is_whole(&sent.next(concern(5, &[[1; 100], [2; 100]].concat()))));
    }

    #[test]
    fn equal_bodies_of_two_racks_are_in_memory_once_and_go_with_the_last() {
        let bodies = Arc::new(Bodies::default());
        let mut racks = [(); 2].map(|()| Sent::new("now".to_owned(), Arc::clone(&bodies), Vec::new()));
        racks.iter_mut().for_each(|sent| drop(sent.next(concern(1, &[1; 100]))));
        let [one, other] = &racks.each_ref().map(|sent| sent.versions["boot"].body.clone().unwrap());
        assert!(Arc::ptr_eq(one, other));
        racks.iter_mut().for_each(|sent| drop(sent.next(concern(2, &[2; 100]))));
        assert_eq!(bodies.0.lock().unwrap().len(), 2, "the first is still in use here");
    }
}
