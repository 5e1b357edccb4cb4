//! `basalt logs`: the log of a machine: syslog, and output of its agent and scripts.

use basalt_api::client::{Client, LogOptions};
use basalt_api::values::Timestamp;
use basalt_api::wire::LogLine;

use crate::audit::moment;
use crate::output::{line, say, show, show_exactly};
use crate::region::{Connection, Failed};
use crate::subject::machine;
use crate::watch::Shown;

/// Arguments of `basalt logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A machine's name, or uid:UUID
    #[arg(value_parser = machine)]
    machine: String,
    /// Go on with new lines as they come
    #[arg(long, short)]
    follow: bool,
    /// Lines of one boot: 0 is the last one, 1 the one before
    #[arg(long, value_name = "NUMBER")]
    boot: Option<u32>,
    /// Lines with this text, or of a program or host with this text in its name
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// Since then: 2026-01-31T12:00:00Z, or 30m, 12h, 7d ago
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Lines before then, in the same forms
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// The last so many lines, 10000 at most
    #[arg(long, short = 'n', default_value_t = 1000)]
    lines: u32,
    /// text for people; json for programs, an object a line
    #[arg(long, short, default_value = "text", value_parser = ["text", "json"])]
    output: String,
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let client = connection.client()?;
    let at = |text: &Option<String>| text.as_deref().map(|text| moment(text, Timestamp::now())).transpose();
    let options = LogOptions {
        since: at(&args.since)?,
        until: at(&args.until)?,
        boot: args.boot,
        grep: args.grep.clone(),
        limit: Some(args.lines),
    };
    let shown = Shown::of(&args.output);
    if args.follow {
        return follow(&client, &args.machine, &options, shown).await;
    }
    let logs = client.logs(&args.machine, &options).await?;
    if logs.more && shown == Shown::Text {
        say(&format!(
            "these are the last {} lines; there are earlier ones (--lines, --until)",
            logs.lines.len()
        ));
    }
    if logs.lines.is_empty() && shown == Shown::Text {
        say(&format!("nothing is logged of {} that was asked for", args.machine));
    }
    logs.lines.iter().for_each(|line| print(line, shown));
    Ok(())
}

async fn follow(client: &Client, machine: &str, options: &LogOptions, shown: Shown) -> Result<(), Failed> {
    let mut log = client.follow_log(machine, options);
    loop {
        print(&log.next().await?, shown);
    }
}

fn print(line: &LogLine, shown: Shown) {
    match shown {
        Shown::Text => show(&text(line)),
        Shown::Json => show_exactly(&format!("{}\n", serde_json::to_string(line).unwrap_or_default())),
    }
}

/// Formats a line: `2026-01-31 12:00:00 err sshd[812]: text`. The severity is shown from `warning` on.
fn text(entry: &LogLine) -> String {
    let LogLine { at, severity, app, procid, text, .. } = entry;
    let is_bad = ["emerg", "alert", "crit", "err", "warning"].contains(&severity.as_str());
    let severity = if is_bad { format!("{severity} ") } else { String::new() };
    let who = match (app, procid) {
        (Some(app), Some(procid)) => format!("{app}[{procid}]: "),
        (Some(app), None) => format!("{app}: "),
        _ if entry.facility == "kern" => "kernel: ".to_owned(),
        _ => String::new(),
    };
    format!(
        "{} {severity}{}\n",
        at.strftime("%Y-%m-%d %H:%M:%S"),
        line(&format!("{who}{text}").replace('\t', " "))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_with_its_time_its_program_and_what_is_bad_about_it() {
        let line = |severity: &str, app: Option<&str>, said: &str| LogLine {
            at: Timestamp::from_second(1_790_000_000).unwrap(),
            facility: "kern".into(),
            severity: severity.into(),
            time: None,
            host: None,
            app: app.map(str::to_owned),
            procid: app.map(|_| "812".into()),
            msgid: None,
            structured: None,
            address: None,
            text: said.into(),
        };
        let shown = text(&line("err", Some("sshd"), "a\tb\u{1b}\n"));
        assert_eq!(shown, "2026-09-21 14:13:20 err sshd[812]: a b<U+001B><U+000A>\n");
        assert_eq!(text(&line("info", None, "up")), "2026-09-21 14:13:20 kernel: up\n");
    }
}
