//! The effects of an apply, as text for people.

use std::collections::BTreeSet;

use basalt_api::plan::{Consequence, PlanReport, Step, StepState, Wait};
use basalt_api::values::Name;
use basalt_api::wire::{ApplyAction, ApplyResponse};
use basalt_api::{Effect, FieldChange};
use serde_json::Value;

use super::documents::Declared;

/// For a new object, the changes are its declaration and are not printed.
pub(super) fn shown(plan: &ApplyResponse, declared: &[Declared]) -> String {
    let mut text = String::new();
    for result in &plan.results {
        let sign = match result.action {
            ApplyAction::Created => "+ create",
            ApplyAction::Updated => "~ change",
            ApplyAction::Deleted => "- delete",
            ApplyAction::Unchanged => continue,
        };
        text.push_str(&format!("{sign}  {} {}\n", result.kind, result.name));
        let Some(report) = &result.plan else { continue };
        if let Some(manager) = &report.taken_from {
            text.push_str(&format!("      taken over from {manager}, which may undo this\n"));
        }
        if result.action == ApplyAction::Updated {
            report.changes.iter().for_each(|change| text.push_str(&changed(change)));
        }
        text.push_str(&follows(report));
    }
    for advisory in &plan.advisories {
        text.push_str(&format!("! {}: {}", place(&advisory.pointer, declared), advisory.message));
        if let Some(hint) = &advisory.hint {
            text.push_str(&format!(" ({hint})"));
        }
        text.push('\n');
    }
    plan.consequences.machines.iter().for_each(|it| text.push_str(&consequence(it)));
    plan.consequences.tags.iter().for_each(|it| text.push_str(&format!("> {it}\n")));
    if plan.consequences.not_told > 0 {
        let more = counted("more machine", usize::try_from(plan.consequences.not_told).unwrap_or(usize::MAX));
        text.push_str(&format!("> {more} may be affected; what follows there is not shown\n"));
    }
    let touched = &plan.blast_radius;
    text.push_str(&radius(&touched.power, |machines| format!("the power of {machines} is switched")));
    let disks = |machines: &str| format!("the disks of {machines} are written or erased").to_uppercase();
    text.push_str(&radius(&touched.disks, disks));
    text.push_str(&plan.summary);
    text.push('\n');
    text
}

/// The new plan of a machine that no document names.
fn consequence(it: &Consequence) -> String {
    let steps = in_words(&it.steps);
    let then = if steps.is_empty() { String::new() } else { format!("      then: {steps}\n") };
    format!("> Machine {}\n{then}", it.summary)
}

fn changed(change: &FieldChange) -> String {
    let value = |value: &Option<Value>| value.as_ref().map_or_else(|| "nothing".to_owned(), Value::to_string);
    let effect = match change.effect {
        Effect::None | Effect::Live => "",
        Effect::Reboot => "  (a reboot)",
        Effect::Redeploy => "  (a new installation)",
        Effect::Replace => "  (cannot be changed)",
    };
    format!("      {}: {} -> {}{effect}\n", change.pointer, value(&change.old), value(&change.new))
}

/// The waits, and the steps after them.
fn follows(report: &PlanReport) -> String {
    let mut text: String = report.waits.iter().map(waited).collect();
    let steps = in_words(&report.steps);
    match (&report.machine, steps.is_empty()) {
        (_, true) => {}
        (Some(machine), false) => text.push_str(&format!("      on {machine}: {steps}\n")),
        (None, false) => text.push_str(&format!("      then: {steps}\n")),
    }
    report.notes.iter().for_each(|note| text.push_str(&format!("      {note}\n")));
    text
}

fn waited(wait: &Wait) -> String {
    let human = wait.human.as_ref().map(|human| format!(" (to do: {human})")).unwrap_or_default();
    format!("      {}{human}\n", wait.message)
}

