//! Measures a plan of 1,000 unchanged machines. For comparison, it plans the same number of Terraform's own
//! `terraform_data`, which need no provider process and no region.
//!
//! Uses the real Terraform, this provider's program, and a region's program in the same directory. Prints one line of
//! JSON: `cargo build --release -p basalt-region && cargo bench -p terraform-provider-basalt --bench terraform_plan_1000`.

mod user;

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use user::{Site, User, median, rounded};

const MACHINES: usize = 1000;
const RUNS: usize = 3;

/// The configuration of a machine, by its number.
const MACHINE: &str = r#"{
    name         = "machine-${count.index}"
    architecture = "amd64"
    description  = "row ${count.index % 10}"
    boot_macs    = [format("52:54:00:%02x:%02x:00", floor(count.index / 256), count.index % 256)]
    labels       = { row = "row-${count.index % 10}" }
    bmc = {
      driver   = "ipmi"
      address  = "10.9.${floor(count.index / 256)}.${count.index % 256}"
      username = "admin"
      password = "a-secret-of-${count.index}"
      options  = { cipher_suite = 3 }
    }
  }"#;

fn main() -> Result<(), Box<dyn Error>> {
    let site = Site::start(Path::new(env!("CARGO_BIN_EXE_terraform-provider-basalt")))?;
    let (provider, fields) = (&site.provider, MACHINE.trim_start_matches('{'));
    let ours = format!("{provider}resource \"basalt_machine\" \"m\" {{\n  count = {MACHINES}\n{fields}\n");
    let theirs =
        format!("resource \"terraform_data\" \"m\" {{\n  count = {MACHINES}\n  input = {MACHINE}\n}}\n");
    let (ours, theirs) = (site.user("ours", &ours)?, site.user("theirs", &theirs)?);
    for user in [&ours, &theirs] {
        user.run(&["apply", "-auto-approve"])?;
        plan(user)?;
    }
    let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        our_times.push(plan(&ours)?);
        their_times.push(plan(&theirs)?);
    }
    let (ours, theirs) = (median(our_times), median(their_times));
    let line = serde_json::json!({
        "bench": "terraform_plan_1000",
        "basalt": rounded(ours),
        "peer": "terraform_data",
        "peer_value": rounded(theirs),
        "ratio": rounded(theirs / ours),
        "unit": "s",
    });
    #[allow(clippy::print_stdout, reason = "the result")]
    {
        println!("{line}");
    }
    Ok(())
}

/// The duration of a plan without changes.
fn plan(user: &User) -> Result<Duration, Box<dyn Error>> {
    let began = Instant::now();
    user.run(&["plan", "-detailed-exitcode"])?;
    Ok(began.elapsed())
}
