//! A hand on a test database: any statement; and a clock that the test moves in place of the database's.

use basalt_api::values::Timestamp;
use sqlx::{Connection, Executor, PgConnection, Row};

/// Puts functions of the clock's names before PostgreSQL's own, for whoever connects from now on.
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

/// A connection of a test's own.
#[derive(Debug)]
pub struct Hand(PgConnection);

impl Hand {
    /// Connects.
    ///
    /// # Panics
    /// The database does not answer.
    pub async fn on(url: &str) -> Self {
        Self(PgConnection::connect(url).await.expect("it answers"))
    }

    /// Runs statements; the rows of the last one, as text.
    ///
    /// # Panics
    /// One of them fails.
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

    /// Takes the clock in hand: it stands still from now on, for stores that are opened afterwards.
    pub async fn take_clock(&mut self) {
        self.run(CLOCK).await;
    }

    /// Moves the clock.
    pub async fn set_clock(&mut self, at: Timestamp) {
        self.run(&format!("update clock.hand set at = '{at}'")).await;
    }
}
