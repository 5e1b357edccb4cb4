//! `basalt explain`: the steps, waits and history of an object.

use basalt_api::plan::{PlanReport, StepState, TimelineEntry, Wait};
use basalt_api::values::Timestamp;
use basalt_api::wire::{Decision, Decisions, ReplayDifference};

use crate::boots;
use crate::clock;
use crate::get::yaml;
use crate::host_name;
use crate::output::{line, show, show_exactly, show_json};
use crate::region::{Connection, Failed, kind};
use crate::subject::{Subject, machine, rack};

/// Subjects that are not kinds. First: the boots of a machine.
const BOOT: &str = "boot";
/// The clock of a rack.
const CLOCK: &str = "clock";
/// A host name, or an address.
const NAME: &str = "name";

/// The error for each of these subjects if no name follows.
const NAMELESS: [(&str, &str); 3] = [
    (
        BOOT,
        "say whose boots: basalt explain boot NAME, or a MAC address; `basalt get machines` has the names, and `basalt get discoveries` the \
         addresses that no Machine has",
    ),
    (CLOCK, "say whose clock: basalt explain clock RACK; `basalt get racks` has the names"),
    (NAME, "say which name: basalt explain name HOST, or an IP address"),
];

/// Arguments of `basalt explain`. Kinds are machine, deployment and rack. `boot` with a machine or a MAC shows the requests of its boots. `clock`
/// with a rack shows its clock and NTP servers. `name` with a host name or an address shows how racks answer for it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    subject: Subject,
    /// How many of the last things that happened are shown, or of the last boots
    #[arg(long, default_value_t = 15)]
    history: usize,
    /// Show why steps were begun instead, and whether the same would be decided again
    #[arg(long)]
    decisions: bool,
    /// text for people, json or yaml for programs
    #[arg(long, short, default_value = "text", value_parser = ["text", "json", "yaml"])]
    output: String,
}

/// Writes an answer: in words for people, or as JSON or YAML for programs.
fn put(output: &str, answer: &impl serde::Serialize, words: impl FnOnce() -> String) -> Result<(), Failed> {
    match output {
        "json" => show_json(answer),
        "yaml" => show_exactly(&yaml(&[answer])?),
        _ => show(&words()),
    }
    Ok(())
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let client = connection.client()?;
    if let (BOOT, Some(name), None) = args.subject.words() {
        let name = machine(name).map_err(Failed::Words)?;
        let boots = client.boots(&name).await?;
        return put(&args.output, &boots, || boots::table(&name, &boots, args.history));
    }
    if let (NAME, Some(name), None) = args.subject.words() {
        let report = client.name(name).await?;
        return put(&args.output, &report, || host_name::table(&report));
    }
    if let (CLOCK, Some(name), None) = args.subject.words() {
        let name = rack(name).map_err(Failed::Words)?;
        let rack = client.get(kind("rack")?, &name).await?;
        return put(&args.output, &rack.status.get("services"), || clock::table(&rack));
    }
    if let (word, None, None) = args.subject.words()
        && let Some((_, missing)) = NAMELESS.iter().find(|(of, _)| *of == word)
    {
        return Err(Failed::Words((*missing).to_owned()));
    }
    let (kind, name) = args.subject.object()?;
    if args.decisions {
        let decisions = client.decisions(kind, name).await?;
        return put(&args.output, &decisions, || decided(&format!("{} {name}", kind.name), &decisions));
    }
    let plan = client.plan(kind, name).await?;
    let timeline = client.timeline(kind, name).await?;
    if args.output != "text" {
        return put(&args.output, &serde_json::json!({ "plan": plan, "timeline": timeline }), String::new);
    }
    let mut text = format!("{}\n", line(heading(name, &plan)));
    let now = Timestamp::now();
    for wait in &plan.waits {
        text.push_str(&waits(wait, now));
    }
    let to_come: Vec<_> = plan.steps.iter().filter(|step| step.state != StepState::Done).collect();
    if !to_come.is_empty() {
        text.push_str("\nsteps:\n");
        for step in to_come {
            let mark = match step.state {
                StepState::Running => "runs",
                StepState::Next => "next",
                StepState::Later | StepState::Done => "then",
                StepState::Failed => "FAILED",
            };
            let destroys = if step.destructive { "  (destroys data)" } else { "" };
            text.push_str(&format!("  {mark:6} {}{destroys}\n", line(&step.message)));
        }
    }
    let entries = told(&timeline.entries);
    if !entries.is_empty() {
        text.push_str("\nwhat happened:\n");
        for entry in entries.iter().skip(entries.len().saturating_sub(args.history)) {
            text.push_str(&format!("  {}\n", happened(entry)));
        }
    }
    show(&text);
    Ok(())
}

