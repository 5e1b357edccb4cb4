//! `POST /report/{token}/{level}`: the installed system reports its progress. The token allows that and nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use basalt_api::agent::{FIRST_BOOT_DONE, FIRST_BOOT_FAILED};
use basalt_proto::rack_v1::{ReadinessFact, fact::Body};
use http::StatusCode;

use super::{Ends, Problem, Web};
use crate::facts::About;
use crate::token::report;

/// The levels that an installed system can report.
const LEVELS: [&str; 4] = ["booted", "cloud_init", FIRST_BOOT_DONE, FIRST_BOOT_FAILED];
/// The longest message kept, in bytes.
const MAX_MESSAGE: usize = 4096;

/// How long an equal report is not sent again, in milliseconds.
const REPEAT_MS: i64 = 60_000;
/// The most reports remembered before old ones are dropped.
const REMEMBERED: usize = 8192;

/// When each report was last sent, so that an installed system that repeats itself does not fill the spool.
#[derive(Debug, Default)]
pub struct Reports {
    told: Mutex<HashMap<(u64, String), i64>>,
}

impl Reports {
    fn is_new(&self, attempt: u64, level: &str, now_ms: i64) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= REMEMBERED {
            told.retain(|_, at| now_ms - *at < REPEAT_MS);
        }
        let before = told.insert((attempt, level.to_owned()), now_ms);
        before.is_none_or(|before| now_ms - before >= REPEAT_MS)
    }

    /// A report that could not be stored is new when it is sent again.
    fn forget(&self, attempt: u64, level: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.remove(&(attempt, level.to_owned()));
    }
}

/// Takes a report of an installed system.
pub async fn report(
    State(web): State<Arc<Web>>,
    Extension(ends): Extension<Ends>,
    Path((token, level)): Path<(String, String)>,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    if !LEVELS.contains(&level.as_str()) {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "not_found",
            format!("no such level; there are: {}", LEVELS.join(", ")),
        ));
    }
    let unknown = || {
        Problem::new(
            StatusCode::FORBIDDEN,
            "forbidden",
            "this report token is of no attempt that this rack knows",
        )
    };
    let attempt = report::peek(&token).map_err(|_| unknown())?;
    let machine_uid = owner(&web, attempt, &token).ok_or_else(unknown)?;
    if !web.reports.is_new(attempt, &level, web.facts.clock().unix_now()) {
        return Ok(StatusCode::NO_CONTENT);
    }
    let text =
        String::from_utf8_lossy(body.get(..body.len().min(MAX_MESSAGE)).unwrap_or_default()).into_owned();
    let address = ends.peer.ip().to_string();
    tracing::info!(machine = %machine_uid, attempt, level, %address, "installed system reports");
    let about = About { machine_uid, attempt, ..About::default() };
    let fact = about.saw(Body::Readiness(ReadinessFact { level: level.clone(), message: text, address }));
    if let Err(error) = web.facts.record(fact).await {
        web.reports.forget(attempt, &level);
        return Err(Problem::disk(&error));
    }
    Ok(StatusCode::NO_CONTENT)
}

/// The most bytes of a report's body.
pub fn limit() -> DefaultBodyLimit {
    DefaultBodyLimit::max(64 << 10)
}

/// The machine that this report token belongs to: found in the register, or by a key that the concern still has.
fn owner(web: &Web, attempt: u64, token: &str) -> Option<String> {
    if let Some(id) = web.attempts.reported_by(attempt, token) {
        return Some(id.subject.into());
    }
    let table = web.boot.borrow().clone()?;
    let (machine, boot) = table.of_attempt(attempt)?;
    report::verify(token, &boot.attempt_key, &machine.machine_uid).ok()?;
    Some(machine.machine_uid.clone())
}
