//! A plan in words, for people.

use basalt_api::kinds::phase;
use basalt_api::values::Timestamp;

use crate::plan::{BootAction, Effect, Plan, Wait};

/// The plan as lines of text.
#[must_use]
pub fn explain(plan: &Plan, now: Timestamp) -> Vec<String> {
    let mut lines = vec![phase(&plan.report.axes).to_owned()];
    lines.extend(plan.next.iter().map(|step| {
        let again = if step.resume { "again, as it may have been lost" } else { "now" };
        let try_no = if step.try_no > 1 { format!(" (try {})", step.try_no) } else { String::new() };
        let how = match &step.effect {
            Effect::Power { verb, device } => format!(" [{}, {}]", word(verb), word(device)),
            Effect::LetGo { unwiped: true, .. } => " [unwiped]".to_owned(),
            Effect::Arm { .. } | Effect::LetGo { .. } | Effect::Forget => String::new(),
        };
        format!("{again}: {}{how}{try_no}", step.step.spec().says)
    }));
    for wait in &plan.waits {
        lines.push(wait_line(wait, now));
        if let Some(human) = &wait.human {
            lines.push(format!("  to do: {human}"));
        }
    }
    if plan.next.is_empty() && plan.waits.is_empty() {
        lines.push("nothing to do".to_owned());
    }
    if !plan.later.is_empty() {
        let names: Vec<_> = plan.later.iter().map(|s| s.step.spec().says).collect();
        lines.push(format!("then: {}", names.join("; ")));
    }
    lines.push(match plan.boot {
        BootAction::Local => "boots: its disk".to_owned(),
        BootAction::PowerOff => "boots: nothing, it is told to power off".to_owned(),
        BootAction::Ephemeral(attempt) => format!("boots: the ephemeral environment, for attempt {attempt}"),
    });
    lines
}

/// One wait as one line: "waiting for web1 to ask for DHCP: since 12 s, until 23:41:10; then: power cycle again".
#[must_use]
pub fn wait_line(wait: &Wait, now: Timestamp) -> String {
    let since = now.duration_since(wait.since).as_secs().max(0);
    let until = wait.deadline.map(|d| format!(", until {}", d.strftime("%H:%M:%S"))).unwrap_or_default();
    let then = match (&wait.human, wait.deadline) {
        (Some(_), None) => format!("once a person has acted: {}", wait.remedy),
        _ => format!("then: {}", wait.remedy),
    };
    let tries = wait.tries.map(|(n, of)| format!(" (try {} of {of})", n.min(of))).unwrap_or_default();
    format!("{}{tries}: since {}{until}; {then}", wait.message, span(since))
}

/// Seconds as people say them.
fn span(seconds: i64) -> String {
    match seconds {
        s if s < 120 => format!("{s} s"),
        s if s < 7200 => format!("{} min", s / 60),
        s => format!("{} h", s / 3600),
    }
}

/// The word that stands for a unit variant on the wire.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(|s| s.replace('_', " "))).unwrap_or_default()
}
