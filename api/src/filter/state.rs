//! The state of an object in the words that people see. The console has the same in `parts/state.ts`; both are tested with the same cases.

use serde_json::Value;

/// Running well, working, waiting for a person, failed, off or retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tone {
    Ok,
    Busy,
    Wait,
    Bad,
    Off,
}

impl Tone {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Busy => "working",
            Self::Wait => "waiting",
            Self::Bad => "failed",
            Self::Off => "off",
        }
    }
}

/// The state of an object.
#[derive(Debug)]
pub(super) struct State {
    tone: Tone,
    word: String,
    /// The reason, a sentence without its full stop.
    pub(super) reason: String,
    operation: Option<String>,
}

impl State {
    /// Words that find the state: its own, its tone, and the operation.
    pub(super) fn words(&self) -> Vec<String> {
        let mut words = vec![self.word.clone(), self.tone.word().to_owned()];
        words.extend(self.operation.clone());
        words.dedup();
        words
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn holds(condition: Option<&Value>) -> bool {
    condition.is_some_and(|it| text(it, "/status") == "true")
}

/// The reason in a condition, without the remedy.
fn because(condition: Option<&Value>) -> String {
    let message = condition.map(|it| text(it, "/message")).unwrap_or_default();
    let reason = message.split(" To do: ").next().unwrap_or_default();
    plain(reason)
}

/// The text without its final full stop.
fn plain(text: &str) -> String {
    text.strip_suffix('.').unwrap_or(text).to_owned()
}

fn capital(text: &str) -> String {
    let mut signs = text.chars();
    signs.next().map(|first| first.to_uppercase().chain(signs).collect()).unwrap_or_default()
}

/// Words that are abbreviations, and are pronounced letter by letter.
const SHORT: [&str; 16] = [
    "bmc", "cidr", "cpu", "dhcp", "dns", "gpu", "ip", "mac", "mtu", "ntp", "os", "ssh", "tls", "ttl", "uid",
    "url",
];
const SHORT_TOO: [&str; 2] = ["vid", "vlan"];

/// `CannotBeRead` as `Cannot be read`.
fn spaced(word: &str) -> String {
    let mut words = String::with_capacity(word.len());
    let mut before = ' ';
    for sign in word.replace('_', " ").chars() {
        match before.is_ascii_lowercase() && sign.is_ascii_uppercase() {
            true => {
                words.push(' ');
                words.push(sign.to_ascii_lowercase());
            }
            false => words.push(sign),
        }
        before = sign;
    }
    let short = |word: &str| {
        let one = word.strip_suffix('s').filter(|one| is_short(one));
        match one {
            Some(one) => format!("{}s", one.to_uppercase()),
            None if is_short(word) => word.to_uppercase(),
            None => word.to_owned(),
        }
    };
    capital(&words.split(' ').map(short).collect::<Vec<_>>().join(" "))
}

fn is_short(word: &str) -> bool {
    SHORT.contains(&word) || SHORT_TOO.contains(&word)
}

/// The state of an object of any kind.
pub(super) fn of(object: &Value) -> State {
    let none = Value::Null;
    let status = object.get("status").unwrap_or(&none);
    let conditions = status.get("conditions").and_then(Value::as_array);
    let condition = |named: &str| conditions?.iter().find(|it| text(it, "/type") == named);
    let (ready, progressing, stalled) = (condition("Ready"), condition("Progressing"), condition("Stalled"));
    let operation = Some(text(status, "/axes/operation")).filter(|it| !it.is_empty()).map(str::to_owned);
    let state = |tone, word: &str, reason: String| State { tone, word: word.to_owned(), reason, operation };
    if object.pointer("/metadata/deletion_requested_at").is_some_and(|it| !it.is_null()) {
        return state(Tone::Busy, "Leaving", because(progressing.or(ready)));
    }
    if let Some(is_connected) = status.get("connected").and_then(Value::as_bool) {
        let why = if holds(stalled) { stalled } else { ready };
        return match is_connected {
            false => state(Tone::Bad, "Away", plain(why.map(|it| text(it, "/message")).unwrap_or_default())),
            true => match trouble(status) {
                None => state(Tone::Ok, "Connected", String::new()),
                Some(reason) => state(Tone::Bad, "Degraded", reason),
            },
        };
    }
    let lifecycle = text(status, "/axes/lifecycle");
    let word = Some(text(status, "/phase")).filter(|it| !it.is_empty()).unwrap_or(lifecycle);
    if !lifecycle.is_empty() {
        let why = if holds(stalled) { stalled } else { progressing.filter(|it| holds(Some(it))) };
        let detail = plain(text(status, "/axes/operation_detail"));
        let reason = Some(because(why)).filter(|reason| !reason.is_empty()).unwrap_or(detail);
        return state(tone(status, holds(stalled)), &capital(word), reason);
    }
    if let Some(it) = stalled.filter(|it| holds(Some(it))) {
        let word = Some(text(it, "/reason")).filter(|it| !it.is_empty()).unwrap_or("Stalled");
        return state(Tone::Bad, &spaced(word), because(stalled));
    }
    if holds(progressing) {
        return state(Tone::Busy, "Working", because(progressing));
    }
    match ready {
        Some(it) if holds(ready) => {
            let reason = if text(it, "/reason") == "Stored" { "" } else { text(it, "/message") };
            state(Tone::Ok, "Ready", plain(reason))
        }
        Some(_) => state(Tone::Wait, "Not ready", because(ready)),
        None => state(Tone::Ok, "Stored", String::new()),
    }
}

/// The services of a rack that do not run.
fn trouble(status: &Value) -> Option<String> {
    let services = status.get("services").and_then(Value::as_object)?;
    let mut bad = services.iter().filter(|(_, it)| text(it, "/state") != "running");
    let (name, first) = bad.next()?;
    let why = Some(text(first, "/message")).filter(|it| !it.is_empty()).unwrap_or(text(first, "/state"));
    let more = match bad.count() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    Some(format!("{name}: {why}{more}"))
}

fn tone(status: &Value, is_stalled: bool) -> Tone {
    let axis = |name: &str| text(status, &format!("/axes/{name}"));
    match (axis("operation"), axis("lifecycle"), axis("health")) {
        ("failed", _, _) | (_, "broken", _) | (_, _, "critical") => Tone::Bad,
        ("waiting" | "held", _, _) => Tone::Wait,
        _ if is_stalled => Tone::Wait,
        ("running" | "delayed", _, _) => Tone::Busy,
        (_, "retired" | "new", _) => Tone::Off,
        (_, "rescue", _) | (_, _, "degraded") => Tone::Wait,
        _ => Tone::Ok,
    }
}
