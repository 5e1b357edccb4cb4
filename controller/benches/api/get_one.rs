//! GET of one machine out of 10,000, nothing cached, against SELECT of its row by pgbench.

use crate::site::{CLIENTS, Failed, MACHINES, Site};
use crate::{Figures, median};

const RUNS: usize = 3;

pub(crate) async fn run(site: &Site) -> Result<Figures, Failed> {
    site.fill().await?;
    let select = format!(
        "\\set n random(0, {})\nselect * from object where kind = 'Machine' and name = 'machine-' || :n;\n",
        MACHINES - 1
    );
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let get = |n: usize| ("GET", format!("/api/v1/machines/machine-{n}"), String::new());
        ours.push(site.rate(get).await?);
        theirs.push(site.pgbench(CLIENTS, &select)?.0);
    }
    let peer = "SELECT of one row by pgbench, 8 clients, prepared, same PostgreSQL";
    Ok(Figures::rates(median(ours), peer, median(theirs), "requests/s"))
}
