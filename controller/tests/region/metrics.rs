//! `/metrics`: every line is of the exposition format, and what it counts moves.

use crate::support::{Lab, lab};
use std::collections::{BTreeMap, BTreeSet};

/// Values by name and labels, as in the text.
pub(crate) type Samples = BTreeMap<String, f64>;

/// Reads the exposition format 0.0.4 strictly: families once each, with help and type; samples of their family, each once.
fn parse(text: &str) -> Samples {
    let (mut samples, mut families, mut helped) = (Samples::new(), BTreeSet::new(), BTreeSet::new());
    let (mut family, mut kind) = (String::new(), String::new());
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a help text");
            assert!(helped.insert(name.to_owned()) && !help.is_empty(), "{line}");
            continue;
        }
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, word) = typed.split_once(' ').expect("a type");
            assert!(["counter", "gauge", "histogram"].contains(&word), "{line}");
            assert!(helped.contains(name) && families.insert(name.to_owned()), "{line}");
            (family, kind) = (name.to_owned(), word.to_owned());
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let name = series.split('{').next().expect("a name");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{line}");
        let of_family = match kind.as_str() {
            "histogram" => {
                ["_bucket", "_sum", "_count"].iter().any(|end| name.strip_suffix(end) == Some(&family))
            }
            _ => name == family,
        };
        assert!(of_family && (kind != "counter" || name.ends_with("_total")), "{line} in {family}, a {kind}");
        if let Some(labels) = series.strip_prefix(name).filter(|labels| !labels.is_empty()) {
            let inside = labels.strip_prefix('{').and_then(|l| l.strip_suffix("\"}")).expect("labels");
            for label in inside.split("\",") {
                let (key, value) = label.split_once("=\"").expect("a label");
                assert!(key.bytes().all(|b| b.is_ascii_lowercase()) && !value.contains('"'), "{line}");
            }
        }
        let value = value.parse().unwrap_or_else(|e| panic!("{line}: {e}"));
        assert!(samples.insert(series.to_owned(), value).is_none(), "{line} twice");
    }
    samples
}

pub(crate) async fn scrape(lab: &Lab) -> Samples {
    let answer = lab.api.get("/metrics").await;
    assert_eq!(answer.headers["content-type"], "text/plain; version=0.0.4");
    parse(answer.text())
}

#[tokio::test]
async fn every_line_is_of_the_format_and_counters_move() {
    let lab = lab().await;
    lab.api.declare("/api/v1/zones/a", "{}").await;
    let before = scrape(&lab).await;
    lab.api.declare("/api/v1/zones/b", "{}").await;
    let machine = r#"{"architecture":"amd64","boot_macs":["52:54:00:00:00:01"],"bmc":{"driver":"manual"}}"#;
    lab.api.put("/api/v1/machines/m", &format!(r#"{{"spec":{machine}}}"#)).await;
    lab.api.send("PUT", "/api/v1/zones/a", &[("If-Match", "\"7\"")], r#"{"spec":{}}"#).await;
    let after = scrape(&lab).await;
    let moved = |series: &str| after[series] - before.get(series).copied().unwrap_or_default();
    let put = r#"method="PUT",endpoint="/api/v1/{plural}/{name}""#;
    assert!(moved(&format!("basalt_api_requests_total{{{put},class=\"2xx\"}}")) >= 1.0);
    assert!(moved(&format!("basalt_api_requests_total{{{put},class=\"4xx\"}}")) >= 1.0);
    assert_eq!(moved(&format!("basalt_api_request_duration_seconds_count{{{put}}}")), 3.0);
    assert_eq!(moved(&format!("basalt_api_request_duration_seconds_bucket{{{put},le=\"+Inf\"}}")), 3.0);
    assert!(moved(&format!("basalt_api_request_duration_seconds_sum{{{put}}}")) > 0.0);
    assert_eq!(moved(r#"basalt_api_problems_total{code="conflict"}"#), 1.0);
    assert_eq!(moved(r#"basalt_objects{kind="Zone"}"#), 1.0);
    assert!(after.contains_key("basalt_follower_lag_changes") && after.contains_key("basalt_watch_readers"));
    let text = lab.api.get("/metrics").await;
    for family in ["basalt_objects_in_phase", "basalt_objects_stalled", "basalt_objects_failing"] {
        assert!(text.text().contains(&format!("# TYPE {family} gauge\n")), "{family}");
    }
    let buckets: Vec<f64> =
        ["0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.5", "2.5", "10", "+Inf"]
            .iter()
            .map(|le| after[&format!("basalt_api_request_duration_seconds_bucket{{{put},le=\"{le}\"}}")])
            .collect();
    assert!(buckets.is_sorted(), "{buckets:?}");
    lab.region.store().enqueue_all().await.unwrap();
    let queued = scrape(&lab).await;
    for gauge in ["depth", "due", "leases", "oldest_due_seconds"] {
        assert!(
            queued.contains_key(&format!("basalt_queue_{gauge}{{kind=\"Machine\"}}")),
            "{gauge}: {queued:?}"
        );
    }
}
