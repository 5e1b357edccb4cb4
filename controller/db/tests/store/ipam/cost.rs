//! The cost of the next free address does not depend on how full its subnet is.

use super::{gaps, new_subnet, wish};
use crate::common::{network, open, put};
use basalt_api::values::{SubnetId, Uid};
use basalt_db::Addressed;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

/// The statements of `own_address` as one function: so EXPLAIN also counts the buffers of its triggers.
const TAKE: &str = "create function pg_temp.take(s uuid, o uuid, p text) returns inet language plpgsql as $$
    declare a inet;
    begin
      perform from subnet_cidr where subnet = s for update;
      select next_free into a from next_free(s, 1);
      insert into address (subnet, address, owner, purpose) values (s, a, o, p);
      return a;
    end $$";

/// Buffers that taking the next free address touches.
async fn buffers(db: &mut PgConnection, subnet: SubnetId, owner: Uid, purpose: &str) -> i64 {
    let explain = format!(
        "explain (analyze, buffers, format json) select pg_temp.take('{}', '{owner}', '{purpose}')",
        subnet.get()
    );
    let row = db.fetch_one(AssertSqlSafe(explain)).await.unwrap();
    let plan: Value = row.get(0);
    let count = |what: &str| plan[0]["Plan"][what].as_i64().unwrap();
    count("Shared Hit Blocks") + count("Shared Read Blocks")
}

#[tokio::test]
async fn the_last_address_of_a_slash_16_costs_what_the_first_did() {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    network(&store).await;
    let subnet = new_subnet(&store, "huge", "10.90.0.0/16").await;
    let owner = put(&store, "Zone", "z", json!({})).await.unwrap().object.uid;
    let mut db = PgConnection::connect(&url).await.unwrap();
    db.execute(TAKE).await.unwrap();
    for n in 0..10 {
        buffers(&mut db, subnet, owner, &format!("warm-{n}")).await;
    }
    let first = buffers(&mut db, subnet, owner, "first").await;
    // First many at once, as an apply does; then one at a time, each in its own transaction, as regions do.
    let fill = format!(
        "do $$ begin
           for n in 1..60 loop
             insert into address (subnet, address, owner, purpose)
             select '{0}', a, '{owner}', host(a) from next_free('{0}', 1024) a;
             commit;
           end loop;
           for n in 1..65534 - 60 * 1024 - 12 loop
             perform pg_temp.take('{0}', '{owner}', n::text);
             commit;
           end loop;
         end $$",
        subnet.get()
    );
    db.execute(AssertSqlSafe(fill)).await.unwrap();
    let last = buffers(&mut db, subnet, owner, "last").await;
    assert!(gaps(&mut db, subnet).await.is_empty());
    let full = store.own_address(&wish(subnet, owner, "none")).await.unwrap();
    assert!(matches!(full, Addressed::Refused(_)), "{full:?}");
    eprintln!("{first} buffers for the first, {last} for the last of 65534");
    assert!(
        last < first + 50,
        "the trees are higher, and nothing is walked through: {first} buffers, then {last}"
    );

    // Full of holes: every second address of a quarter is free.
    let holes = format!(
        "delete from address where subnet = '{}' and host(address)::inet < '10.90.64.0' and (address - '10.90.0.0') % 2 = 0",
        subnet.get()
    );
    db.execute(AssertSqlSafe(holes)).await.unwrap();
    assert_eq!(gaps(&mut db, subnet).await.len(), 8191);
    // PostgreSQL cleans deleted index entries up at the next visit.
    for n in 0..10 {
        buffers(&mut db, subnet, owner, &format!("warm-hole-{n}")).await;
    }
    let hole = buffers(&mut db, subnet, owner, "hole").await;
    assert!(hole < first + 50, "{first} buffers, then {hole}");
}
