//! The watch on the wire: `GET /api/v1/watch` answers server-sent events (HTML Living Standard §9.2).
//!
//! | event | data | means |
//! | --- | --- | --- |
//! | `put` | [`Object`] | it is so now; several changes may have become one |
//! | `delete` | [`Gone`] | it has left, or this watch does not show it any more |
//! | `bookmark` | `{}` | every change up to this position was sent |
//! | `cut` | [`Cut`] | the last event: the region ends the connection; resume. After `rights` that is answered `compacted` |
//!
//! Every event's `id` is a position to resume from, `INCARNATION:SEQUENCE`, by `since` or `Last-Event-ID`. After a resume, events may be
//! repeated, but an object never goes back to an older state.

use crate::object::Object;
use crate::values::{Name, Uid};
use basalt_api_derive::Shape;
use serde::{Deserialize, Serialize};

/// The media type of the answer.
pub const EVENT_STREAM: &str = "text/event-stream";

/// The header with which a client resumes.
pub const LAST_EVENT_ID: &str = "Last-Event-ID";

/// An event, and the position after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The position from which a watch resumes after this event.
    pub position: String,
    /// Content of the event.
    pub what: What,
}

/// Content of an event.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// An object was created or changed.
    Put(Box<Object>),
    /// An object was deleted, or is no longer visible to this watch. The watch need not have shown it before.
    Delete(Gone),
    /// No change: every change up to this position was sent.
    Bookmark,
    /// The region ends the connection.
    Cut(Cut),
}

/// An object that is not shown any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct Gone {
    /// Kind of the object.
    pub kind: String,
    /// Last name and uid of the object.
    pub metadata: GoneMetadata,
}

/// Identity of an object that is not shown any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct GoneMetadata {
    /// Its last name.
    pub name: Name,
    /// Uid, which no other object ever gets.
    pub uid: Uid,
}

/// The last event of a connection that the region ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct Cut {
    /// The reason, for programs.
    pub reason: CutReason,
    /// The reason, for people.
    pub message: String,
}

/// The reason why a region ends a watch, for programs. New reasons are added; existing ones never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Shape)]
#[serde(rename_all = "snake_case")]
pub enum CutReason {
    /// The client read too slowly, and too many events were queued for it.
    Slow,
    /// The log was compacted before the watch could read it.
    Compacted,
    /// The database does not answer.
    Unavailable,
    /// The region shuts down.
    Stopping,
    /// The connection has reached its longest duration. When the client resumes, the region checks its rights again.
    Renew,
    /// The caller's rights have changed. List the objects again, and watch from that position.
    Rights,
    /// A reason of a newer region.
    #[serde(other)]
    Other,
}

impl CutReason {
    /// Every reason, once.
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