fn in_words(steps: &[Step]) -> String {
    let steps = steps.iter().filter(|step| step.state != StepState::Done);
    let words = steps.map(|step| match step.destructive {
        true => step.message.to_uppercase(),
        false => step.message.clone(),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The number of machines and their names.
fn radius(machines: &BTreeSet<Name>, what: impl FnOnce(&str) -> String) -> String {
    const NAMED: usize = 10;
    if machines.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = machines.iter().take(NAMED).map(Name::as_str).collect();
    let more = machines.len().saturating_sub(NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}: {}{rest}\n", what(&counted("machine", machines.len())), names.join(", "))
}

fn counted(what: &str, count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// The place in a file for a pointer into the request.
pub(super) fn place(pointer: &str, declared: &[Declared]) -> String {
    let found = pointer.strip_prefix("/documents/").and_then(|rest| {
        let (index, rest) = rest.split_once('/').unwrap_or((rest, ""));
        Some((declared.get(index.parse::<usize>().ok()?)?, rest))
    });
    let Some((declared, rest)) = found else { return pointer.to_owned() };
    let number = if declared.number == 0 { String::new() } else { format!(" #{}", declared.number) };
    let (kind, name) = (&declared.document.kind, &declared.document.metadata.name);
    let field = if rest.is_empty() { String::new() } else { format!(" /{rest}") };
    format!("{}{number} {kind} {name}{field}", declared.file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn declared() -> Vec<Declared> {
        let document = |name: &str| {
            serde_json::from_value(json!({"kind": "Zone", "metadata": {"name": name}, "spec": {}})).unwrap()
        };
        vec![
            Declared { document: document("a"), file: "zones.yaml".into(), number: 1 },
            Declared { document: document("b"), file: "b.yaml".into(), number: 0 },
        ]
    }

    #[test]
    fn a_pointer_names_file_object_and_field() {
        let declared = declared();
        assert_eq!(place("/documents/0/spec/colour", &declared), "zones.yaml #1 Zone a /spec/colour");
        assert_eq!(place("/documents/1", &declared), "b.yaml Zone b");
        assert_eq!(place("/prune", &declared), "/prune");
        assert_eq!(place("/documents/9/spec", &declared), "/documents/9/spec");
    }

    #[test]
    fn a_plan_says_what_changes_and_whom_it_touches() {
        let wait = json!({"cause": "NoMachine", "message": "waiting for a machine; nearest: m2: it has tag slow", "since": "2026-01-31T12:00:00Z",
            "human": "add or free a machine"});
        let step = |message: &str, destructive: bool| json!({"key": "k", "message": message, "state": "later", "destructive": destructive, "power": true});
        let plan = json!({
            "summary": "1 created, 1 changed, 1 deleted, 1 unchanged.", "digest": "0".repeat(64),
            "blast_radius": {"power": ["m1", "m3"], "disks": ["m1"]},
            "results": [
                {"kind": "Zone", "name": "a", "action": "created", "plan": {"summary": "",
                    "changes": [{"pointer": "/description", "new": "x", "effect": "none"}]}},
                {"kind": "Zone", "name": "b", "action": "unchanged"},
                {"kind": "Zone", "name": "c", "action": "updated", "plan": {"summary": "", "taken_from": "terraform"}},
                {"kind": "Deployment", "name": "web", "action": "updated", "plan": {"summary": "", "machine": "m1",
                    "changes": [{"pointer": "/image", "old": "a", "new": "b", "effect": "redeploy"}],
                    "steps": [step("prepare the install", false), step("install", true)], "notes": ["it takes vdb of 32000 MB"]}},
                {"kind": "Deployment", "name": "db", "action": "created", "plan": {"summary": "db: waiting", "waits": [wait]}},
                {"kind": "Pool", "name": "old", "action": "deleted"},
            ],
            "advisories": [{"pointer": "/documents/1/spec/x", "code": "rule", "message": "no", "hint": "yes"}],
        });
        let plan: ApplyResponse = serde_json::from_value(plan).unwrap();
        assert_eq!(
            shown(&plan, &declared()),
            "+ create  Zone a\n\
             ~ change  Zone c\n      taken over from terraform, which may undo this\n\
             ~ change  Deployment web\n      /image: \"a\" -> \"b\"  (a new installation)\n      \
             on m1: prepare the install, INSTALL\n      it takes vdb of 32000 MB\n\
             + create  Deployment db\n      waiting for a machine; nearest: m2: it has tag slow (to do: add or free a machine)\n\
             - delete  Pool old\n\
             ! b.yaml Zone b /spec/x: no (yes)\n\
             the power of 2 machines is switched: m1, m3\n\
             THE DISKS OF 1 MACHINE ARE WRITTEN OR ERASED: m1\n\
             1 created, 1 changed, 1 deleted, 1 unchanged.\n"
        );
    }
}
