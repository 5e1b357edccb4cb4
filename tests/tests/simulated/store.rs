//! The region's database, read by PostgreSQL's own programs.

use std::path::PathBuf;

use tokio::process::Command;

use basalt_tests::fleet::Fleet;

/// The output of a PostgreSQL program for the region's database.
pub(crate) async fn ask(fleet: &Fleet, program: &str, arguments: &[&str]) -> Vec<u8> {
    let url = basalt_db::cluster::url_in(&fleet.site.directory().join("region"));
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let programs = versions.map(|version| version.path().join("bin").join(program));
    let newest = programs.filter(|path| path.exists()).max().unwrap_or_else(|| PathBuf::from(program));
    let output = Command::new(newest).args(arguments).arg(url).output().await.expect(program);
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The rows of a query, with `|` between columns.
pub(crate) async fn rows(fleet: &Fleet, query: &str) -> Vec<String> {
    let output = ask(fleet, "psql", &["-X", "-At", "-c", query]).await;
    String::from_utf8_lossy(&output).lines().map(str::to_owned).collect()
}
