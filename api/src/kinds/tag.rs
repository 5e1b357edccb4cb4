//! Tag: a word for machines, given by their specs or by their hardware.

use super::{CommonStatus, kind};
use crate::validate::Rule;
use basalt_api_derive::Model;

kind! {
    /// A word for machines, with settings for them. A machine has the tag if its spec names it, or if the tag's expression is
    /// true for its hardware.
    Tag, "tags", "basalt_tag", Label, declarable: true, TagSpec, TagStatus, tag_rules
}

/// A word for machines.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct TagSpec {
    /// A condition for the inventory of a machine, as `cpu.cores >= 32 && gpu.count > 0`. Absent: only machines whose specs name
    /// the tag have it. CEL, over the names that the README lists.
    pub expression: Option<String>,
    /// Kernel parameters for every system that boots on machines with the tag. They come before the parameters of the machine.
    #[field(reboot)]
    pub kernel_options: Option<String>,
    /// A comment for people. It has no effect.
    #[field(none)]
    pub comment: Option<String>,
}

/// The use of the tag.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct TagStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Number of machines with the tag, by their specs or by the expression.
    #[field(volatile)]
    pub machines: Option<u64>,
    /// Number of machines with the tag by the expression.
    #[field(volatile)]
    pub automatic: Option<u64>,
    /// Number of machines for which the expression cannot be computed. They do not have the tag.
    #[field(volatile)]
    pub errors: Option<u64>,
    /// The name of one of these machines, and the reason.
    #[field(volatile)]
    pub error: Option<String>,
}

fn tag_rules(spec: &TagSpec, rule: &mut Rule<'_>) {
    super::kernel_options::rules(spec.kernel_options.as_deref(), rule);
    let text = spec.expression.as_deref();
    let is_empty = text.is_some_and(|text| text.trim().is_empty());
    if is_empty {
        rule.broken(
            "/expression",
            "the expression is empty",
            "like cpu.cores >= 32, or leave it out for a tag that only specs give",
        );
    }
    #[cfg(feature = "expressions")]
    if let Some(Err(error)) = text.filter(|_| !is_empty).map(crate::expression::Expression::parse) {
        rule.broken("/expression", error.to_string(), "like cpu.cores >= 32 && gpu.count > 0");
    }
}
