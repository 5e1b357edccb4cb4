//! Tag: a word that machines get by what they are made of.

use super::{CommonStatus, kind};
use crate::validate::Rule;
use basalt_api_derive::Model;

kind! {
    /// A word for machines, with what goes with it. Machines have it because their specs name it, or because their
    /// hardware is as its expression says.
    Tag, "tags", "basalt_tag", Label, declarable: true, TagSpec, TagStatus, tag_rules
}

/// A word for machines.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct TagSpec {
    /// What a machine's inventory must be like, as `cpu.cores >= 32 && gpu.count > 0`. Absent: only machines whose specs
    /// name the tag have it. CEL, over the names that the README lists.
    pub expression: Option<String>,
    /// Kernel parameters for every system that boots on machines that have it; before those of the machine itself.
    #[field(reboot)]
    pub kernel_options: Option<String>,
    /// What it is for, for people.
    #[field(none)]
    pub comment: Option<String>,
}

/// Who has the tag.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct TagStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Machines that have it, declared or by the expression.
    #[field(volatile)]
    pub machines: Option<u64>,
    /// Of these, machines that have it by the expression.
    #[field(volatile)]
    pub automatic: Option<u64>,
    /// Machines for which the expression cannot be computed; they do not have the tag.
    #[field(volatile)]
    pub errors: Option<u64>,
    /// One of these machines, and why.
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
