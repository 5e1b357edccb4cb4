//! The fleet's budget from the view of one machine: the limits, the use, and the time of the next start.

use basalt_api::kinds::{FleetBudget, Weekday, Window};
use basalt_api::values::Timestamp;
use serde::{Deserialize, Serialize};

/// The declared budget, and its use by other machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// The declared limits.
    pub declared: FleetBudget,
    /// The reason why the declared limits cannot be read. Nothing may begin until they can.
    pub unread: Option<String>,
    /// The machine's zone, for messages.
    pub zone: String,
    /// Other machines of the zone whose disks are being written.
    pub in_zone: u32,
    /// Other machines whose disks are being written.
    pub in_region: u32,
    /// When the first of those ends at the latest.
    pub first_ends: Option<Timestamp>,
    /// Until when the limit of installs and erases per hour is reached.
    pub hour_full_until: Option<Timestamp>,
    /// Until when the limit of power-ons per minute is reached.
    pub minute_full_until: Option<Timestamp>,
    /// Since when the machine has waited for the budget.
    pub waits_since: Option<Timestamp>,
}

/// The reason why a step may not begin now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exceeded {
    /// The reason as a sentence.
    pub(crate) why: String,
    /// When the obstacle ends at the latest, if known.
    pub(crate) until: Option<Timestamp>,
}

const DAYS: [Weekday; 7] = [
    // 1 January 1970 was a Thursday.
    Weekday::Thursday,
    Weekday::Friday,
    Weekday::Saturday,
    Weekday::Sunday,
    Weekday::Monday,
    Weekday::Tuesday,
    Weekday::Wednesday,
];
const DAY: i64 = 24 * 3600;

impl Budget {
    /// The obstacle to writing the machine's disks.
    pub(crate) fn against_disks(&self, now: Timestamp) -> Option<Exceeded> {
        let FleetBudget { max_unavailable, max_unavailable_per_zone, destructive_per_hour, windows, .. } =
            &self.declared;
        if let Some(unread) = self.unread() {
            return Some(unread);
        }
        if !windows.is_empty() && !windows.values().any(|window| is_open(window, now)) {
            let until = windows.values().filter_map(|window| opens(window, now)).min();
            let names: Vec<_> = windows.keys().map(String::as_str).collect();
            let at = until.map(|at| format!(", which opens at {at}")).unwrap_or_default();
            return Some(Exceeded {
                why: format!("it is outside of the window {}{at}", names.join(", ")),
                until,
            });
        }
        let full = |used: u32, limit: Option<u32>| limit.filter(|limit| used >= *limit);
        if let Some(limit) = full(self.in_zone, *max_unavailable_per_zone) {
            let why = format!("{} of {limit} destructive steps run in zone {}", self.in_zone, self.zone);
            return Some(Exceeded { why, until: self.first_ends });
        }
        if let Some(limit) = full(self.in_region, *max_unavailable) {
            let why = format!("{} of {limit} destructive steps run in the region", self.in_region);
            return Some(Exceeded { why, until: self.first_ends });
        }
        let until = self.hour_full_until.filter(|until| *until > now)?;
        let limit = (*destructive_per_hour)?;
        let why = format!("{limit} of {limit} destructive steps of an hour were begun");
        Some(Exceeded { why, until: Some(until) })
    }

    fn unread(&self) -> Option<Exceeded> {
        let why = self.unread.as_ref()?;
        Some(Exceeded { why: format!("it cannot be read: {why}; declare the Settings anew"), until: None })
    }

    /// The obstacle to powering the machine on.
    pub(crate) fn against_power_on(&self, now: Timestamp) -> Option<Exceeded> {
        if let Some(unread) = self.unread() {
            return Some(unread);
        }
        let limit = self.declared.power_on_per_minute?;
        let until = self.minute_full_until.filter(|until| *until > now)?;
        let why = format!("{limit} of {limit} machines of a minute were powered on");
        Some(Exceeded { why, until: Some(until) })
    }
}

/// When a window begins on the day that is `days` after the day of `now`.
fn begins(window: &Window, now: Timestamp, days: i64) -> Option<i64> {
    let day = now.as_second().div_euclid(DAY) + days;
    let name = DAYS.get(usize::try_from(day.rem_euclid(7)).ok()?)?;
    let begins = day * DAY + i64::from(window.hour) * 3600;
    (window.days.is_empty() || window.days.contains(name)).then_some(begins)
}

fn is_open(window: &Window, now: Timestamp) -> bool {
    let length = i64::try_from(window.length.as_secs()).unwrap_or(i64::MAX);
    let mut past = (-7..=0).filter_map(|days| begins(window, now, days));
    past.any(|begins| (begins..begins.saturating_add(length)).contains(&now.as_second()))
}

fn opens(window: &Window, now: Timestamp) -> Option<Timestamp> {
    let mut coming = (0..=7).filter_map(|days| begins(window, now, days));
    coming.find(|begins| *begins > now.as_second()).and_then(|at| Timestamp::from_second(at).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn night() -> Window {
        let mut window = Window::new(22, "6h".parse().unwrap());
        window.days.insert(Weekday::Saturday);
        window
    }

    #[test]
    fn a_window_is_open_past_midnight_and_opens_again_next_week() {
        let cases = [
            ("2026-11-21T21:59:59Z", false, "2026-11-21T22:00:00Z"),
            ("2026-11-21T22:00:00Z", true, "2026-11-28T22:00:00Z"),
            ("2026-11-22T03:59:59Z", true, "2026-11-28T22:00:00Z"),
            ("2026-11-22T04:00:00Z", false, "2026-11-28T22:00:00Z"),
        ];
        for (now, open, next) in cases {
            assert_eq!(
                (is_open(&night(), at(now)), opens(&night(), at(now))),
                (open, Some(at(next))),
                "{now}"
            );
        }
    }

    #[test]
    fn a_window_begins_on_the_days_that_it_names() {
        // The 23rd of November 2026 is a Monday.
        let days = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
        for (number, day) in days.into_iter().enumerate() {
            let window = serde_json::json!({"days": [day], "hour": 12, "length": "1h"});
            let window: Window = serde_json::from_value(window).unwrap();
            for other in 0..7 {
                let noon = at(&format!("2026-11-{}T12:30:00Z", 23 + other));
                assert_eq!(is_open(&window, noon), other == number, "{day} on day {other}");
            }
        }
    }

    #[test]
    fn what_exceeds_the_budget_says_what_runs_and_until_when() {
        let budget = Budget { unread: Some("the spec of Settings".to_owned()), ..Budget::default() };
        for exceeded in [
            budget.against_disks(at("2026-11-21T12:00:00Z")),
            budget.against_power_on(at("2026-11-21T12:00:00Z")),
        ] {
            assert_eq!(
                exceeded.unwrap().why,
                "it cannot be read: the spec of Settings; declare the Settings anew"
            );
        }
        let mut budget = Budget { zone: "a".to_owned(), in_zone: 5, in_region: 7, ..Budget::default() };
        let now = at("2026-11-21T12:00:00Z");
        assert_eq!(budget.against_disks(now), None);
        budget.declared.max_unavailable_per_zone = Some(5);
        let exceeded = budget.against_disks(now).unwrap();
        assert_eq!(exceeded.why, "5 of 5 destructive steps run in zone a");
        budget.declared.windows.insert("night".to_owned(), night());
        let exceeded = budget.against_disks(now).unwrap();
        assert_eq!(exceeded.until, Some(at("2026-11-21T22:00:00Z")));
        assert_eq!(exceeded.why, "it is outside of the window night, which opens at 2026-11-21T22:00:00Z");
    }
}
