//! Webhook: a receiver of events.

use super::{CommonStatus, kind};
use crate::validate::no_rules;
use crate::values::{Secret, Timestamp, Url};
use basalt_api_derive::Model;
use std::collections::BTreeSet;

kind! {
    /// A URL to which the region reports events of objects, by the Standard Webhooks specification: at least once, and in order
    /// for each object. Only admins declare one. If the receiver answers 410, deliveries end.
    Webhook, "webhooks", "basalt_webhook", Label, declarable: true, WebhookSpec, WebhookStatus, no_rules
}

/// The receiver of events, and the events that it gets.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct WebhookSpec {
    /// The URL to which deliveries are posted.
    pub url: Url,
    /// The events to deliver. Empty: all events.
    pub events: BTreeSet<WebhookEvent>,
    /// The secret that signs deliveries: `whsec_` and base64, or any text. Absent: deliveries are not signed.
    #[field(sent_to(url))]
    pub secret: Option<Secret>,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// An event in the life of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum WebhookEvent {
    /// The object was declared for the first time.
    Created,
    /// The spec, name or labels of the object changed, or its deletion was requested.
    Changed,
    /// The object is as its spec says, and was not before.
    Ready,
    /// The object needs a person.
    Stalled,
    /// The object is gone.
    Deleted,
}

/// The state of the deliveries.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct WebhookStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Number of deliveries that were accepted.
    #[field(volatile)]
    pub delivered: Option<u64>,
    /// Number of deliveries that are not accepted yet.
    #[field(volatile)]
    pub waiting: Option<u64>,
    /// Number of dead letters: deliveries that were given up, and can be sent again.
    #[field(volatile)]
    pub failed: Option<u64>,
    /// The time at which a delivery was last accepted.
    #[field(volatile)]
    pub last_delivered_at: Option<Timestamp>,
    /// The error of the last attempt. Absent: the last attempt was accepted.
    #[field(volatile)]
    pub last_error: Option<String>,
}
