//! PUT of one machine out of 10,000 with another description, against UPDATE of its row by pgbench: both durable.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::site::{CLIENTS, Failed, MACHINES, Site, machine};
use crate::{Figures, median};

const RUNS: usize = 3;

/// Makes every description another one.
static WRITTEN: AtomicUsize = AtomicUsize::new(0);

pub(crate) async fn run(site: &Site) -> Result<Figures, Failed> {
    site.fill().await?;
    let update = format!(
        "\\set n random(0, {})\nupdate object set spec = json_build_object('description', random()::text), \
         generation = generation + 1, updated_at = now() where kind = 'Device' and name = 'machine-' || :n;\n",
        MACHINES - 1
    );
    // The peer's rows are copies: what it writes is no spec.
    site.psql(
        "insert into object (uid, kind, name, spec, status)
         select gen_random_uuid(), 'Device', name, spec, status from object where kind = 'Machine';
         vacuum analyze",
    )?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let put = |n: usize| {
            let zone = format!("zone-{}", n * 2 / MACHINES);
            let description = format!("{}", WRITTEN.fetch_add(1, Ordering::Relaxed));
            let body = json!({ "spec": machine(n, &zone, &description) });
            ("PUT", format!("/api/v1/machines/machine-{n}"), body.to_string())
        };
        ours.push(site.rate(put).await?);
        theirs.push(site.pgbench(CLIENTS, &update)?.0);
    }
    let peer = "UPDATE of one row by pgbench, 8 clients, prepared, same PostgreSQL";
    Ok(Figures::rates(median(ours), peer, median(theirs), "requests/s"))
}
