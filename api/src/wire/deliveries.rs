//! What webhooks were sent.

use crate::values::{Timestamp, Uid};
use serde::{Deserialize, Serialize};
/// What became of a delivery to a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// It is tried, or will be.
    Pending,
    /// The receiver has accepted it.
    Delivered,
    /// It was given up: a dead letter.
    Dead,
}

impl DeliveryState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Delivered, Self::Dead];

    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }

    /// The state of that word; pending where there is none.
    #[must_use]
    pub fn parse(word: &str) -> Self {
        Self::ALL.into_iter().find(|state| state.as_str() == word).unwrap_or(Self::Pending)
    }
}

/// Answer to `GET /api/v1/webhooks/{name}/deliveries`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeliveryPage {
    /// This page's deliveries, the newest event first.
    pub items: Vec<DeliveryInfo>,
    /// Goes into the next request; absent on the last page.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One delivery to a webhook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeliveryInfo {
    /// `webhook-id` of its requests.
    pub id: Uid,
    /// What became of it.
    pub state: DeliveryState,
    /// What happened: `created`, `changed`, `ready`, `stalled`, `deleted`.
    pub event: String,
    /// When.
    pub at: Timestamp,
    /// Rises from event to event of one object.
    pub sequence: i64,
    /// Kind of the object.
    pub kind: String,
    /// Its name then.
    pub name: String,
    /// The object.
    pub uid: Uid,
    /// Attempts so far.
    pub attempts: u32,
    /// When it is tried next, while it is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// When it was accepted, or given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// How the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Body of `POST /api/v1/webhooks/{name}/redeliver`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedeliverRequest {
    /// One dead letter; all of them where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uid>,
}

/// Its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redelivered {
    /// Dead letters that are sent again.
    pub deliveries: u64,
}