/// The heading of a plan: its summary. If the summary only repeats the waits below, the name.
fn heading<'a>(name: &'a str, plan: &'a PlanReport) -> &'a str {
    let waits_for = plan.summary.strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
    let repeated = |summary| plan.waits.first().is_some_and(|wait| wait.message.starts_with(summary));
    if waits_for.is_some_and(repeated) { name } else { &plan.summary }
}

fn decided(of: &str, decisions: &Decisions) -> String {
    if decisions.decisions.is_empty() {
        return format!("no decision about {of} is kept: no step was begun for it\n");
    }
    let mut text = String::new();
    for decision in &decisions.decisions {
        let Decision { id, at, message, detail, .. } = decision;
        let at = moment(*at);
        let replay = detail.as_ref().map(|detail| &detail.replay);
        let verdict = replay.map(|replay| replay.message.as_str()).unwrap_or_default();
        text.push_str(&format!("{id:6}  {at}  {}: {}\n", line(message), line(verdict)));
        for difference in replay.map(|replay| replay.differences.as_slice()).unwrap_or_default() {
            let ReplayDifference { pointer, decided, replayed } = difference;
            text.push_str(&format!("          {pointer}: {decided}, and now {replayed}\n"));
        }
    }
    text
}

fn waits(wait: &Wait, now: Timestamp) -> String {
    let seconds = now.duration_since(wait.since).as_secs().max(0);
    let mut text = format!("  {}: since {seconds} s", line(&wait.message));
    if let Some(deadline) = wait.deadline {
        text.push_str(&format!(", until {}", moment(deadline)));
    }
    if let Some(remedy) = &wait.remedy {
        text.push_str(&format!("; then: {}", line(remedy)));
    }
    text.push('\n');
    if let Some(human) = &wait.human {
        text.push_str(&format!("  to do: {}\n", line(human)));
    }
    text
}

/// The entries, but of several percentages within one stage only the last.
fn told(entries: &[TimelineEntry]) -> Vec<&TimelineEntry> {
    let stage = |entry: &TimelineEntry| {
        let (_, of) = entry.message.split_once(" % ").filter(|_| entry.reason == "progress")?;
        Some((of.split(':').next().unwrap_or_default().to_owned(), entry.data.get("attempt").cloned()))
    };
    let next = entries.iter().skip(1).map(Some).chain([None]);
    let kept = entries.iter().zip(next).filter(|(entry, next)| {
        let stage_of = stage(entry);
        stage_of.is_none() || stage_of != next.and_then(stage)
    });
    kept.map(|(entry, _)| entry).collect()
}

/// A point in time in UTC: the output may be read days later.
fn moment(at: Timestamp) -> impl std::fmt::Display {
    at.strftime("%Y-%m-%d %H:%M:%S")
}

