//! Network test: the link of each physical interface, its error counters, and the path from the boot interface to gateway and rack.

mod link;
mod reach;

use std::time::{Duration, Instant};

use basalt_api::agent::Verdict;

use super::parameters::{Parameter, Parameters, Takes};
use super::results::Results;
use super::{Finding, tell};
use crate::cmdline::BootConfig;
use crate::network;
use crate::root::Root;
use link::{Counters, Link};
use reach::{Reach, Route};

pub(super) const PARAMETERS: [Parameter; 1] = [Parameter {
    name: "seconds",
    takes: Takes::Number { default: 5, range: 1..=3600 },
    meaning: "how long the boot interface sends to its gateway, and errors are counted",
}];

pub(super) fn run(root: &Root, parameters: &Parameters, results: &mut Results) -> Result<(), String> {
    let seconds = parameters.number("seconds");
    let end = Instant::now() + Duration::from_secs(seconds);
    let interfaces = network::physical(root);
    let boot = Boot::of(root);
    let before: Vec<Counters> = interfaces.iter().map(|name| Counters::read(root, name)).collect();
    let reach = boot.interface.as_ref().map(|name| {
        tell(&format!("network: {name} sends for {seconds} s"));
        reach::of(root, name, boot.rack.as_ref(), seconds)
    });
    // Errors are counted for the whole time, even if the answers came earlier.
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    if interfaces.is_empty() {
        let mut finding = Finding::at(None);
        finding.add(Verdict::Failed, "the machine has no network interface that the kernel has a driver for");
        results.add(finding);
    }
    if !interfaces.is_empty() && !boot.interface.as_ref().is_some_and(|boot| interfaces.contains(boot)) {
        let mut finding = Finding::at(None);
        finding.add(
            Verdict::Degraded,
            "the interface that the machine was booted by is not among its interfaces",
        );
        results.add(finding);
    }
    for (name, before) in interfaces.iter().zip(&before) {
        let is_boot = boot.interface.as_ref() == Some(name);
        let mut finding = Finding::at(Some(name));
        link::judge(&Link::read(root, name), is_boot, &mut finding);
        Counters::read(root, name).since(before).judge(&mut finding);
        if let (true, Some(reach)) = (is_boot, &reach) {
            judge(reach, &mut finding);
        }
        results.add(finding);
    }
    Ok(())
}

/// The interface that the machine was booted from, and its rack.
struct Boot {
    interface: Option<String>,
    rack: Option<(String, u16)>,
}

impl Boot {
    /// From the kernel command line. On a system that Basalt did not boot: the interface of the default route.
    fn of(root: &Root) -> Self {
        let line = root.text("proc/cmdline").unwrap_or_default();
        match BootConfig::parse(&line) {
            Ok(config) => Self {
                interface: network::find(root, config.boot_mac.as_deref()),
                rack: reach::host_and_port(&config.url),
            },
            Err(_) => Self { interface: Route::default_of(root).map(|route| route.interface), rack: None },
        }
    }
}

