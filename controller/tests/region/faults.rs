//! A fault of the region itself: a handler that panics fails only its own request.

use crate::metrics::scrape;
use crate::support::lab;
use basalt_api::plan::{Consequences, PlanReport};
use basalt_api::values::Uid;
use basalt_api::wire::{Decisions, NameReport, Timeline, Verb, Waits};
use basalt_db::{Object, Overlay};
use basalt_region::driver::answers::departure::Departure;
use basalt_region::driver::answers::names::Asked;
use basalt_region::driver::answers::serving::Network;
use basalt_region::driver::{Answer, Choices, Judged, Machinery, SupposedState, meters};
use basalt_region::racks;
use serde_json::Value;
use std::io::Write;
use std::sync::{Arc, Mutex};

/// A driver that panics on every call.
#[derive(Debug)]
struct Faulty;

fn fault<T>(of: &str) -> Answer<'_, T> {
    Box::pin(async move {
        tokio::task::yield_now().await;
        panic!("nobody thought of {of}")
    })
}

impl Machinery for Faulty {
    fn plans<'a>(
        &'a self,
        these: Vec<(&'a Object, SupposedState<'a>)>,
        _: Option<&'a Arc<Overlay>>,
    ) -> Answer<'a, Vec<PlanReport>> {
        fault(&these[0].0.name)
    }

    fn choose<'a>(
        &'a self,
        _: &'a [(&'a Object, &'a Value)],
        _: Option<&'a Arc<Overlay>>,
    ) -> Answer<'a, Choices> {
        Box::pin(async { Ok(Choices::default()) })
    }

    fn consequences<'a>(&'a self, _: &'a Arc<Overlay>, _: Option<&'a [String]>) -> Answer<'a, Consequences> {
        Box::pin(async { Ok(Consequences::default()) })
    }

    fn departure(&self, _: Uid) -> Answer<'_, Departure> {
        Box::pin(async { Ok(Departure::default()) })
    }

    fn waits<'a>(&'a self, object: &'a Object) -> Answer<'a, Waits> {
        fault(&object.name)
    }

    fn network(&self) -> Answer<'_, Network> {
        fault("networks")
    }

    fn explain_name<'a>(&'a self, _: &'a Asked, _: Option<&'a [String]>) -> Answer<'a, NameReport> {
        fault("names")
    }

    fn judge<'a>(&'a self, machine: &'a Object, _: Verb) -> Answer<'a, Judged> {
        fault(&machine.name)
    }

    fn rack_links(&self) -> usize {
        0
    }

    fn rack_counts(&self) -> racks::meters::Counts {
        racks::meters::Counts::default()
    }

    fn timeline<'a>(&'a self, object: &'a Object) -> Answer<'a, Timeline> {
        fault(&object.name)
    }

    fn decisions<'a>(&'a self, kind: &'a str, _: Uid, _: Option<i64>, _: bool) -> Answer<'a, Decisions> {
        fault(kind)
    }

    fn counts(&self) -> meters::Counts {
        meters::Counts::default()
    }
}

/// The log of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_handler_that_panics_is_a_500_in_the_log_and_the_region_goes_on() {
    let log = Log::default();
    let writer = log.clone();
    let logger = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    // With only one dispatcher, the first thread at a log line decides for all threads if the line is logged.
    let _another = tracing::Dispatch::new(tracing_subscriber::registry());
    let _logging = tracing::subscriber::set_default(logger);
    let lab = lab().await;
    lab.region.set_machinery(Arc::new(Faulty));
    lab.api.declare("/api/v1/machines/m", r#"{"boot_macs":["52:54:00:00:00:01"]}"#).await;
    for question in ["plan", "waits", "timeline", "decisions"] {
        let answer = lab.api.get(&format!("/api/v1/machines/m/{question}")).await;
        let id = answer.headers["x-request-id"].to_str().unwrap();
        assert_eq!(answer.problem(), (500, "internal".to_owned(), Vec::new()), "{question}");
        assert_eq!(answer.json()["request_id"], id, "{question}");
        assert!(!answer.text().contains("nobody thought"), "{}", answer.text());
        let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let line = logged.lines().find(|line| line.contains(id) && line.contains("a handler panicked"));
        let line = line.unwrap_or_else(|| panic!("the log has no line of {id}: {logged}"));
        assert!(line.contains("ERROR") && line.contains("nobody thought of"), "{line}");
    }
    // The handler has released everything: each write finds the object free, and no request counts as in progress.
    let write = r#"{"spec":{"boot_macs":["52:54:00:00:00:02"]}}"#;
    assert_eq!(lab.api.put("/api/v1/machines/m?dry_run=true", write).await.status, 500);
    assert_eq!(lab.api.get("/api/v1/machines/m").await.json()["metadata"]["generation"], 1);
    assert_eq!(lab.api.put("/api/v1/machines/m", write).await.status, 200);
    let samples = scrape(&lab).await;
    assert_eq!(samples[r#"basalt_api_answers_total{class="5xx"}"#], 5.0);
    assert_eq!(samples["basalt_api_requests_under_way"], 1.0, "the scrape itself");
}
