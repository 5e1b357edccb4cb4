//! A test's own connection to its database, and a clock that the test sets in place of the database's.

use basalt_api::values::Timestamp;
use sqlx::{Connection, Executor, PgConnection, Row};

/// Puts functions with the names of PostgreSQL's clock before them, for all new connections.
const CLOCK: &str = "
create schema clock;
create table clock.hand (at timestamptz not null);
insert into clock.hand values (pg_catalog.now());
create function clock.now() returns timestamptz language sql stable as 'select at from clock.hand';
create function clock.clock_timestamp() returns timestamptz language sql volatile as 'select at from clock.hand';
do $$
declare d record;
begin
  for d in select table_name, column_name from information_schema.columns
    where table_schema = 'public' and column_default ~ '^(now|clock_timestamp)\\(\\)$'
  loop
    execute format('alter table public.%I alter column %I set default clock.now()', d.table_name, d.column_name);
  end loop;
  execute format('alter database %I set search_path = public, clock, pg_catalog', current_database());
end $$;";

/// A test's own connection.
#[derive(Debug)]
pub struct Hand(PgConnection);

impl Hand {
    /// Connects to a database.
    ///
    /// # Panics
    /// Panics if the database does not answer.
    pub async fn on(url: &str) -> Self {
        Self(PgConnection::connect(url).await.expect("it answers"))
    }

    /// Runs statements. Returns the rows of the last one, as text.
    ///
    /// # Panics
    /// Panics if a statement fails.
    pub async fn run(&mut self, statements: &str) -> Vec<Vec<String>> {
        let text = sqlx::AssertSqlSafe(statements.to_owned());
        let rows =
            self.0.fetch_all(sqlx::raw_sql(text)).await.unwrap_or_else(|e| panic!("{statements}: {e}"));
        let cell = |row: &sqlx::postgres::PgRow, at| {
            let value = row.try_get_raw(at).expect("a column");
            value.as_str().map(str::to_owned).unwrap_or_default()
        };
        rows.iter().map(|row| (0..row.len()).map(|at| cell(row, at)).collect()).collect()
    }

    /// Stops the clock, for stores that are opened afterwards.
    pub async fn take_clock(&mut self) {
        self.run(CLOCK).await;
    }

    /// Sets the clock.
    pub async fn set_clock(&mut self, at: Timestamp) {
        self.run(&format!("update clock.hand set at = '{at}'")).await;
    }
}
