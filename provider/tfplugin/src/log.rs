//! Logs in the form that Terraform reads from a provider's stderr: one JSON object per line.
//!
//! `TF_LOG` and `TF_LOG_PROVIDER` set the level; without them Terraform shows no logs.

use std::fmt;
use std::io::Write;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Terraform fails on a line longer than 64 KiB.
const LONGEST_TEXT: usize = 16 * 1024;

/// Starts logging for this process. Does nothing if a logger is already installed.
pub(crate) fn start(targets: &[&str]) {
    let level = level(|name| std::env::var(name).ok());
    let mut filter = Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("tfplugin", level);
    for target in targets {
        filter = filter.with_target(*target, level);
    }
    let subscriber = tracing_subscriber::registry().with(Hclog.with_filter(filter));
    let _ = tracing::subscriber::set_global_default(subscriber);
}

fn level(env: impl Fn(&str) -> Option<String>) -> LevelFilter {
    let asked = ["TF_LOG_PROVIDER", "TF_LOG"]
        .into_iter()
        .find_map(|name| env(name).filter(|value| !value.is_empty()));
    match asked.unwrap_or_default().to_ascii_uppercase().as_str() {
        "TRACE" | "JSON" => LevelFilter::TRACE,
        "DEBUG" => LevelFilter::DEBUG,
        "INFO" => LevelFilter::INFO,
        "WARN" => LevelFilter::WARN,
        "OFF" => LevelFilter::OFF,
        _ => LevelFilter::ERROR,
    }
}

struct Hclog;

/// The fields of a span, stored with it.
struct SpanFields(Map<String, Value>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Hclog {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        if let Some(span) = cx.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(SpanFields(fields.0));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, cx: Context<'_, S>) {
        if let Some(span) = cx.span(id) {
            let mut fields = Fields::default();
            values.record(&mut fields);
            if let Some(kept) = span.extensions_mut().get_mut::<SpanFields>() {
                kept.0.extend(fields.0);
            }
        }
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let mut line = Map::new();
        for span in cx.event_scope(event).into_iter().flatten() {
            if let Some(SpanFields(fields)) = span.extensions().get() {
                for (name, value) in fields {
                    line.entry(name.clone()).or_insert_with(|| value.clone());
                }
            }
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        line.extend(fields.0);
        let line = finish(line, *event.metadata().level(), event.metadata().target());
        // If Terraform is gone, the line is lost.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

fn finish(mut line: Map<String, Value>, level: Level, module: &str) -> String {
    let message = line.remove("message").unwrap_or_default();
    let message = message.as_str().map_or_else(|| message.to_string(), str::to_owned);
    let level = level.as_str().to_ascii_lowercase();
    // Exactly six digits, or Terraform's reader refuses the line.
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    line.insert("@level".into(), level.into());
    line.insert("@message".into(), shorten(message).into());
    line.insert("@module".into(), module.into());
    line.insert("@timestamp".into(), now.into());
    let mut text = Value::Object(line).to_string();
    text.push('\n');
    text
}

fn shorten(mut text: String) -> String {
    if text.len() > LONGEST_TEXT {
        let end = (0..=LONGEST_TEXT).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, shorten(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, shorten(value.to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_terraform_reads() {
        let fields =
            Map::from_iter([("message".to_owned(), "hello".into()), ("tf_rpc".to_owned(), "Plan".into())]);
        let text = finish(fields, Level::WARN, "tfplugin::rpc");
        let line: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(line["@message"], "hello");
        assert_eq!(line["@level"], "warn");
        assert_eq!(line["tf_rpc"], "Plan");
        let time = line["@timestamp"].as_str().expect("text");
        assert_eq!(time.len(), "2026-11-20T21:54:36.801234Z".len(), "{time}");
        assert!(text.ends_with("}\n") && text.matches('\n').count() == 1);
    }

    #[test]
    fn no_line_is_too_long_for_terraform() {
        let fields = Map::from_iter([("message".to_owned(), "é".repeat(100_000).into())]);
        assert!(finish(fields, Level::INFO, "x").len() < 64 * 1024);
    }

    #[test]
    fn the_more_specific_variable_wins() {
        let of = |provider: Option<&str>, all: Option<&str>| {
            level(|name| match name {
                "TF_LOG_PROVIDER" => provider.map(str::to_owned),
                "TF_LOG" => all.map(str::to_owned),
                _ => None,
            })
        };
        assert_eq!(of(Some("info"), Some("trace")), LevelFilter::INFO);
        assert_eq!(of(None, Some("json")), LevelFilter::TRACE);
        assert_eq!(of(None, None), LevelFilter::ERROR);
    }
}
