//! `basalt wait`: waits until an object is as declared, or gone.

use std::time::{Duration, Instant};

use basalt_api::client::{Client, Outcome, WaitFor, WaitGone};
use basalt_api::kinds::Condition;
use basalt_api::values::Generation;
use basalt_api::{Kind, Object};

use crate::output::{line, say};
use crate::region::{Connection, Failed};
use crate::subject::Subject;

/// Arguments of `basalt wait`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    subject: Subject,
    /// A condition that is to be true of what is declared now: Ready, …; or Deleted
    #[arg(long = "for", value_name = "CONDITION", default_value = Condition::READY)]
    condition: String,
    /// For how long: 90s, 45m
    #[arg(long, value_name = "TIME", default_value = "10m")]
    timeout: basalt_api::values::Duration,
}

/// The goal of a wait.
pub(crate) enum Goal {
    /// The condition is true for this generation or a later one.
    Holds(String, Generation),
    /// The object does not exist.
    Gone,
}

/// The time that a person allowed for a wait, and its start.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    began: Instant,
    time: Duration,
}

impl Patience {
    /// The whole time, from now on.
    pub(crate) fn of(time: Duration) -> Self {
        Self { began: Instant::now(), time }
    }

    fn left(self) -> Duration {
        self.time.saturating_sub(self.began.elapsed())
    }
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let (kind, name) = args.subject.object()?;
    let client = connection.client()?;
    let goal = match args.condition.as_str() {
        "Deleted" => Goal::Gone,
        condition => {
            let now = client.get(kind, name).await?.metadata.generation;
            Goal::Holds(condition.to_owned(), now)
        }
    };
    until(&client, (kind, name), goal, Patience::of(args.timeout.get()), false).await
}

/// Waits, and prints each new message of the object's condition.
///
/// # Errors
/// The object is stalled or the time is up. The error has its last message, and names the command for more.
pub(crate) async fn until(
    client: &Client,
    (kind, name): (&'static Kind, &str),
    goal: Goal,
    patience: Patience,
    quiet: bool,
) -> Result<(), Failed> {
    let mut last = String::new();
    let observe = |object: &Object| {
        let status = object.common_status();
        let says = status.condition(Condition::READY).map(|ready| ready.message.clone()).unwrap_or_default();
        if !quiet && says != last {
            say(&format!("{} {name}: {}", kind.name, line(&says)));
            last = says;
        }
    };
    let (outcome, late) = match goal {
        Goal::Gone => {
            let within = WaitGone::within(patience.left());
            (client.wait_gone(kind, name, within, observe).await?, "still there".to_owned())
        }
        Goal::Holds(condition, generation) => {
            let late = format!("not {condition}");
            let wait = WaitFor { condition, generation, timeout: patience.left(), through_outages: false };
            (Some(client.wait(kind, name, &wait, observe).await?), late)
        }
    };
    let words = match outcome {
        None | Some(Outcome::Met(_)) => return Ok(()),
        Some(Outcome::Stalled(_, condition)) => condition.message,
        Some(Outcome::TimedOut(_)) => format!("{late} after {} s", patience.time.as_secs()),
    };
    let hint = format!("basalt explain {} {name} says more", kind.name.to_lowercase());
    Err(Failed::Words(format!("{} {name}: {words}; {hint}", kind.name)))
}

#[cfg(test)]
mod tests {
    use axum::Json;
    use axum::response::IntoResponse;
    use serde_json::Value;

    use crate::stand_in::{self, zone};

    /// Runs `basalt wait` with these flags at a region with this zone.
    async fn waited(flags: &[&str], zone: Value) -> Result<(), String> {
        let words = [&["wait", "zone", "row-1"], flags].concat();
        let ended = stand_in::run(&words, move |_| Json(&zone).into_response()).await;
        ended.map_err(|failed| failed.to_string())
    }

    #[tokio::test]
    async fn it_ends_when_the_condition_holds_or_can_hold_no_more_or_the_time_is_up() {
        waited(&[], zone("Ready")).await.unwrap();
        waited(&["--for", "Synced"], zone("Synced")).await.unwrap();
        let shut = waited(&[], zone("Stalled")).await.unwrap_err();
        assert!(shut.starts_with("Zone row-1: the door is shut; basalt explain zone row-1"), "{shut}");
        let late = waited(&["--timeout", "1s"], zone("Progressing")).await.unwrap_err();
        assert!(late.starts_with("Zone row-1: not Ready after 1 s"), "{late}");
        let there = waited(&["--for", "Deleted", "--timeout", "1s"], zone("Ready")).await.unwrap_err();
        assert!(there.starts_with("Zone row-1: still there after 1 s"), "{there}");
    }
}
