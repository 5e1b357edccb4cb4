//! Events of a region.

use crate::values::{Timestamp, Uid};
use serde::{Deserialize, Serialize};

/// The sort of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventSort {
    /// Somebody wrote an object, or asked for an operation.
    Written,
    /// A step has begun.
    Began,
    /// A step has ended; with a detail it has failed.
    Ended,
    /// The object has come to another phase.
    Phase,
    /// The object stands still: something is wrong, or it waits for a person.
    Stalled,
    /// The object has left.
    Left,
}

impl EventSort {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Written, Self::Began, Self::Ended, Self::Phase, Self::Stalled, Self::Left];

    /// As it is written.
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

    /// As the database has it.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|sort| sort.as_str() == text).unwrap_or(Self::Written)
    }
}

/// Answer of `GET /api/v1/events`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventPage {
    /// This page's events, the newest first.
    pub items: Vec<EventEntry>,
    /// Goes into the next request; absent on the last page. A page that has it may have no items.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An event of a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventEntry {
    /// Rises from event to event.
    pub id: String,
    /// When, by the database's clock.
    pub at: Timestamp,
    /// The sort of the event.
    pub sort: EventSort,
    /// Kind of the object.
    pub kind: String,
    /// The object; absent for what is no object, like a blob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// Its name then.
    pub name: String,
    /// The end of a sentence that begins with the object.
    pub words: String,
    /// Why, of a failure and of what stands still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The actor: `user NAME`, `token NAME`, `region`.
    pub actor: String,
}
