//! A rack can serve every network that the API accepts: the rack's own parser accepts the concern, and no object makes a rack refuse
//! all the others.

use crate::dhcp::Played;
use crate::support::{Lab, driven_lab};
use basalt_dhcp::v6::Client;
use basalt_proto::rack_v1::DhcpConcern;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const WRITES: usize = 750;

/// Random numbers that are the same in every run (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).expect("small")).expect("small")
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn some<T: Copy>(&mut self, most: usize, of: &[T]) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| self.one(of)).collect()
    }

    fn often(&mut self) -> bool {
        self.below(3) > 0
    }
}

/// Subnets, and addresses inside of them and at their edges.
const NETWORKS: &[(&str, &str, &[&str])] = &[
    (
        "s0",
        "10.77.0.0/24",
        &["10.77.0.0", "10.77.0.1", "10.77.0.2", "10.77.0.9", "10.77.0.10", "10.77.0.200", "10.77.0.255"],
    ),
    (
        "s1",
        "fd00::/64",
        &["fd00::", "fd00::1", "fd00::2", "fd00::9", "fd00::1:0", "fd00::ffff:ffff:ffff:ffff"],
    ),
    ("s2", "10.90.0.0/31", &["10.90.0.0", "10.90.0.1"]),
    ("s3", "10.90.0.4/30", &["10.90.0.4", "10.90.0.5", "10.90.0.6", "10.90.0.7"]),
    ("s4", "10.90.0.8/32", &["10.90.0.8"]),
    (
        "s5",
        "10.91.0.0/16",
        &["10.91.0.0", "10.91.0.1", "10.91.4.0", "10.91.4.255", "10.91.255.254", "10.91.255.255"],
    ),
    ("s6", "fd02::/127", &["fd02::", "fd02::1"]),
    ("s7", "fd04::/48", &["fd04::", "fd04::1", "fd04::1:0:0:0:0", "fd04:0:0:ffff:ffff:ffff:ffff:ffff"]),
    ("s8", "192.0.2.128/25", &["192.0.2.128", "192.0.2.129", "192.0.2.200", "192.0.2.254", "192.0.2.255"]),
];
/// Networks that overlap with those, or that cannot contain a machine.
const STRANGE: &[&str] = &[
    "10.91.4.0/24",
    "10.0.0.0/7",
    "0.0.0.0/1",
    "0.1.0.0/16",
    "127.0.0.0/24",
    "169.254.0.0/16",
    "224.0.0.0/24",
    "240.0.0.0/24",
    "255.255.255.0/24",
    "fd03::/128",
    "fe80::/64",
    "ff02::/64",
    "::/8",
    "::ffff:0:0/96",
    "2001:db8::/32",
];
const ADDRESSES: &[&str] = &[
    "0.0.0.0",
    "10.77.0.9",
    "10.90.0.5",
    "10.91.4.7",
    "127.0.0.1",
    "169.254.1.1",
    "192.0.2.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:10.77.0.9",
    "fd00::9",
    "fe80::1",
    "ff02::1",
    "2001:db8::1",
];
/// Addresses that a server can have.
const SERVERS: &[&str] =
    &["10.77.0.9", "169.254.1.1", "192.0.2.1", "240.0.0.1", "fd00::9", "fe80::1", "2001:db8::1"];
const DUIDS: &[&str] =
    &["00:04:00:00:00:01", "00-04-00-00-00-02", "0003000102000000000a", "00:00:01", "00:04"];
const MACS: &[&str] = &[
    "52:54:00:00:00:01",
    "52:54:00:00:00:02",
    "02-00-00-00-00-03",
    "00:00:00:00:00:00",
    "ff:ff:ff:ff:ff:ff",
    "01:00:5e:00:00:01",
];
const NUMBERS: &[&str] = &[
    "0", "1", "3", "6", "12", "15", "26", "42", "43", "51", "53", "54", "60", "61", "66", "67", "82", "93",
    "97", "114", "119", "121", "125", "150", "175", "209", "224", "254", "255", "256", "06", "x",
];
const NAMES: &[&str] = &[
    "a",
    "a.example",
    "A.Example",
    "x-1",
    "-x",
    "x_y",
    "xn--bcher-kva.example",
    "a..b",
    "a.",
    "1",
    "10.77.0.9",
    "é",
];

/// A subnet's name, and an address that is usually in it.
fn place(random: &mut Random) -> (&'static str, &'static str) {
    let (subnet, _, addresses) = random.one(NETWORKS);
    (subnet, address(random, addresses))
}

