//! Driver `webhook`: the requests that switch a machine, and the patterns that read its power.

use super::machine::{Bmc, PowerDriver};
use crate::validate::Rule;
use basalt_api_derive::Model;

/// The longest path of a request, in bytes. The database has an index of these paths.
const LONGEST_PATH: usize = 1000;
/// The longest pattern, in bytes.
const LONGEST_PATTERN: usize = 500;
/// The largest size of a compiled pattern, in bytes. The time of a search is proportional to this size, and to the size of the
/// answer.
#[cfg(feature = "patterns")]
const LARGEST_PATTERN: usize = 64 << 10;

/// The requests of driver `webhook`. A path begins with `/`, and may have a query. The requests have no body. An answer other than 2xx is
/// a failure, and redirects are not followed.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct BmcWebhook {
    /// The path of the POST that switches the machine on.
    pub on: String,
    /// The path of the POST that cuts its power.
    pub off: String,
    /// The path of the GET that reads its power.
    pub status: String,
    /// The path of the POST that cuts its power and switches it on again. Absent: the rack sends `off`, and `on` after the power
    /// reads as off.
    pub cycle: Option<String>,
    /// The path of the POST that asks the operating system to shut down. Absent: the power is cut instead.
    pub soft_off: Option<String>,
    /// A regular expression in the syntax of RE2, for US-ASCII. The machine is on if this expression is found in the answer to
    /// `status`, and `says_off` is not. Absent: the answer is the word `on` or `running`, or has one of them as a value, like
    /// `{"power": "on"}`.
    #[field(default = r#"(?i)^\s*"?(on|running)"?\s*$|[:=]\s*"?(on|running)\b"#)]
    pub says_on: String,
    /// A regular expression as `says_on`. The machine is off if this expression is found in the answer, and `says_on` is not.
    /// Absent: as for `says_on`, with the words `off` and `stopped`.
    #[field(default = r#"(?i)^\s*"?(off|stopped)"?\s*$|[:=]\s*"?(off|stopped)\b"#)]
    pub says_off: String,
    /// True: HTTP without TLS. Each host on the way can read the password.
    #[field(default = false)]
    pub plain: bool,
}

pub(super) fn webhook_rules(bmc: &Bmc, rule: &mut Rule<'_>) {
    let webhook = match (bmc.driver, &bmc.webhook) {
        (PowerDriver::Webhook, Some(webhook)) => webhook,
        (PowerDriver::Webhook, None) => {
            return rule.missing(
                "/bmc/webhook",
                "driver \"webhook\" needs the requests that switch the machine",
                "the paths on, off and status",
            );
        }
        (_, None) => return,
        (driver, Some(_)) => {
            return rule.broken(
                "/bmc/webhook",
                format!("driver \"{driver}\" sends none of these requests"),
                "leave it out, or say driver = \"webhook\"",
            );
        }
    };
    let BmcWebhook { on, off, status, cycle, soft_off, says_on, says_off, plain } = webhook;
    let paths = [
        ("on", Some(on)),
        ("off", Some(off)),
        ("status", Some(status)),
        ("cycle", cycle.as_ref()),
        ("soft_off", soft_off.as_ref()),
    ];
    for (field, path) in paths {
        if let Some(why) = path.and_then(|path| path_fault(path)) {
            rule.broken(
                format!("/bmc/webhook/{field}"),
                why,
                "the part of the URL from the / on, like /outlets/3?power=on; other characters are written as %XX",
            );
        }
    }
    for (field, pattern) in [("says_on", says_on), ("says_off", says_off)] {
        if let Some(why) = pattern_fault(pattern) {
            rule.broken(
                format!("/bmc/webhook/{field}"),
                why,
                "a regular expression in the syntax of RE2, like (?i)\"power\": *\"on\"",
            );
        }
    }
    if *plain && bmc.tls.is_some() {
        rule.broken(
            "/bmc/tls",
            "bmc.webhook.plain says HTTP without TLS, so that no certificate is looked at",
            "leave tls out, or say plain = false",
        );
    }
    let token = bmc.password.as_ref().and_then(|it| it.expose()).filter(|_| bmc.username.is_none());
    if token.is_some_and(|token| token.is_empty() || !token.chars().all(|c| c.is_ascii_graphic())) {
        rule.broken(
            "/bmc/password",
            "without username it is sent as a bearer token, which has printable US-ASCII characters without spaces (RFC 6750 §2.1)",
            "a token of the service, or username as well",
        );
    }
}

