//! One apply of 10,000 new objects, against COPY of the rows that it wrote.

use std::time::{Duration, Instant};

use basalt_api::wire::ApplyRequest;

use crate::site::{Failed, Site, documents};
use crate::{Figures, median};

/// With their zone, 10,000 objects.
const MACHINES: usize = 9_999;
const RUNS: usize = 5;

pub(crate) async fn run(site: &Site) -> Result<Figures, Failed> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        let request = ApplyRequest { documents: documents(run, MACHINES)?, ..ApplyRequest::default() };
        let begin = Instant::now();
        let done = site.client.apply(&request, false).await?;
        ours.push(rate(begin.elapsed()));
        if !done.summary.starts_with(&format!("{} created", MACHINES + 1)) {
            return Err(done.summary.into());
        }
        theirs.push(rate(copy(site, run)?));
    }
    let peer = "COPY of the same rows, same PostgreSQL, same indexes";
    Ok(Figures::rates(median(ours), peer, median(theirs), "objects/s"))
}

fn rate(time: Duration) -> f64 {
    MACHINES as f64 / time.as_secs_f64()
}

/// How long COPY takes for the rows that the run wrote, into a table with the same columns and indexes.
fn copy(site: &Site, run: usize) -> Result<Duration, Failed> {
    let rows = site.dir().join("rows");
    let (first, last) = (run * MACHINES, (run + 1) * MACHINES);
    let script = format!(
        "\\copy (select * from object where kind = 'Machine' and substr(name, 9)::int >= {first} and substr(name, 9)::int < {last}) to '{rows}'
         create table if not exists copied (like object including all);
         \\timing on
         \\copy copied from '{rows}'",
        rows = rows.display()
    );
    let said = site.psql(&script.lines().map(str::trim).collect::<Vec<_>>().join("\n"))?;
    let took = said.lines().filter_map(|line| line.strip_prefix("Time: ")).next_back();
    match took.and_then(|text| text.split(' ').next()?.parse::<f64>().ok()) {
        Some(millis) if said.contains(&format!("COPY {MACHINES}")) => {
            Ok(Duration::from_secs_f64(millis / 1000.0))
        }
        _ => Err(said.into()),
    }
}
