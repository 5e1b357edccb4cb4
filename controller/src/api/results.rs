//! Findings of hardware tests (`GET /api/v1/machines/{name}/results`, docs/decisions/099-test-results.md).

use super::App;
use super::problem::{Answer, Refusal};
use super::query::parameters;
use super::target::Target;
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use basalt_api::FieldCode;
use basalt_api::wire::{MAX_TEST_RESULTS, TestResult, TestResults};
use basalt_db::TestQuery;
use serde::Deserialize;

/// The number of rows if the request has no limit.
const USUAL: i64 = 200;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    script: Option<String>,
    #[serde(default)]
    latest: bool,
    limit: Option<i64>,
}

pub(super) async fn read(State(app): State<App>, target: Target, uri: Uri) -> Answer<Json<TestResults>> {
    let Parameters { script, latest, limit } = parameters(&uri)?;
    let limit = limit.unwrap_or(USUAL);
    if !(1..=MAX_TEST_RESULTS).contains(&limit) {
        let hint = format!("1 to {MAX_TEST_RESULTS}");
        return Err(Refusal::field("/limit", FieldCode::Rule, format!("{limit} rows cannot be read"), &hint));
    }
    let machine = target.object(&app).await?;
    let query = TestQuery { script: script.as_deref(), latest, limit };
    let rows = app.store().test_results(machine.uid.into(), query).await?;
    let items = rows.into_iter().map(|row| TestResult {
        script: row.script,
        device: Some(row.device).filter(|device| !device.is_empty()),
        verdict: row.verdict,
        message: row.message,
        figures: row.figures,
        output: row.output,
        seconds: row.seconds,
        attempt: row.attempt,
        at: row.at,
    });
    Ok(Json(TestResults { items: items.collect() }))
}
