//! Deliveries of events to webhooks.

use crate::values::{Timestamp, Uid};
use basalt_api_derive::Shape;
use serde::{Deserialize, Serialize};
/// Progress of a delivery to a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// It will be tried, or tried again.
    Pending,
    /// The receiver has accepted it.
    Delivered,
    /// The region gave it up: a dead letter.
    Dead,
}

impl DeliveryState {
    /// Every state of a delivery, in the order of the enum.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Delivered, Self::Dead];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }

    /// The state with this word; pending for an unknown word.
    #[must_use]
    pub fn parse(word: &str) -> Self {
        Self::ALL.into_iter().find(|state| state.as_str() == word).unwrap_or(Self::Pending)
    }
}

/// Answer to `GET /api/v1/webhooks/{name}/deliveries`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Shape)]
pub struct DeliveryPage {
    /// This page's deliveries, the newest event first.
    pub items: Vec<DeliveryInfo>,
    /// Goes into the next request; absent on the last page.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One delivery to a webhook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct DeliveryInfo {
    /// `webhook-id` of its requests.
    pub id: Uid,
    /// Progress of the delivery.
    pub state: DeliveryState,
    /// The event: `created`, `changed`, `ready`, `stalled`, `deleted`.
    pub event: String,
    /// Time of the event.
    pub at: Timestamp,
    /// Rises from event to event of one object.
    pub sequence: i64,
    /// Kind of the object.
    pub kind: String,
    /// The object's name at that time.
    pub name: String,
    /// Uid of the object.
    pub uid: Uid,
    /// Attempts so far.
    pub attempts: u32,
    /// Time of the next attempt while it is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// Time when it was accepted or given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The error of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Body of `POST /api/v1/webhooks/{name}/redeliver`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(deny_unknown_fields)]
pub struct RedeliverRequest {
    /// The dead letter to send again. Absent: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uid>,
}

/// Body of `POST /api/v1/webhooks/{name}/discard`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(deny_unknown_fields)]
pub struct DiscardRequest {
    /// The dead letter to delete. Absent: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uid>,
}

/// Answer to `POST /api/v1/webhooks/{name}/discard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct Discarded {
    /// Number of dead letters that were deleted.
    pub deliveries: u64,
}

/// Answer to `POST /api/v1/webhooks/{name}/redeliver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct Redelivered {
    /// Number of dead letters that will be sent again.
    pub deliveries: u64,
}
