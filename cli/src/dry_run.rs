//! The effects of a write, as text for people.

use basalt_api::wire::DryRun;
use serde_json::Value;

use crate::output::line;

/// The plan, the effects on machines that the write does not name, and the conflicts with other objects.
pub(crate) fn shown(dry: &DryRun) -> String {
    let mut text = format!("{}\n", line(&dry.plan.summary));
    if let Some(manager) = &dry.plan.taken_from {
        text.push_str(&format!("  taken over from {}\n", line(manager)));
    }
    if let Some(interrupts) = &dry.plan.interrupts {
        text.push_str(&format!("  {}\n", line(interrupts)));
    }
    for note in &dry.plan.notes {
        text.push_str(&format!("  {}\n", line(note)));
    }
    for change in &dry.plan.changes {
        let word = |value: &Option<Value>| value.as_ref().map_or("nothing".to_owned(), Value::to_string);
        text.push_str(&format!("  {}: {} -> {}\n", change.pointer, word(&change.old), word(&change.new)));
    }
    for step in &dry.plan.steps {
        text.push_str(&format!("  {}\n", line(&step.message)));
    }
    for it in &dry.consequences.machines {
        text.push_str(&format!("  then Machine {}\n", line(&it.summary)));
    }
    for it in &dry.consequences.tags {
        text.push_str(&format!("  then {it}\n"));
    }
    for advisory in &dry.advisories {
        text.push_str(&format!("  {}: {}\n", advisory.pointer, line(&advisory.message)));
    }
    text
}
