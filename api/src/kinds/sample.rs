//! Sample: a kind with one of everything that a description can contain, for tests of code that walks descriptions.

use super::{CommonStatus, Zone, kind};
use crate::model::Ref;
use crate::validate::Rule;
use crate::values::{Cidr, Duration, Mac, Secret};
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};

kind! {
    /// One of everything. The kind exists only in tests.
    Sample, "samples", "basalt_sample", Label, declarable: true, SampleSpec, SampleStatus, sample_rules
}

/// One of everything, as declared.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SampleSpec {
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
    /// An immutable field.
    #[field(immutable)]
    pub serial: String,
    /// A number with a default.
    #[field(default = 3, min = 1, max = 10)]
    pub count_wanted: u32,
    /// A truth value.
    pub enabled: Option<bool>,
    /// A text with a form.
    pub mac: Option<Mac>,
    /// A network with a form.
    #[field(dormant = "no packet leaves")]
    pub network: Option<Cidr>,
    /// A duration with a default.
    #[field(default = "5m")]
    pub patience: Duration,
    /// A word.
    #[field(default = SampleColour::Red, dormant(dark_green = "nobody can see it"))]
    pub colour: SampleColour,
    /// A reference that the region chooses.
    #[field(server_chosen)]
    pub zone: Option<Ref<Zone>>,
    /// A secret with destinations.
    #[field(sent_to(mac, detail))]
    pub password: Option<Secret>,
    /// A sensitive text.
    #[field(sensitive, text, redeploy)]
    pub script: Option<String>,
    /// An object in an object.
    #[field(reboot)]
    pub detail: Option<SampleDetail>,
    /// Objects by name.
    pub parts: BTreeMap<String, SamplePart>,
    /// Scalars in order.
    pub steps: Vec<String>,
    /// Scalars without order.
    pub macs: BTreeSet<Mac>,
}

/// A colour, as an example of an enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum SampleColour {
    /// The colour red.
    Red,
    /// A dark green colour.
    DarkGreen,
}

/// An object in an object.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SampleDetail {
    /// A required field of an object.
    pub label: String,
    /// A stronger effect than its parent's.
    #[field(redeploy)]
    pub size: Option<u64>,
}

/// An object in a map.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SamplePart {
    /// A required field in a map.
    pub weight: u64,
    /// A number in a map.
    #[field(dormant = "nothing is stacked")]
    pub height: Option<u64>,
    /// Scalars in order, in a map.
    pub notes: Vec<String>,
    /// A secret in a map.
    #[field(sent_to(height))]
    pub key: Option<Secret>,
}

/// One of everything, as observed.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SampleStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// A stable field.
    pub address: Option<String>,
    /// A volatile field.
    #[field(volatile)]
    pub temperature: Option<i64>,
}

fn sample_rules(spec: &SampleSpec, rule: &mut Rule<'_>) {
    if spec.serial == "void" {
        rule.broken("/serial", "serial \"void\" is kept for nothing", "any other serial number");
    }
}
