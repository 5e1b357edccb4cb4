//! A rack with a zone of 100,000 addresses, against BIND with the same zone: resident memory before and after nine
//! changes, and the median time until a change is answered.
//!
//! `cargo bench -p basalt-rack --bench dns_zone` prints a line of JSON for each. After the zone's file is written, a
//! client asks until the new answer comes. A rack checks its files once a second, so on average half a second of its
//! time is waiting. BIND gets a SIGHUP. Its configuration is that of `dns_answers`.

mod support;

use std::fs;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::dns::{Zone, named, until};
use support::{Ports, Result, median, print, rack, resident, tcp_port};

const NAMES: u32 = 100_000;
const CHANGES: u8 = 9;
/// The host whose address changes, and the address of the first version.
const CHANGED: usize = 7;
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);

fn main() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("basalt-bench-").tempdir_in("/var/tmp")?;
    let data = dir.path().join("data");
    fs::create_dir_all(&data)?;
    let mut zone = Zone::new(NAMES);
    zone.write(&data, 1)?;
    zone.write_file(dir.path(), 1)?;
    let (ports, named_port) = (Ports::free()?, tcp_port()?);
    let rack = rack(dir.path(), ports, &[])?;
    let named = named(dir.path(), named_port)?;
    let began = Instant::now();
    for port in [ports.dns, named_port] {
        until(port, CHANGED, FIRST, began)?;
    }
    let memory = |bench| -> Result<()> {
        let (ours, theirs) = (resident(&rack)?, resident(&named)?);
        print(bench, ours, "BIND 9.18", theirs, theirs / ours, "MB");
        Ok(())
    };
    memory("dns_zone_memory")?;

    let named_id = i32::try_from(named.0.id()).ok().and_then(Pid::from_raw).ok_or("named has no id")?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for change in 0..CHANGES {
        let (serial, address) = (u32::from(change) + 2, Ipv4Addr::new(10, 9, 9, change));
        zone.set(CHANGED, address);
        // The changes are spread over the second between two checks of the files.
        std::thread::sleep(Duration::from_secs(1) * u32::from(change) / u32::from(CHANGES));
        zone.write(&data, serial)?;
        ours.push(until(ports.dns, CHANGED, address, Instant::now())?.as_secs_f64() * 1000.0);
        zone.write_file(dir.path(), serial)?;
        let began = Instant::now();
        kill_process(named_id, Signal::HUP)?;
        theirs.push(until(named_port, CHANGED, address, began)?.as_secs_f64() * 1000.0);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    print("dns_zone_change", ours, "BIND 9.18, SIGHUP", theirs, theirs / ours, "ms");
    memory("dns_zone_memory_changed")
}