/// Adds the results for gateway and rack to the row of the boot interface.
fn judge(reach: &Reach, finding: &mut Finding) {
    if let Some(echo) = &reach.echo {
        if let Some(rtt_ms) = echo.rtt_ms {
            finding.figure("rtt_ms", rtt_ms);
        }
        finding.figure("lost_percent", echo.lost_percent);
    }
    let rack = reach.rack.as_ref().map(|(name, answer)| (name.as_str(), answer));
    if let Some((_, Ok(time))) = &rack {
        finding.figure("rack_ms", time.as_secs_f64() * 1000.0);
    }
    let gateway = reach.gateway.as_deref();
    let lost = reach.echo.as_ref().map_or(100.0, |echo| echo.lost_percent);
    match (gateway, rack) {
        (Some(gateway), _) if lost == 0.0 => {
            finding.add(Verdict::Passed, format!("gateway {gateway} answers"))
        }
        (Some(gateway), _) if lost < 100.0 => {
            finding.add(
                Verdict::Degraded,
                format!("gateway {gateway} left {lost:.0} % of the echo requests unanswered"),
            );
        }
        (Some(gateway), Some((rack, Ok(_)))) => finding.add(
            Verdict::Passed,
            format!(
                "gateway {gateway} answers no echo requests, as firewalls do, and rack {rack} is reached"
            ),
        ),
        (Some(gateway), None) => {
            finding.add(Verdict::Failed, format!("gateway {gateway} answers no echo request"));
        }
        (Some(gateway), Some((rack, Err(error)))) => finding.add(
            Verdict::Failed,
            format!("gateway {gateway} answers no echo request, and rack {rack} is not reached: {error}"),
        ),
        (None, Some((rack, Ok(_)))) => {
            finding.add(Verdict::Passed, format!("there is no gateway, and rack {rack} is reached"));
        }
        (None, Some((rack, Err(error)))) => finding
            .add(Verdict::Failed, format!("there is no gateway, and rack {rack} is not reached: {error}")),
        (None, None) => finding.add(
            Verdict::Degraded,
            "nobody was asked for an answer: there is no gateway, and the kernel command line names no rack",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::reach::Echo;
    use super::*;

    fn row(gateway: Option<f64>, rack: Option<Result<u64, &str>>) -> basalt_api::agent::TestRow {
        let rack = rack.map(|answer| {
            let answer = answer.map(Duration::from_millis).map_err(str::to_owned);
            ("10.77.0.1:5248".to_owned(), answer)
        });
        let echo =
            gateway.map(|lost_percent| Echo { lost_percent, rtt_ms: (lost_percent < 100.0).then_some(0.4) });
        let gateway = gateway.map(|_| "10.77.0.254".to_owned());
        let mut finding = Finding::at(Some("eth0"));
        judge(&Reach { gateway, echo, rack }, &mut finding);
        finding.row
    }

    /// Rows of a tree with a booted interface `boot0` and an unused one, for a rack at `port`.
    fn rows(port: u16, boot_mac: &str) -> Vec<(Option<String>, Verdict, String)> {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (name, octet, carrier) in [("basalt-boot0", 1, "1"), ("basalt-spare0", 2, "0")] {
            write(&format!("sys/class/net/{name}/device/vendor"), "0x8086");
            write(&format!("sys/class/net/{name}/address"), &format!("52:54:00:00:00:{octet:02}\n"));
            write(&format!("sys/class/net/{name}/carrier"), carrier);
            write(&format!("sys/class/net/{name}/speed"), "10000\n");
        }
        let spki = "00".repeat(32);
        write(
            "proc/cmdline",
            &format!(
                "basalt.url=https://127.0.0.1:{port} basalt.token=t basalt.spki={spki} BOOTIF=01-{boot_mac}"
            ),
        );
        let mut results = Results::open(None).unwrap();
        let parameters = Parameters::parse(&PARAMETERS, &["--seconds=1".to_owned()]).unwrap();
        run(&Root::at(dir.path()), &parameters, &mut results).unwrap();
        let rows = results.rows().iter();
        rows.map(|row| (row.device.clone(), row.verdict, row.message.clone())).collect()
    }

    #[test]
    fn the_boot_interface_has_to_reach_its_rack() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let boot = Some("basalt-boot0".to_owned());
        let spare = (
            Some("basalt-spare0".to_owned()),
            Verdict::Passed,
            "no carrier: no cable, or nothing at its end".to_owned(),
        );
        let reached = format!("10000 Mbit/s; there is no gateway, and rack 127.0.0.1:{port} is reached");
        assert_eq!(
            rows(port, "52-54-00-00-00-01"),
            [(boot.clone(), Verdict::Passed, reached), spare.clone()]
        );
        drop(listener);
        let rows_now = rows(port, "52-54-00-00-00-01");
        assert_eq!((&rows_now[0].0, rows_now[0].1), (&boot, Verdict::Failed), "{}", rows_now[0].2);
        assert_eq!(rows_now[1], spare);
        let rows_now = rows(port, "52-54-00-00-00-09");
        assert_eq!((&rows_now[0].0, rows_now[0].1, rows_now.len()), (&None, Verdict::Degraded, 3));
    }

    #[test]
    fn the_gateway_counts_and_then_the_rack() {
        for (gateway, rack, verdict, says) in [
            (Some(0.0), Some(Err("refused")), Verdict::Passed, "gateway 10.77.0.254 answers"),
            (Some(20.0), None, Verdict::Degraded, "left 20 % of the echo requests"),
            (Some(100.0), Some(Ok(2)), Verdict::Passed, "rack 10.77.0.1:5248 is reached"),
            (Some(100.0), Some(Err("refused")), Verdict::Failed, "not reached: refused"),
            (Some(100.0), None, Verdict::Failed, "answers no echo request"),
            (None, Some(Ok(2)), Verdict::Passed, "there is no gateway, and rack"),
            (None, Some(Err("refused")), Verdict::Failed, "not reached: refused"),
            (None, None, Verdict::Degraded, "nobody was asked"),
        ] {
            let row = row(gateway, rack);
            assert_eq!(row.verdict, verdict, "{}", row.message);
            assert!(row.message.contains(says), "{}", row.message);
        }
        let row = row(Some(20.0), Some(Ok(2)));
        assert_eq!(
            (row.figures["rtt_ms"], row.figures["lost_percent"], row.figures["rack_ms"]),
            (0.4, 20.0, 2.0)
        );
    }
}
