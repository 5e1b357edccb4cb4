//! The watch on the wire: `GET /api/v1/watch` answers server-sent events (HTML Living Standard §9.2).
//!
//! | event | data | means |
//! | --- | --- | --- |
//! | `put` | [`Object`] | it is so now; several changes may have become one |
//! | `delete` | [`Gone`] | it has left, or this watch does not show it any more |
//! | `bookmark` | `{}` | everything up to this position was told |
//! | `cut` | [`Cut`] | the last event: the region ends the connection; resume. After `rights` that is answered `compacted` |
//!
//! Every event's `id` is a position to resume from, `INCARNATION:SEQUENCE`, by `since` or `Last-Event-ID`. What was told may be
//! told again; an object never goes back to an older state.

use crate::object::Object;
use crate::values::{Name, Uid};
use serde::{Deserialize, Serialize};

/// The media type of the answer.
pub const EVENT_STREAM: &str = "text/event-stream";

/// The header with which a client resumes.
pub const LAST_EVENT_ID: &str = "Last-Event-ID";

/// An event, and the position to go on from after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Resumes after this event.
    pub position: String,
    /// What it tells.
    pub what: What,
}

/// What an event tells.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// An object is so now.
    Put(Box<Object>),
    /// An object has left, or this watch does not show it any more. It need not have been shown before.
    Delete(Gone),
    /// Nothing new.
    Bookmark,
    /// The region ends the connection.
    Cut(Cut),
}

/// An object that is not shown any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// Its kind.
    pub kind: String,
    /// What is left to say of it.
    pub metadata: GoneMetadata,
}

/// Who it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneMetadata {
    /// Its last name.
    pub name: Name,
    /// Never another object's.
    pub uid: Uid,
}

/// Why a region ends a watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// For programs.
    pub reason: CutReason,
    /// For people.
    pub message: String,
}

/// Why a region ends a watch, for programs. The list grows, and never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutReason {
    /// The client read too slowly, and too much was waiting for it.
    Slow,
    /// The log was compacted before it could be read.
    Compacted,
    /// The database does not answer.
    Unavailable,
    /// The region stops.
    Stopping,
    /// No watch lasts for ever: whether the caller may still watch is asked anew.
    Renew,
    /// What the caller may see has changed: list again, and watch from there.
    Rights,
    /// A reason of a newer region.
    #[serde(other)]
    Other,
}

impl CutReason {
    /// Every reason.
    pub const ALL: &'static [Self] =
        &[Self::Slow, Self::Compacted, Self::Unavailable, Self::Stopping, Self::Renew, Self::Rights];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Compacted => "compacted",
            Self::Unavailable => "unavailable",
            Self::Stopping => "stopping",
            Self::Renew => "renew",
            Self::Rights => "rights",
            Self::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_on_the_wire_are_their_words() {
        for reason in CutReason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
        assert_eq!(serde_json::from_str::<CutReason>("\"from_the_future\"").unwrap(), CutReason::Other);
    }
}
