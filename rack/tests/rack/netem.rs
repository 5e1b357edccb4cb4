//! A link that the kernel impairs (tc-netem(8)), between a rack and other projects' clients.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::guest;
use super::namespace::{Host, make_switch, peer};
use super::peers::{Client, on_switch, start_with, subnet};
use super::tftp::{LOADER, SIZE, content};

/// The impairment, in each direction.
const NETEM: &str = "delay 3ms 2ms loss 20% duplicate 15% reorder 30%";
/// The number of datagrams sent to measure the faults.
const COUNTED: u16 = 300;
/// Longer than a datagram is in flight.
const SILENCE: Duration = Duration::from_millis(500);

/// In seconds: other projects' clients wait five seconds after a lost answer.
const PATIENCE: &str = "120";

/// The counted faults.
#[derive(Debug, Default)]
struct Faults {
    lost: u32,
    repeated: u32,
    /// Datagrams that arrived after a later one.
    reordered: u32,
}

/// Counts the faults of numbered datagrams from one socket to another.
fn count(from: &UdpSocket, to: &UdpSocket) -> Faults {
    let target = to.local_addr().unwrap();
    to.set_read_timeout(Some(SILENCE)).unwrap();
    for number in 0..COUNTED {
        from.send_to(&number.to_be_bytes(), target).unwrap();
        // The pause is shorter than the delay of a datagram, and long enough for the socket's buffer.
        std::thread::sleep(Duration::from_micros(500));
    }
    let mut faults = Faults::default();
    let (mut arrived, mut newest, mut bytes) = (BTreeSet::new(), 0, [0; 2]);
    while to.recv(&mut bytes).is_ok() {
        let number = u16::from_be_bytes(bytes);
        faults.repeated += u32::from(!arrived.insert(number));
        faults.reordered += u32::from(number < newest);
        newest = newest.max(number);
    }
    faults.lost = u32::from(COUNTED) - u32::try_from(arrived.len()).unwrap();
    faults
}

/// Runs a client on another host, in another thread. timeout(1) kills it if it hangs.
async fn run(host: &Host, command: &[&str]) -> Output {
    let mut command = host.command(&[&["timeout", "--signal=KILL", PATIENCE], command].concat());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Fetches the loader to a file with this name; FILE in the command stands for it. A client that gives up is started
/// again, as firmware starts again.
async fn fetch(host: &Host, dir: &Path, name: &str, times: u32, command: Vec<&str>) {
    let file = dir.join(name);
    let command: Vec<String> =
        command.iter().map(|word| word.replace("FILE", &file.to_string_lossy())).collect();
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let mut gave_up = Vec::new();
    for _ in 0..times {
        let began = Instant::now();
        let output = run(host, &command).await;
        println!("{name} took {:?}: {output:?}", began.elapsed());
        if output.status.success() {
            assert!(std::fs::read(&file).unwrap() == content(SIZE), "{name} has another file: {output:?}");
            return;
        }
        gave_up.push(output);
    }
    panic!("{name} gave up {times} times: {gave_up:?}");
}

/// Fetches the loader with tftp-hpa (this program), atftp and curl, from a rack at 10.9.0.1.
///
/// Two of them have faults on this link. atftp ends with "unexpected OACK" when the link repeats the OACK. When the
/// link repeats curl's request, curl answers the transfer that it heard from last, until the rack has given up both.
async fn fetch_with_all(host: &Host, dir: &Path, hpa: &str) {
    let url = format!("tftp://10.9.0.1/{LOADER}");
    let atftp = ["atftp", "--get", "--remote-file", LOADER, "--local-file", "FILE", "10.9.0.1"];
    let windows = ["--option", "blksize 1428", "--option", "windowsize 4"];
    let fetch = |name, times, command| fetch(host, dir, name, times, command);
    tokio::join!(
        fetch("tftp-hpa", 1, vec![hpa, "-m", "binary", "10.9.0.1", "-c", "get", LOADER, "FILE"]),
        fetch("atftp", 8, [&atftp[..], &windows].concat()),
        fetch(
            "curl",
            4,
            vec!["curl", "-s", "--tftp-blksize", "1024", "--max-time", "30", "-o", "FILE", &url]
        ),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_others_boot_over_a_link_that_netem_makes_bad() {
    let hpa = peer("tftp-hpa").join("usr/bin/tftp").to_string_lossy().into_owned();
    if !guest::is_inside(
        "netem::clients_of_others_boot_over_a_link_that_netem_makes_bad",
        &["sch_netem", "bridge", "veth"],
    ) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/24"]);
    let settings = on_switch(dir.path());
    let url = format!("http://10.9.0.1:{}/loaders/{LOADER}", settings.http_port);
    let rack = start_with(settings, vec![subnet("s1", "10.9.0", ("100", "109"))]).await;
    std::fs::write(dir.path().join("loaders").join(LOADER), content(SIZE)).unwrap();
    let host = Host::plug("a", "52:54:00:00:00:01");
    host.run(&["ip", "address", "add", "10.9.0.50/24", "dev", "eth0"]);
    let fetch = ["curl", "-sS", "--fail", "--max-time", "60", &url];
    // This also makes sure that the hosts have resolved each other's addresses.
    assert!(host.run(&fetch).stdout == content(SIZE));

    // The impairment applies to outgoing packets, so it is set on each end.
    for end in ["rack0", "uplink"] {
        let worse = format!("qdisc add dev {end} root netem {NETEM}");
        assert!(Command::new("tc").args(worse.split(' ')).status().unwrap().success(), "{worse}");
    }
    let here = UdpSocket::bind("10.9.0.1:4000").unwrap();
    let there = host.within(|| UdpSocket::bind("10.9.0.50:4000").unwrap());
    for (way, fired) in [("to clients", count(&here, &there)), ("to the rack", count(&there, &here))] {
        println!("of {COUNTED} datagrams {way} netem has {fired:?}");
        assert!(fired.lost > 0 && fired.repeated > 0 && fired.reordered > 0, "{way}: {fired:?}");
    }

    let hosts: Vec<Host> =
        (2..6).map(|at| Host::plug(&format!("h{at}"), &format!("52:54:00:00:00:{at:02x}"))).collect();
    let (mut leased, began) = (BTreeSet::new(), Instant::now());
    for (at, host) in hosts.iter().enumerate() {
        let client = Client::new(host);
        let address = if at % 2 == 0 {
            // It gives up when three of its requests are lost; firmware does so too, and starts again.
            let mut began_again = 0;
            while !client.udhcpc(&[]).await {
                began_again += 1;
                assert!(began_again < 5, "udhcpc");
            }
            client.knew("bound")["ip"].clone()
        } else {
            assert!(client.dhclient(&[]).await, "dhclient");
            client.knew("BOUND")["new_ip_address"].clone()
        };
        println!("after {:?} {address}", began.elapsed());
        assert!(leased.insert(address), "no address is two clients': {leased:?}");
    }
    fetch_with_all(&host, dir.path(), &hpa).await;
    let fetched = host.run(&fetch).stdout;
    assert!(fetched == content(SIZE), "{} bytes by HTTP", fetched.len());
    rack.stop().await;
}
