//! A rack's own files after a crash, and the HTTP requests of clients that fetch files.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use basalt_dhcp::{AddressRange, Config, Lease, LeaseState, Mac, Server, Subnet, Time};
use basalt_rack::http::conditions::Verdict;
use basalt_rack::http::request::{self, Head, Part};
use basalt_rack::journal::{self, Lines};

const NOW: Time = Time(1_700_000_000_000);

/// The lines of a lease file. A line with a wrong checksum is skipped; any line with a right one is accepted.
pub fn leases(data: &[u8]) {
    let Lines { records, whole, .. } = journal::read::<Lease>(data);
    assert!(whole <= data.len() && records.len() <= data.len());
    let lines = data.split(|byte| *byte == b'\n');
    let records: Vec<Lease> = lines.filter_map(|line| serde_json::from_slice(line.get(9..)?).ok()).collect();
    let mut file = Vec::new();
    for record in &records {
        file.extend(journal::line(record).expect("what was read can be written"));
    }
    let again = journal::read::<Lease>(&file);
    assert_eq!((&again.records, again.skipped, again.whole), (&records, 0, file.len()));

    let mut subnet = Subnet::new("lab", "10.77.0.0/24".parse().expect("a network"));
    let end = Ipv4Addr::new(10, 77, 0, 103);
    subnet.dynamic = vec![AddressRange { start: Ipv4Addr::new(10, 77, 0, 100), end }];
    let config = Config { subnets: vec![subnet], ..Config::default() };
    let mut server = Server::new(config).expect("a configuration");
    server.set_links(BTreeMap::from([(3, vec![Ipv4Addr::new(10, 77, 0, 2)])]));
    server.restore(records);
    // Any restored records must leave the server usable.
    for days in [0, 1, 400] {
        let _ = server.tick(NOW + Duration::from_secs(days * 86_400));
    }
}

pub(crate) fn seeds_leases() -> Vec<Vec<u8>> {
    let lease = |last: u8, state| Lease {
        address: Ipv4Addr::new(10, 77, 0, last),
        mac: Mac([0x52, 0x54, 0, 0, 0, last]),
        subnet: "lab".to_owned(),
        hostname: Some("web1".to_owned()),
        state,
        granted: NOW,
        expires: NOW + Duration::from_secs(600),
        acknowledged: true,
        promised_until: Some(NOW + Duration::from_secs(1200)),
        kept_until: None,
    };
    let lines = [lease(100, LeaseState::Bound), lease(101, LeaseState::Quarantined)];
    let line = |lease: &Lease| journal::line(lease).expect("a line");
    vec![lines.iter().flat_map(line).collect(), line(&lines[1])]
}

/// The head of a request for a blob, with its range and its validators.
pub fn http(data: &[u8]) {
    match request::read(data) {
        Head::Plain(asked) => {
            assert!(asked.length <= data.len() && !asked.sha256.contains(['/', '?', '%']));
            let before = &data[..asked.length - 1];
            assert_eq!(request::read(before), Head::Unfinished, "before its last byte it is not whole");
            assert_eq!(
                request::read(&data[..asked.length]),
                Head::Plain(asked.clone()),
                "what follows is the next"
            );
            for length in [0, 1, 10, u64::MAX] {
                match asked.conditions.judge(&asked.method, "\"aa\"", length) {
                    Verdict::Send(Part::Range(from, count)) => {
                        assert!(count > 0 && from.checked_add(count).is_some_and(|end| end <= length));
                    }
                    Verdict::Send(_) | Verdict::NotModified | Verdict::Failed => {}
                }
            }
        }
        Head::Unfinished | Head::Other => {}
    }
}

pub(crate) fn seeds_http() -> Vec<Vec<u8>> {
    let head = |rest: &str| format!("GET /blobs/{} HTTP/1.1\r\nHost: r\r\n{rest}\r\n", "a".repeat(64));
    let heads = [
        "Range: bytes=4-6\r\nIf-Range: \"aa\"\r\nConnection: close\r\n",
        "Range: bytes=-3\r\n",
        "If-None-Match: *\r\n",
        "Content-Length: 3\r\n",
    ];
    heads.map(|rest| head(rest).into_bytes()).into()
}
