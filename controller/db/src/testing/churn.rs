//! Writers that test a change log: they keep transactions open, roll back, and write several objects; and a naive cursor that
//! misses their changes.

use sqlx::{Connection, PgConnection, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Random numbers that are the same in every run (xorshift64*).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// A generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// The work of a writer. The objects are zones called `zone-0`, `zone-1`, …
#[derive(Clone, Debug)]
pub struct Churn {
    /// The URL of the database.
    pub url: String,
    /// The number of zones.
    pub objects: u64,
    /// The number of transactions.
    pub transactions: u64,
    /// True to write statuses too, and to delete and recreate zones.
    pub whole_lives: bool,
}

/// The result of a writer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Churned {
    /// Transactions that were committed.
    pub committed: u64,
    /// Transactions that were rolled back.
    pub rolled_back: u64,
}

const PUT: &str = "with o as (update object set generation = generation + 1,
         spec = json_build_object('description', 'generation ' || generation + 1)
       where kind = 'Zone' and name = $1 returning *)
     insert into change_log (object, kind, name, op, generation) select uid, kind, name, 'put', generation from o";

const STATUS: &str =
    "with o as (update object set status = json_build_object('conditions', json_build_array(), 'drawn', random())
       where kind = 'Zone' and name = $1 returning *)
     insert into change_log (object, kind, name, op, generation) select uid, kind, name, 'status', generation from o";

const DELETE: &str = "with o as (delete from object where kind = 'Zone' and name = $1 returning *)
     insert into change_log (object, kind, name, op, generation) select uid, kind, name, 'delete', generation from o";

const CREATE: &str = "with o as (insert into object (uid, kind, name, spec, status)
       values (gen_random_uuid(), 'Zone', $1, '{}', '{\"conditions\": []}') on conflict do nothing returning *)
     insert into change_log (object, kind, name, op, generation) select uid, kind, name, 'put', generation from o";

impl Churn {
    /// Runs one writer: transactions of 0 to 50 ms for each of 1 to 3 objects; one in twenty is rolled back.
    ///
    /// # Panics
    /// Panics if a statement fails.
    pub async fn write(self, seed: u64) -> Churned {
        let mut dice = Dice::new(seed);
        let mut connection = PgConnection::connect(&self.url).await.expect("a connection");
        let mut done = Churned::default();
        for _ in 0..self.transactions {
            // Zones are locked in the order of their names, so writers wait for each other but never deadlock.
            let touched: BTreeSet<String> =
                (0..=dice.below(3)).map(|_| format!("zone-{}", dice.below(self.objects))).collect();
            let mut tx = connection.begin().await.expect("a transaction");
            for name in touched {
                let statement = match dice.below(10) {
                    0..=1 if self.whole_lives => STATUS,
                    2 if self.whole_lives => DELETE,
                    _ => PUT,
                };
                let run = sqlx::query(statement).bind(&name).execute(&mut *tx).await.expect("a change");
                if run.rows_affected() == 0 {
                    sqlx::query(CREATE).bind(&name).execute(&mut *tx).await.expect("a new zone");
                }
                tokio::time::sleep(Duration::from_millis(dice.below(50))).await;
            }
            if dice.below(20) == 0 {
                tx.rollback().await.expect("it rolls back");
                done.rolled_back += 1;
                continue;
            }
            tx.commit().await.expect("it commits");
            done.committed += 1;
            // Like a region, it notifies outside of the transaction.
            sqlx::query("select pg_notify('basalt', '')").execute(&mut connection).await.expect("a notice");
        }
        done
    }
}

/// Reads with a cursor that trusts the sequence, until `done`. Returns each position, and each zone's last generation.
///
/// # Panics
/// Panics if a statement fails.
pub async fn naive_cursor(
    url: String,
    done: impl Fn() -> bool,
) -> (BTreeSet<i64>, BTreeMap<String, (uuid::Uuid, i64)>) {
    let mut connection = PgConnection::connect(&url).await.expect("a connection");
    let (mut seen, mut state, mut last) = (BTreeSet::new(), BTreeMap::new(), 0i64);
    loop {
        let finished = done();
        let rows = sqlx::query(
            "select seq, name, object, generation, op from change_log where seq > $1 order by seq",
        )
        .bind(last);
        for row in rows.fetch_all(&mut connection).await.expect("rows") {
            last = row.get(0);
            seen.insert(last);
            let name: String = row.get(1);
            match row.get::<&str, _>(4) {
                "delete" => drop(state.remove(&name)),
                _ => drop(state.insert(name, (row.get(2), row.get(3)))),
            }
        }
        if finished {
            return (seen, state);
        }
    }
}

/// The zones in the store, with uid and generation.
///
/// # Panics
/// Panics if a statement fails.
pub async fn zones(url: &str) -> BTreeMap<String, (uuid::Uuid, i64)> {
    let mut connection = PgConnection::connect(url).await.expect("a connection");
    let rows = sqlx::query("select name, uid, generation from object where kind = 'Zone'");
    let rows = rows.fetch_all(&mut connection).await.expect("rows");
    rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect()
}
