//! Single objects, read several in one statement.
//!
//! A request that arrives while a statement runs is answered by a later statement, so the answer is never older than the request.

use crate::object::{Row, select_objects};
use sqlx::PgPool;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc, oneshot};

/// The number of statements that run at once.
const READERS: usize = 2;

/// The largest number of objects per statement.
const MOST: usize = 64;

/// The largest number of waiting requests; further callers read by themselves.
const QUEUE: usize = 1024;

/// The queue of the reader tasks. They end when it is dropped.
#[derive(Debug)]
pub(crate) struct Gather(mpsc::Sender<Wanted>);

#[derive(Debug)]
struct Wanted {
    kind: String,
    name: String,
    answer: oneshot::Sender<Option<Row>>,
}

impl Gather {
    pub(crate) fn start(pool: &PgPool) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..READERS {
            tokio::spawn(read(pool.clone(), receiver.clone()));
        }
        Self(sender)
    }

    /// The object's row, if there is one. The outer `None`: the caller must read by itself, because the queue is full or the statement
    /// failed; its own statement gets the error.
    pub(crate) async fn find(&self, kind: &str, name: &str) -> Option<Option<Row>> {
        let (answer, found) = oneshot::channel();
        self.0.try_send(Wanted { kind: kind.to_owned(), name: name.to_owned(), answer }).ok()?;
        found.await.ok()
    }
}

async fn read(pool: PgPool, queue: Arc<Mutex<mpsc::Receiver<Wanted>>>) {
    let mut wanted = Vec::with_capacity(MOST);
    while queue.lock().await.recv_many(&mut wanted, MOST).await > 0 {
        let (kinds, names): (Vec<_>, Vec<_>) =
            wanted.iter().map(|wanted| (wanted.kind.clone(), wanted.name.clone())).unzip();
        let query = select_objects!(
            ", unnest($1::text[], $2::text[]) wanted(of_kind, called) where kind = of_kind and name = called",
            &kinds,
            &names
        );
        let Ok(rows) = query.fetch_all(&pool).await else {
            wanted.clear();
            continue;
        };
        let rows: HashMap<_, _> =
            rows.into_iter().map(|row| ((row.kind.clone(), row.name.clone()), row)).collect();
        for Wanted { kind, name, answer } in wanted.drain(..) {
            // An error means that the caller no longer waits.
            let _ = answer.send(rows.get(&(kind, name)).cloned());
        }
    }
}
