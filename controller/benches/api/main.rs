//! Benchmarks of the API over HTTP. Each is compared with the same PostgreSQL, or the same sockets, without the API. Commits are durable.
//!
//! `cargo bench -p basalt-region --bench api -- NAME` prints one line of JSON. Region and load run in one process, on the
//! same cores as the peer and its load. Needs PostgreSQL's binaries.

mod apply_10000;
mod get_one;
mod list_500;
mod put_one;
mod site;
mod watch_200;

use serde_json::json;
use site::{Failed, Site};

/// The results. A higher ratio is better.
struct Figures {
    ours: f64,
    peer: &'static str,
    theirs: f64,
    ratio: f64,
    unit: &'static str,
}

impl Figures {
    /// Figures of rates, where more is better.
    fn rates(ours: f64, peer: &'static str, theirs: f64, unit: &'static str) -> Self {
        Self { ours, peer, theirs, ratio: ours / theirs, unit }
    }

    /// Figures of times, where less is better.
    fn times(ours: f64, peer: &'static str, theirs: f64, unit: &'static str) -> Self {
        Self { ours, peer, theirs, ratio: theirs / ours, unit }
    }
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let name = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let site = Site::open().await?;
    let figures = match name.as_str() {
        "apply_10000" => apply_10000::run(&site).await?,
        "get_one" => get_one::run(&site).await?,
        "put_one" => put_one::run(&site).await?,
        "list_500" => list_500::run(&site).await?,
        "watch_200" => watch_200::run(&site).await?,
        _ => return Err(format!("{name:?} is no benchmark of the API").into()),
    };
    site.close().await;
    let round = |number: f64| (number * 1000.0).round() / 1000.0;
    let line = json!({
        "bench": format!("api_{name}"),
        "basalt": round(figures.ours),
        "peer": figures.peer,
        "peer_value": round(figures.theirs),
        "ratio": round(figures.ratio),
        "unit": figures.unit,
    });
    #[allow(clippy::print_stdout, reason = "the result")]
    {
        println!("{line}");
    }
    Ok(())
}

/// The median of some numbers.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

/// The 99th percentile.
fn p99(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() * 99 / 100).copied().unwrap_or_default()
}