fn address(random: &mut Random, mostly: &[&'static str]) -> &'static str {
    if random.below(8) == 0 { random.one(ADDRESSES) } else { random.one(mostly) }
}

/// Up to three addresses, which servers usually can have.
fn servers(random: &mut Random) -> Vec<&'static str> {
    (0..random.below(4)).map(|_| address(random, SERVERS)).collect()
}

fn option_value(random: &mut Random) -> String {
    match random.below(20) {
        0 => "hex:".to_owned(),
        1 => format!("hex:{}", "0a".repeat(random.one(&[1, 4, 255, 256]))),
        2 => "x".repeat(random.one(&[1, 255, 256, 2_000])),
        3 => random.some(70, ADDRESSES).join(","),
        4 => {
            random.one(&["", " ", "\u{1}", "é", "hex:0", "hex:zz", "10.0.0.1, 10.0.0.2", "\u{0}"]).to_owned()
        }
        _ => "10.77.0.9".to_owned(),
    }
}

fn options(random: &mut Random) -> BTreeMap<&'static str, String> {
    let numbers = if random.often() { &["43", "150", "224", "254"] } else { NUMBERS };
    random.some(2, numbers).into_iter().map(|number| (number, option_value(random))).collect()
}

fn name(random: &mut Random) -> String {
    match random.below(9) {
        0 => "a".repeat(random.one(&[63, 64])),
        1 => vec!["b".repeat(random.one(&[61, 62, 63])); 4].join("."),
        2 | 3 => random.one(NAMES).to_owned(),
        _ => random.one(&["a", "b.example", "x-1"]).to_owned(),
    }
}

/// Sometimes the value, often null.
fn maybe(random: &mut Random, value: impl FnOnce(&mut Random) -> Value) -> Value {
    if random.often() { Value::Null } else { value(random) }
}

/// A write: its path, and the spec.
fn write(random: &mut Random) -> (String, Value) {
    match random.below(16) {
        0 => {
            let lease = random.one(&["1m", "59s", "10m", "1d", "31d", "32d", "0s"]);
            let mtu = random.one(&[0, 551, 552, 576, 1500, 9000, 65_535, 65_536]);
            let spec = json!({"fabric": "default", "vid": 0, "mtu": mtu, "loader": maybe(random, |_| json!("shim_grub")),
                "dhcp": {"enabled": true, "lease_time": lease, "options": options(random)}});
            ("vlans/default.0".to_owned(), spec)
        }
        1..=4 => {
            let (subnet, cidr, addresses) = random.one(NETWORKS);
            let is_strange = random.below(8) == 0;
            let (subnet, cidr) = if is_strange { ("strange", random.one(STRANGE)) } else { (subnet, cidr) };
            let names: Vec<String> = (0..random.below(3)).map(|_| name(random)).collect();
            let spec = json!({"vlan": "default.0", "cidr": cidr, "managed": random.often(),
                "gateway": maybe(random, |random| json!(address(random, addresses))),
                "dns_servers": maybe(random, |random| json!(servers(random))),
                "ntp_servers": maybe(random, |random| json!([address(random, SERVERS), name(random)])),
                "search_domains": names, "dhcp_options": maybe(random, |random| json!(options(random))),
                "boot": {"mode": random.one(&["dhcp", "dhcp", "dhcp", "proxy", "none"]), "architectures": random.some(2, &["amd64", "arm64"])}});
            (format!("subnets/{subnet}"), spec)
        }
        5..=7 => {
            let (subnet, _, addresses) = random.one(NETWORKS);
            let (one, other) = (address(random, addresses), address(random, addresses));
            let spec = json!({"subnet": subnet, "start": one, "end": other, "purpose": random.one(&["dynamic", "dynamic", "reserved"])});
            (format!("ip_ranges/r{}", random.below(8)), spec)
        }
        8..=11 => {
            let (subnet, address) = place(random);
            let (by, client) =
                if random.often() { ("mac", random.one(MACS)) } else { ("duid", random.one(DUIDS)) };
            let spec = json!({"subnet": subnet, "address": maybe(random, |_| json!(address)), (by): client,
                "hostname": maybe(random, |random| json!(name(random)))});
            (format!("ip_addresses/a{}", random.below(12)), spec)
        }
        12 => {
            let machine = random.one(&["1", "2", "3"]);
            let mac = if random.often() {
                format!("52:54:00:00:00:0{machine}")
            } else {
                random.one(MACS).to_owned()
            };
            let spec = json!({"boot_macs": [mac], "dhcp_options": options(random), "power": "off"});
            (format!("machines/m{machine}"), spec)
        }
        13 => {
            let spec = json!({"macs": random.some(2, MACS), "addresses": random.some(3, ADDRESSES)});
            (format!("devices/d{}", random.below(3)), spec)
        }
        _ => {
            let (source, gateway) = place(random);
            let spec = if random.often() {
                json!({"source": source, "gateway": gateway, "destination_cidr": random.one(STRANGE)})
            } else {
                json!({"source": source, "gateway": gateway, "destination": place(random).0})
            };
            (format!("static_routes/t{}", random.below(4)), spec)
        }
    }
}

