//! Measures how long 64 allocators take to get free addresses of a nearly full /16. For comparison, as many connections insert
//! rows into a plain table with the same keys, on the same PostgreSQL. Commits are durable.
//!
//! `cargo bench -p basalt-db --bench allocate_address` prints one line of JSON. Needs PostgreSQL's binaries.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use basalt_api::Kind;
use basalt_api::values::{SubnetId, Uid};
use basalt_db::cluster::{Cluster, ClusterOptions};
use basalt_db::splice::Text;
use basalt_db::{AddressWish, Addressed, Key, Options, Precondition, Put, SealKey, Store};
use serde_json::{Value, json};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};
use tokio::task::JoinSet;

const ALLOCATORS: usize = 64;
/// The number of addresses that each of them takes in a run.
const EACH: usize = 16;
const RUNS: usize = 5;
/// The number of hosts in 10.90.0.0/16.
const HOSTS: usize = 65_534;

type Failed = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    // A directory that PostgreSQL's account can enter.
    let dir = tempfile::Builder::new().prefix("basalt-bench-").tempdir_in("/var/tmp")?;
    open_to_all(dir.path())?;
    let cluster = Cluster::start(ClusterOptions {
        dir: dir.path().join("postgresql"),
        account: None,
        settings: vec![("max_connections".to_owned(), "200".to_owned())],
    })
    .await?;
    let options = Options {
        url: cluster.url(),
        connections: u32::try_from(ALLOCATORS)?,
        reconciled: Vec::new(),
        worked_on: Vec::new(),
        patience: Duration::from_secs(60),
    };
    let store = Store::open(options, SealKey::new(&[7; 32]).map_err(|error| error.to_string())?).await?;
    put(&store, "Fabric", "default", json!({})).await?;
    put(&store, "Vlan", "default.0", json!({"fabric": "default", "vid": 0})).await?;
    let subnet = put(&store, "Subnet", "wide", json!({"vlan": "default.0", "cidr": "10.90.0.0/16"})).await?;
    let owner = put(&store, "Zone", "owner", json!({})).await?;
    let pool =
        PgPoolOptions::new().max_connections(u32::try_from(ALLOCATORS)?).connect(&cluster.url()).await?;
    let taken = HOSTS - ALLOCATORS * EACH * RUNS;
    fill(&pool, subnet, owner, taken).await?;

    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        ours.push(allocate(&store, subnet, owner, run).await?);
        theirs.push(insert(&pool, subnet, owner, taken + run * ALLOCATORS * EACH).await?);
    }
    let full = sqlx::query_scalar::<_, i64>("select count(*) from address").fetch_one(&pool).await?;
    if full != i64::try_from(HOSTS)? {
        return Err(format!("{full} of {HOSTS} addresses are owned").into());
    }
    pool.close().await;
    store.close().await;
    cluster.stop().await;
    let (ours, theirs) = (median(ours), median(theirs));
    let rate = |time: Duration| ((ALLOCATORS * EACH) as f64 / time.as_secs_f64()).round();
    let line = json!({
        "bench": "allocate_address",
        "basalt": rate(ours),
        "peer": "INSERT of one chosen row, same keys, same PostgreSQL, as many connections",
        "peer_value": rate(theirs),
        "ratio": (theirs.as_secs_f64() / ours.as_secs_f64() * 1000.0).round() / 1000.0,
        "unit": "addresses/s",
    });
    #[allow(clippy::print_stdout, reason = "the result")]
    {
        println!("{line}");
    }
    Ok(())
}

fn open_to_all(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

async fn put(store: &Store, kind: &str, name: &str, spec: Value) -> Result<Uid, Failed> {
    let text = Text::parse(spec.to_string())?;
    let put = Put {
        kind: Kind::find(kind).ok_or("no such kind")?,
        key: Key::Name(name),
        spec: &text,
        at: "",
        labels: None,
        manager: None,
        adopt: false,
        precondition: Precondition::None,
        first_status: &json!({}),
    };
    Ok(store.put(&put).await?.object.uid)
}

/// Takes the first addresses, and fills the plain table with the same rows.
async fn fill(pool: &PgPool, subnet: Uid, owner: Uid, many: usize) -> Result<(), Failed> {
    let script = format!(
        "insert into address (subnet, address, owner, purpose)
           select '{subnet}', inet '10.90.0.0' + n, '{owner}', 'taken-' || n from generate_series(1, {many}) n;
         create table plain (
           subnet uuid not null, address inet not null, owner uuid not null, purpose text not null,
           created_at timestamptz not null default now(), primary key (subnet, address), unique (owner, subnet, purpose));
         insert into plain select subnet, address, owner, purpose from address;
         vacuum analyze"
    );
    for statement in script.split(";\n") {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(pool).await?;
    }
    Ok(())
}

/// The time until all allocators have their addresses.
async fn allocate(store: &Store, subnet: Uid, owner: Uid, run: usize) -> Result<Duration, Failed> {
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for allocator in 0..ALLOCATORS {
        let store = store.clone();
        tasks.spawn(async move {
            for n in 0..EACH {
                let purpose = format!("eth-{run}-{allocator}-{n}");
                let wish = AddressWish {
                    subnet: SubnetId::from(subnet),
                    owner,
                    purpose: &purpose,
                    address: None,
                    mac: None,
                    hostname: None,
                    machine_macs: &[],
                };
                match store.own_address(&wish).await? {
                    Addressed::Owned(_) => {}
                    other => return Err(format!("{purpose}: {other:?}").into()),
                }
            }
            Ok::<(), Failed>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(begin.elapsed())
}

/// The time for inserts into the plain table, with addresses that are known before.
async fn insert(pool: &PgPool, subnet: Uid, owner: Uid, after: usize) -> Result<Duration, Failed> {
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    let purpose = Arc::<str>::from("peer");
    for connection in 0..ALLOCATORS {
        let (pool, purpose) = (pool.clone(), Arc::clone(&purpose));
        tasks.spawn(async move {
            for n in 0..EACH {
                let number = i64::try_from(after + connection * EACH + n + 1)?;
                let insert =
                    sqlx::query("insert into plain values ($1, inet '10.90.0.0' + $2, $3, $4 || $2)");
                let insert = insert.bind(subnet.get()).bind(number).bind(owner.get()).bind(&*purpose);
                insert.execute(&pool).await?;
            }
            Ok::<(), Failed>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(begin.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
