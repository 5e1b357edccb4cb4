//! Machines that a user declares and deploys with the console, in a browser with a region, a rack and simulated machines.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;

use basalt_sim::{Event, Firmware};
use basalt_tests::browser;
use serde_json::json;

use basalt_tests::fleet::{Fleet, LIMIT, machine_spec};

/// The rack's syslog address, with a port that needs no root.
const SYSLOG: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 1)), 5247);
const PASSWORD: &str = "correct horse battery";

#[tokio::test(flavor = "multi_thread")]
async fn machines_are_accepted_deployed_read_released_and_commissioned_in_the_browser() {
    let fleet = Fleet::start("console", &[]).await;
    fleet.declare("roles", "operator", json!({"base": "operator"})).await;
    fleet.declare("users", "ann", json!({"password": PASSWORD, "roles": ["operator"]})).await;
    fleet.site.rack_holds(1, "boot", "enlist").await.expect("the rack knows whom it may inspect");
    let stranger = fleet.machine(1, Firmware::Uefi, |_| {});
    stranger.press_power();
    stranger.wait_for(|event| *event == Event::NothingBoots, LIMIT).await.expect("it is inspected");
    let another = fleet.machine(2, Firmware::Uefi, |_| {});

    let mut steps = fleet.site.lab().command(browser::program()).expect("a command");
    browser::set_up(&mut steps);
    steps
        .args(["node", "tests/browser/fleet.mjs"])
        .env("REGION_URL", "http://127.0.0.1:5240")
        .env("PASSWORD", PASSWORD)
        .env("BMC", machine_spec(&stranger)["bmc"].to_string())
        .stdout(Stdio::piped());
    let mut steps = steps.spawn().expect("Node starts");
    let lines = BufReader::new(steps.stdout.take().expect("its output")).lines();
    let declares = tokio::runtime::Handle::current();
    let ended = tokio::task::spawn_blocking(move || {
        for line in lines.map_while(Result::ok) {
            println!("{line}");
            // The browser shows the log now: send a new line.
            if let Some(words) = line.strip_prefix("stranger says ") {
                stranger.says(SYSLOG, words);
            }
            if line == "another machine" {
                declares.block_on(fleet.declare("machines", "sim-2", machine_spec(&another)));
            }
        }
        steps.wait()
    });
    let ended = ended.await.expect("it ends").expect("it is waited for");
    assert!(ended.success(), "the browser's steps failed: {ended}");
}
