//! A limit on log lines. Most log lines of a rack are about packets, and any host can send those.
//!
//! Each place in the code that logs has a budget: [`LINES`]. Lines beyond it are dropped and counted. Every [`EVERY`],
//! one line per such place reports the number. So a log grows by a bounded number of lines, whatever is sent, and still
//! shows every kind of event.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

use basalt_proto::budget::{Budget, Spent};

/// The budget of one place.
pub const LINES: Budget = Budget { most: 128, every_ms: 1_000 };
/// How often the number of dropped lines is reported.
pub const EVERY: Duration = Duration::from_secs(10);
/// The target of those reports, which have no limit. There is at most one report per place.
const TARGET: &str = "basalt_rack::log_limit";

/// The limit. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogLimit {
    start: Instant,
    places: Arc<Mutex<HashMap<Identifier, Place>>>,
}

#[derive(Debug)]
struct Place {
    spent: Spent,
    left_out: u64,
    metadata: &'static Metadata<'static>,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self { start: Instant::now(), places: Arc::default() }
    }
}

impl LogLimit {
    fn admits(&self, metadata: &'static Metadata<'static>, now_ms: i64) -> bool {
        if metadata.target() == TARGET {
            return true;
        }
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Place { spent: Spent::default(), left_out: 0, metadata };
        let place = places.entry(metadata.callsite()).or_insert_with(new);
        let admitted = place.spent.take(LINES, now_ms);
        place.left_out += u64::from(!admitted);
        admitted
    }

    /// Reports the number of dropped lines since the last report.
    pub fn tell(&self) {
        // The log calls below come back to this limit, so its lock must be free.
        let told: Vec<_> = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            let left_out = |place: &mut Place| (std::mem::take(&mut place.left_out), place.metadata);
            places.values_mut().map(left_out).filter(|(left_out, _)| *left_out > 0).collect()
        };
        for (lines, metadata) in told {
            let place = format!("{}:{}", metadata.target(), metadata.line().unwrap_or_default());
            tracing::warn!(target: TARGET, lines, place, "log lines were left out: this place logged too many");
        }
    }

    /// Reports repeatedly, for ever.
    pub async fn run(self) {
        let mut timer = tokio::time::interval(EVERY);
        loop {
            timer.tick().await;
            self.tell();
        }
    }
}

impl<S: Subscriber> Filter<S> for LogLimit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let now_ms = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.admits(event.metadata(), now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use tracing_subscriber::layer::{Layer, SubscriberExt};

    /// A log in memory.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(line);
            Ok(line.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nine_thousand_packets_leave_some_lines_and_one_that_counts_the_others() {
        let (log, limit) = (Log::default(), LogLimit::default());
        let writer = log.clone();
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(limit.clone()));
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..9_000 {
                tracing::info!(number, "TFTP request refused");
            }
            tracing::warn!("another place has its own budget");
            limit.tell();
            limit.tell();
        });
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let refused = text.matches("TFTP request refused").count();
        assert!((128..160).contains(&refused), "{refused}");
        assert_eq!(text.matches("another place").count(), 1);
        let counted: Vec<_> = text.lines().filter(|line| line.contains("log lines were left out")).collect();
        assert_eq!(counted.len(), 1, "{counted:?}");
        assert!(counted[0].contains(&format!("lines={}", 9_000 - refused)), "{counted:?}");
        assert!(counted[0].contains("basalt_rack::log_limit::tests:"), "{counted:?}");
    }
}
