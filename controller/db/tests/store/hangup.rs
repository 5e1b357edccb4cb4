//! A caller that is cancelled in the middle of a call leaves no transaction open.

use crate::common::put;
use basalt_db::Key;
use serde_json::json;
use sqlx::{Connection, PgConnection};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Polls a future `polls` times, then drops it. Returns true if it completed.
async fn hang_up<T>(call: impl Future<Output = T>, polls: u32) -> bool {
    let mut call = pin!(call);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        left -= 1;
        match call.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_is_given_up_at_any_await_leaves_no_transaction_to_the_next_one() {
    const PATIENCE: Duration = Duration::from_secs(10);
    // The number of awaits of a call depends on the socket's speed, so the loop runs until enough calls were cancelled.
    const HANG_UPS: u32 = 24;
    const CALLS: u32 = 400;
    let url = basalt_db::testing::database().await;
    let store = crate::common::open(&url, [7; 32]).await.expect("it opens");
    let mut watcher = PgConnection::connect(&url).await.expect("it connects");
    let (mut polls, mut given_up) = (1, 0);
    for call in 0..CALLS {
        let spec = json!({ "description": format!("{call}") });
        let done = hang_up(put(&store, "Zone", "a", spec), polls).await;
        given_up += u32::from(!done);
        let end = Instant::now() + PATIENCE;
        loop {
            let open: i64 = sqlx::query_scalar(
                "select count(*) from pg_stat_activity
                 where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'",
            )
            .fetch_one(&mut watcher)
            .await
            .expect("an answer");
            if open == 0 {
                break;
            }
            assert!(Instant::now() < end, "given up at await {polls}, its transaction is open");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        polls = if done { 1 } else { polls + 1 };
        if done && given_up >= HANG_UPS {
            break;
        }
    }
    assert!(given_up >= HANG_UPS, "{CALLS} calls were given up {given_up} times");
    assert_eq!(store.get("Zone", Key::Name("a")).await.expect("it is there").name, "a");
}