fn happened(entry: &TimelineEntry) -> String {
    let source = line(entry.source.as_deref().unwrap_or("-"));
    format!("{}  {source:10} {}", moment(entry.at), line(&entry.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_said_once() {
        let wait = |message: &str| Wait {
            cause: "BootRequest".into(),
            message: message.into(),
            since: Timestamp::UNIX_EPOCH,
            deadline: None,
            human: None,
            remedy: None,
            rule: None,
        };
        let summary = "web1: waiting for web1 to ask for DHCP".to_owned();
        let mut plan = PlanReport { summary, ..PlanReport::default() };
        plan.waits.push(wait("waiting for web1 to ask for DHCP (try 1 of 3)"));
        assert_eq!(heading("web1", &plan), "web1");
        plan.summary = "web1: nothing to do".to_owned();
        assert_eq!(heading("web1", &plan), "web1: nothing to do");
    }

    #[test]
    fn what_happened_is_one_line_whatever_a_stranger_called_it() {
        let entry: TimelineEntry = serde_json::from_value(serde_json::json!({
            "at": "2026-01-31T12:00:00Z", "kind": "fact", "reason": "alarm", "source": "rack-1",
            "message": "asked for a\u{1b}[2J\n12:00:00  region     all is well",
        }))
        .unwrap();
        assert_eq!(
            happened(&entry),
            "2026-01-31 12:00:00  rack-1     asked for a<U+001B>[2J<U+000A>12:00:00  region     all is well"
        );
    }

    #[test]
    fn of_a_stage_the_last_percentage_is_told() {
        let entry = |reason: &str, message: &str| -> TimelineEntry {
            let at = "2026-01-31T12:00:00Z";
            let whole = serde_json::json!({"at": at, "kind": "fact", "reason": reason, "message": message});
            serde_json::from_value(whole).unwrap()
        };
        let entries = [
            entry("claim", "the agent took its task"),
            entry("progress", "0 % partition: a"),
            entry("progress", "10 % unpack: b"),
            entry("progress", "20 % unpack: c"),
            entry("lease", "leased 10.0.0.9"),
            entry("progress", "30 % unpack: d"),
            entry("progress", "90 % unpack: e"),
        ];
        let said: Vec<_> = told(&entries).into_iter().map(|entry| entry.message.as_str()).collect();
        assert_eq!(
            said,
            [
                "the agent took its task",
                "0 % partition: a",
                "20 % unpack: c",
                "leased 10.0.0.9",
                "90 % unpack: e"
            ]
        );
    }

    #[tokio::test]
    async fn a_subject_without_a_name_is_told_what_names_there_are() {
        let answer =
            |_: &axum::extract::Request| axum::response::IntoResponse::into_response("nothing is asked");
        for (subject, says) in
            [("boot", "`basalt get discoveries`"), ("clock", "`basalt get racks`"), ("name", "an IP address")]
        {
            let refused = crate::stand_in::run(&["explain", subject], answer).await.unwrap_err().to_string();
            assert!(refused.contains(&format!("explain {subject} ")) && refused.contains(says), "{refused}");
        }
    }

    #[test]
    fn nothing_decided_is_said() {
        let text = decided("Machine web1", &Decisions::default());
        assert_eq!(text, "no decision about Machine web1 is kept: no step was begun for it\n");
    }

    #[test]
    fn a_region_that_does_not_answer_a_rack_is_named_with_since_when_and_what_to_do() {
        let since = Timestamp::from_second(1_800_000_000).unwrap();
        let wait = Wait {
            cause: "RegionSilent".into(),
            message: "region 10.0.0.2:5250 does not answer it (timed out)".into(),
            since,
            deadline: None,
            human: Some("start that region, or let rack1 reach it".into()),
            remedy: None,
            rule: None,
        };
        assert_eq!(
            waits(&wait, Timestamp::from_second(1_800_000_030).unwrap()),
            "  region 10.0.0.2:5250 does not answer it (timed out): since 30 s\n  to do: start that region, or let rack1 reach it\n"
        );
    }

    #[test]
    fn a_wait_says_since_when_until_when_and_what_then() {
        let wait = Wait {
            cause: "BootRequest".into(),
            message: "waiting for web1 to ask for DHCP".into(),
            since: Timestamp::from_second(1_800_000_000).unwrap(),
            deadline: Timestamp::from_second(1_800_000_060).ok(),
            human: None,
            remedy: Some("power cycle again".into()),
            rule: None,
        };
        assert_eq!(
            waits(&wait, Timestamp::from_second(1_800_000_012).unwrap()),
            "  waiting for web1 to ask for DHCP: since 12 s, until 2027-01-15 08:01:00; then: power cycle again\n"
        );
    }
}
