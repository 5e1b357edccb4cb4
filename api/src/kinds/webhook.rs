//! Webhook: who is told of what happens.

use super::{CommonStatus, kind};
use crate::validate::no_rules;
use crate::values::{Secret, Timestamp, Url};
use basalt_api_derive::Model;
use std::collections::BTreeSet;

kind! {
    /// A URL that is told of what happens to objects, as the Standard Webhooks specification has it: at least once, and in order
    /// for each object. Only admins declare one. Answering 410 ends it.
    Webhook, "webhooks", "basalt_webhook", Label, declarable: true, WebhookSpec, WebhookStatus, no_rules
}

/// Who is told, and of what.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct WebhookSpec {
    /// Where deliveries are posted.
    pub url: Url,
    /// What is delivered. Empty: everything.
    pub events: BTreeSet<WebhookEvent>,
    /// What deliveries are signed with: `whsec_` and base64, or any text. Without it they are not.
    #[field(sent_to(url))]
    pub secret: Option<Secret>,
    /// What it is, for people.
    #[field(none)]
    pub description: Option<String>,
}

/// What can happen to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum WebhookEvent {
    /// It was declared for the first time.
    Created,
    /// Its spec, name or labels have changed, or its deletion was asked for.
    Changed,
    /// It is as its spec says, and was not before.
    Ready,
    /// It needs a person.
    Stalled,
    /// It is gone.
    Deleted,
}

/// How deliveries go.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct WebhookStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Deliveries that were accepted.
    #[field(volatile)]
    pub delivered: Option<u64>,
    /// Deliveries that are not accepted yet.
    #[field(volatile)]
    pub waiting: Option<u64>,
    /// Dead letters: deliveries that were given up, and can be sent again.
    #[field(volatile)]
    pub failed: Option<u64>,
    /// When one was last accepted.
    #[field(volatile)]
    pub last_delivered_at: Option<Timestamp>,
    /// How the last attempt failed; absent when it was accepted.
    #[field(volatile)]
    pub last_error: Option<String>,
}