/// Refuses a text that is not the path of a URL, with or without a query (RFC 3986 §3.3, §3.4).
fn path_fault(path: &str) -> Option<String> {
    let is_allowed = |c: char| {
        c.is_ascii_graphic() && !matches!(c, '"' | '#' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}')
    };
    if path.len() > LONGEST_PATH {
        return Some(format!("it has {} bytes; at most {LONGEST_PATH} are allowed", path.len()));
    }
    let is_path = path.starts_with('/') && path.chars().all(is_allowed);
    (!is_path).then(|| format!("{path:?} is not the path of a URL (RFC 3986 §3.3)"))
}

/// Refuses a pattern that is too long, is no regular expression, or matches every answer.
fn pattern_fault(pattern: &str) -> Option<String> {
    if pattern.len() > LONGEST_PATTERN {
        return Some(format!("it has {} bytes; at most {LONGEST_PATTERN} are allowed", pattern.len()));
    }
    #[cfg(feature = "patterns")]
    match power_pattern(pattern) {
        Err(why) => return Some(format!("{pattern:?} is no regular expression: {why}")),
        Ok(compiled) if compiled.is_match(b"") => {
            return Some(format!("{pattern:?} is found in every answer"));
        }
        Ok(_) => {}
    }
    None
}

/// Compiles a pattern of driver `webhook`, in bounded memory. A search is linear in the size of the text.
///
/// # Errors
/// Fails if the text is no regular expression, or if the compiled pattern is too large.
#[cfg(feature = "patterns")]
pub fn power_pattern(text: &str) -> Result<regex::bytes::Regex, String> {
    let pattern = regex::bytes::RegexBuilder::new(text).unicode(false).size_limit(LARGEST_PATTERN).build();
    pattern.map_err(|error| {
        let message = error.to_string();
        // The message of a syntax error has several lines; the last one names the error.
        let last = message.lines().last().unwrap_or_default();
        last.trim_start_matches("error: ").trim_end_matches('.').to_owned()
    })
}

#[cfg(all(test, feature = "patterns"))]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn webhook() -> BmcWebhook {
        BmcWebhook::new("/on".to_owned(), "/off".to_owned(), "/".to_owned())
    }

    #[test]
    fn without_patterns_the_answer_is_a_word_or_has_it_as_a_value() {
        let BmcWebhook { says_on, says_off, .. } = webhook();
        let (on, off) = (power_pattern(&says_on).unwrap(), power_pattern(&says_off).unwrap());
        for (answer, is_on, is_off) in [
            ("on", true, false),
            ("OFF\r\n", false, true),
            ("\"off\"", false, true),
            (r#"{"power": "on"}"#, true, false),
            (r#"{"id": 3, "power":"off", "mode": "auto"}"#, false, true),
            ("state: running", true, false),
            ("POWER=STOPPED", false, true),
            // A word that is not a value does not count.
            (r#"{"on": false}"#, false, false),
            ("the outlet is not on", false, false),
            (r#"{"power": "once"}"#, false, false),
            (r#"{"power": "off", "wifi": "on"}"#, true, true),
        ] {
            let found = (on.is_match(answer.as_bytes()), off.is_match(answer.as_bytes()));
            assert_eq!(found, (is_on, is_off), "{answer}");
        }
    }

    #[test]
    fn paths_and_patterns_are_bounded() {
        for (path, fault) in [
            ("/".to_owned(), None),
            ("/a%20b/c?d=e&f[]=1".to_owned(), None),
            (format!("/{}", "x".repeat(LONGEST_PATH)), Some("it has 1001 bytes; at most 1000 are allowed")),
        ] {
            assert_eq!(path_fault(&path).as_deref(), fault);
        }
        let large = "(?:on{1000}){1000}";
        let refused =
            format!("{large:?} is no regular expression: Compiled regex exceeds size limit of 65536 bytes");
        for (pattern, fault) in [
            (r"^\w+ is (on|up)$", None),
            (&"x".repeat(LONGEST_PATTERN + 1), Some("it has 501 bytes; at most 500 are allowed")),
            (large, Some(refused.as_str())),
        ] {
            assert_eq!(pattern_fault(pattern).as_deref(), fault);
        }
    }

    #[test]
    fn the_largest_patterns_search_the_largest_answer_in_time() {
        let letter = |n: usize| if ((n * n * 7919) >> 5).is_multiple_of(3) { b'x' } else { b'y' };
        let text: Vec<u8> = (0..64 << 10).map(letter).collect();
        for shape in [r"(x?y?){N}[^xy]", r"[xy]*x[xy]{N}\d", r"(x|y|xy|yx|xx){N}\d"] {
            let sizes = (1..).map(|n: u32| shape.replace('N', &n.to_string()));
            let largest = sizes.map_while(|it| power_pattern(&it).ok()).last().unwrap();
            let begun = Instant::now();
            assert!(!largest.is_match(&text));
            assert!(begun.elapsed() < Duration::from_secs(5), "{largest} took {:?}", begun.elapsed());
        }
    }
}
