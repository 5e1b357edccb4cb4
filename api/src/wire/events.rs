//! Events of a region.

use crate::values::{Timestamp, Uid};
use basalt_api_derive::Shape;
use serde::{Deserialize, Serialize};

/// The sort of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Shape)]
#[serde(rename_all = "snake_case")]
pub enum EventSort {
    /// A caller wrote an object or requested an operation.
    Written,
    /// A step has begun.
    Began,
    /// A step has ended. With a detail, it has failed.
    Ended,
    /// The object has reached another phase.
    Phase,
    /// The object does not progress: it has an error, or it waits for a person.
    Stalled,
    /// The object was deleted.
    Left,
}

impl EventSort {
    /// Every sort of event, once.
    pub const ALL: [Self; 6] =
        [Self::Written, Self::Began, Self::Ended, Self::Phase, Self::Stalled, Self::Left];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Began => "began",
            Self::Ended => "ended",
            Self::Phase => "phase",
            Self::Stalled => "stalled",
            Self::Left => "left",
        }
    }

    /// The sort of a word in the database.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|sort| sort.as_str() == text).unwrap_or(Self::Written)
    }
}

/// Answer of `GET /api/v1/events`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Shape)]
pub struct EventPage {
    /// This page's events, the newest first.
    pub items: Vec<EventEntry>,
    /// Value of `next` for the next request; absent on the last page. A page that has it may be empty.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An event of a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct EventEntry {
    /// Rises from event to event.
    pub id: String,
    /// Time by the database's clock.
    pub at: Timestamp,
    /// The sort of the event.
    pub sort: EventSort,
    /// Kind of the object.
    pub kind: String,
    /// Uid of the object; absent for a thing that is no object, like a blob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// Its name at that time.
    pub name: String,
    /// The end of a sentence that begins with the object.
    pub words: String,
    /// The cause of a failure or a stall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The actor: `user NAME`, `token NAME`, `region`.
    pub actor: String,
}
