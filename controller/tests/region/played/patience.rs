//! Timeouts by the wall clock: an action that takes too long ends its test, with its name and with the sessions of the
//! database.

use basalt_db::testing::clock::Hand;
use std::fmt::Display;
use std::time::Duration;

/// The timeout of one action. A region that is frozen in the middle of a transaction loses the transaction after thirty seconds.
pub(crate) const STEP: Duration = Duration::from_secs(120);

/// Waits for an action in the database at `url`, up to the timeout.
pub(crate) async fn within<T>(
    url: &str,
    patience: Duration,
    what: impl Display,
    done: impl Future<Output = T>,
) -> T {
    match tokio::time::timeout(patience, done).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: no end within {patience:?}; the database: {:?}", sessions(url).await),
    }
}

/// The active sessions of the database: the sessions that block them, and their statements.
async fn sessions(url: &str) -> Vec<Vec<String>> {
    let busy = "select pid::text, state, coalesce(wait_event, '-'), pg_blocking_pids(pid)::text, left(query, 200)
        from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'";
    match tokio::time::timeout(STEP, async { Hand::on(url).await.run(busy).await }).await {
        Ok(sessions) => sessions,
        Err(_) => vec![vec!["it does not answer".to_owned()]],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_too_long_is_named_with_what_it_waits_for() {
    let url = basalt_db::testing::database().await;
    let mut holder = Hand::on(&url).await;
    holder.run("begin; lock table rack_entry").await;
    let waits = tokio::spawn(async move {
        let mut other = Hand::on(&url).await;
        let waiting = other.run("select * from rack_entry");
        within(&url, Duration::from_secs(2), "rack1 hands over", waiting).await
    });
    let panic = waits.await.expect_err("it ends").into_panic();
    let said = panic.downcast_ref::<String>().expect("words");
    assert!(said.starts_with("rack1 hands over: no end within 2s"), "{said}");
    assert!(said.contains("idle in transaction") && said.contains("select * from rack_entry"), "{said}");
    holder.run("rollback").await;
}