/// The numbers of writes and of accepted writes, by kind.
type Counts = BTreeMap<String, (u32, u32)>;

async fn written(lab: &Lab, random: &mut Random, counts: &mut Counts) {
    let (path, spec) = write(random);
    let count = counts.entry(path.split('/').next().unwrap_or_default().to_owned()).or_default();
    let answer = lab.api.put(&format!("/api/v1/{path}"), &json!({"spec": spec}).to_string()).await;
    count.0 += 1;
    assert!(!answer.status.is_server_error(), "{path} {spec}: {answer:?}");
    if answer.status.is_success() {
        count.1 += 1;
    } else if random.below(4) == 0 && !path.starts_with("vlans") {
        // Delete the object that may be in the way.
        lab.api.delete(&format!("/api/v1/{path}?if_unused=true")).await;
    }
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "how often what was tried is read by people")]
async fn whatever_is_accepted_a_rack_can_serve() {
    let lab = driven_lab().await;
    lab.api.declare("/api/v1/fabrics/default", "{}").await;
    lab.api
        .declare("/api/v1/vlans/default.0", r#"{"fabric":"default","vid":0,"dhcp":{"enabled":true}}"#)
        .await;
    lab.api.declare("/api/v1/subnets/s0", r#"{"vlan":"default.0","cidr":"10.77.0.0/24"}"#).await;
    lab.api.declare("/api/v1/subnets/s1", r#"{"vlan":"default.0","cidr":"fd00::/64"}"#).await;
    let rack =
        Played::come_at(&lab, "r1", &["10.77.0.2/24", "fd00::2/64", "fd02::1/127", "fd04::2/48"]).await;
    let (mut random, mut counts) = (Random(0x0bad_cafe_f00d_d00d), Counts::new());
    let (mut served, mut most) = (0, [0; 6]);
    for number in 0..WRITES {
        written(&lab, &mut random, &mut counts).await;
        if number % 25 != 24 {
            continue;
        }
        // The concern with the last declared lease time contains all earlier writes.
        let lease = format!("{}s", 600 + number);
        let vlan = json!({"fabric": "default", "vid": 0, "dhcp": {"enabled": true, "lease_time": lease}});
        lab.api.declare("/api/v1/vlans/default.0", &vlan.to_string()).await;
        let seconds = u32::try_from(600 + number).expect("small");
        let is_told = |told: &DhcpConcern| {
            let leases = told.subnets.iter().map(|it| it.lease_seconds);
            leases.chain(told.subnets6.iter().map(|it| it.lease_seconds)).all(|it| it == seconds)
        };
        let told = rack.told(&lab, is_told).await;
        let v4 = basalt_rack::dhcp::config::config(&told, 5248);
        let v6 = basalt_rack::dhcp6::config::config(&told, 5248);
        let v4 = v4.unwrap_or_else(|error| panic!("after {number} writes: {error}: {told:#?}"));
        let v6 = v6.unwrap_or_else(|error| panic!("after {number} writes: {error}: {told:#?}"));
        basalt_dhcp::Server::new(v4).expect("a server takes it");
        served += 1;
        let reservations = told.subnets.iter().map(|it| it.reservations.len()).sum::<usize>();
        let dynamic = told.subnets.iter().map(|it| it.dynamic.len()).sum();
        let of_duids = v6.subnets.iter().flat_map(|it| &it.reservations);
        let of_duids = of_duids.filter(|it| matches!(it.client, Client::Duid(_))).count();
        let options = told.client_options.len();
        let has = [told.subnets.len(), v6.subnets.len(), reservations, of_duids, dynamic, options];
        most = std::array::from_fn(|at| has[at].max(most[at]));
    }
    println!(
        "{counts:?}; {served} concerns; at most [subnets, IPv6 subnets, reservations, those of DUIDs, ranges, machines with options]: {most:?}"
    );
    for (kind, (tried, accepted)) in counts {
        assert!(accepted > 0 && accepted < tried, "{kind}: {accepted} of {tried} were accepted");
    }
    assert!(most.iter().all(|&most| most > 0), "{most:?}");
}
