//! A page of 500 out of 10,000 machines, the 99th percentile, against SELECT of the same rows by pgbench.

use std::time::Instant;

use crate::site::{Failed, MACHINES, Site};
use crate::{Figures, median, p99};

const RUNS: usize = 3;
const PAGES: usize = 200;

pub(crate) async fn run(site: &Site) -> Result<Figures, Failed> {
    site.fill().await?;
    let select = format!(
        "\\set n random(0, {})\nselect * from object where kind = 'Machine' and name > 'machine-' || :n \
         order by name limit 500;\n",
        MACHINES - 1
    );
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let mut connection = site.connect().await?;
        let mut times = Vec::new();
        for page in 0..PAGES {
            let path =
                format!("/api/v1/machines?limit=500&continue=machine-{}", (page * 7919 + 13) % MACHINES);
            let begin = Instant::now();
            connection.send("GET", &path, String::new()).await?;
            times.push(begin.elapsed().as_secs_f64() * 1000.0);
        }
        ours.push(p99(times));
        theirs.push(p99(site.pgbench(1, &select)?.1));
    }
    let peer = "SELECT of the same rows by pgbench, 1 client, prepared, same PostgreSQL";
    Ok(Figures::times(median(ours), peer, median(theirs), "ms at the 99th percentile"))
}
