//! Schedules of repeated work.

use super::text::checked_text;
use super::{BadValue, Duration, quoted};

checked_text! {
    /// A length of time between two runs, like `6h`, or the five fields of crontab(5) in UTC, like `30 3 * * 1-5`.
    Schedule: Schedule, check,
}

impl Schedule {
    /// The schedule with this duration between two runs, which is at least a minute.
    #[must_use]
    pub fn every(time: Duration) -> Self {
        Self(time.max(Duration::from_secs(SHORTEST_SECS)).to_string())
    }
}

/// The fields of crontab(5) with their smallest and largest value.
const FIELDS: [(&str, u8, u8); 5] =
    [("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7)];

/// Shortest interval. With a shorter one, the work itself would load the region.
const SHORTEST_SECS: u64 = 60;

pub(crate) fn check(text: &str) -> Result<(), BadValue> {
    canonical(text).map(drop)
}

/// The canonical spelling: durations in the largest units, and one space between fields.
pub(crate) fn canonical(text: &str) -> Result<String, BadValue> {
    let hint =
        "a length of time like 6h, or five fields like \"30 3 * * 1-5\" (minute, hour, day, month, weekday)";
    let bad = |why: String| BadValue::new(format!("{} is not a schedule: {why}", quoted(text)), hint);
    let fields: Vec<&str> = text.split_whitespace().collect();
    if let [only] = fields.as_slice() {
        let every: Duration = only.parse().map_err(|error: BadValue| bad(error.message))?;
        if every.as_secs() < SHORTEST_SECS {
            return Err(bad(format!("{every} is shorter than a minute")));
        }
        return Ok(every.to_string());
    }
    if fields.len() != FIELDS.len() {
        return Err(bad(format!("it has {} fields", fields.len())));
    }
    for (text, (name, least, most)) in fields.iter().zip(FIELDS) {
        for item in text.split(',') {
            if !is_item(item, least, most) {
                let why = format!("{} is not a {name}, which is {least} to {most}", quoted(item));
                return Err(bad(why));
            }
        }
    }
    Ok(fields.join(" "))
}

/// True for `*`, `5`, `1-5`, and for `*` and `1-5` with a step: `*/15`.
fn is_item(item: &str, least: u8, most: u8) -> bool {
    let number = |text: &str| {
        let n = text.parse::<u8>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
        n.filter(|n| (least..=most).contains(n))
    };
    let (range, step) = item.split_once('/').map_or((item, None), |(range, step)| (range, Some(step)));
    let is_step =
        |step: &str| step.bytes().all(|b| b.is_ascii_digit()) && matches!(step.parse(), Ok(1..=59_u8));
    let (is_range, is_single) = match range.split_once('-') {
        Some((first, last)) => (matches!((number(first), number(last)), (Some(a), Some(b)) if a <= b), false),
        None => (range == "*" || number(range).is_some(), range != "*"),
    };
    is_range && step.is_none_or(|step| !is_single && is_step(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_a_length_of_time_or_five_fields() {
        for (text, printed) in [
            ("360m", "6h"),
            ("1m", "1m"),
            ("*/15 * * * *", "*/15 * * * *"),
            ("30  3 1,15 * 1-5", "30 3 1,15 * 1-5"),
            ("0-30/10 0 31 12 7", "0-30/10 0 31 12 7"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(printed), "{text}");
        }
    }

    #[test]
    fn what_never_comes_is_refused() {
        for bad in [
            "",
            "often",
            "59s",
            "0",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 8",
            "5-1 * * * *",
            "*/0 * * * *",
            "5/2 * * * *",
            "+5 * * * *",
            "1,,2 * * * *",
            "- * * * *",
            "*/ * * * *",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
