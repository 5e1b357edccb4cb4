//! The progress of each machine, one line for each change.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use basalt_api::client::Client;
use basalt_api::{Kind, Object};

use super::say;

/// Pause between two checks.
const INTERVAL: Duration = Duration::from_secs(1);
/// A percentage is printed again when it has grown by this much.
const PERCENT: u64 = 20;

/// The last line about a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    text: String,
    percent: Option<u64>,
}

/// Prints the progress of machines and deployments of these names, until it is dropped.
pub(super) async fn follow(client: &Client, names: &[String], began: Instant) {
    let mut said: BTreeMap<&str, Said> = BTreeMap::new();
    loop {
        for name in names {
            let now = look(client, name).await;
            let before = said.entry(name).or_default();
            if !now.text.is_empty() && is_news(before, &now) {
                let percent = now.percent.map(|percent| format!(" ({percent}% in all)")).unwrap_or_default();
                say(&format!("{}  {name:<5} {}{percent}", clock(began), now.text));
                *before = now;
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

fn is_news(before: &Said, now: &Said) -> bool {
    let words = |said: &Said| said.text.replace(|c: char| c.is_ascii_digit(), "");
    words(before) != words(now) || now.percent.unwrap_or(0) >= before.percent.unwrap_or(0) + PERCENT
}

/// Minutes and seconds since `began`.
pub(super) fn clock(began: Instant) -> String {
    let seconds = began.elapsed().as_secs();
    format!("{:>2}:{:02}", seconds / 60, seconds % 60)
}

async fn look(client: &Client, name: &str) -> Said {
    let deployment = get(client, "Deployment", name).await;
    let machine = get(client, "Machine", name).await;
    let Some(shown) = deployment.as_ref().or(machine.as_ref()) else { return Said::default() };
    let status = &shown.status;
    let phase = status["phase"].as_str().unwrap_or("New");
    let doing = status["progress"]["message"].as_str();
    let detail = match (doing, status["axes"]["operation_detail"].as_str()) {
        (Some(doing), _) if status["progress"]["percent"].as_u64().is_some_and(|percent| percent < 100) => {
            doing
        }
        (_, Some(detail)) => detail,
        (Some(doing), None) => doing,
        (None, None) => "",
    };
    let stalled = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|c| c["type"] == "Stalled" && c["status"] == "true");
    let trouble = stalled.and_then(|c| c["message"].as_str()).map(|message| format!(" — STALLED: {message}"));
    let text = format!("{phase:<14} {detail}{}", trouble.unwrap_or_default());
    Said { text: text.trim_end().to_owned(), percent: status["progress"]["percent"].as_u64() }
}

async fn get(client: &Client, kind: &str, name: &str) -> Option<Object> {
    client.find(Kind::find(kind)?, name).await.ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_told_in_large_steps_and_another_text_at_once() {
        let said = |text: &str, percent| Said { text: text.to_owned(), percent };
        assert!(!is_news(&said("Deploying", Some(20)), &said("Deploying", Some(39))));
        assert!(is_news(&said("Deploying", Some(20)), &said("Deploying", Some(40))));
        assert!(!is_news(&said("unpacking: 2 %", Some(20)), &said("unpacking: 13 %", Some(21))));
        assert!(is_news(&said("Deploying", Some(20)), &said("Deployed", Some(20))));
    }
}
