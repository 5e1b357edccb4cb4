//! Example objects of every kind. Kinds with fields that exclude each other have several, so that together the examples set every field.
//! They are the examples in the document, and all can be stored.

use crate::schema::{Kind, Semantic};
use serde_json::{Value, json};

/// An object that is valid if the examples before it exist.
#[derive(Clone, Debug)]
pub struct Example {
    /// Kind of the object.
    pub kind: &'static Kind,
    /// Name of the object.
    pub name: &'static str,
    /// Spec of the object.
    pub spec: Value,
}

/// Examples of every kind. Each comes after the examples that it refers to.
#[must_use]
pub fn examples() -> Vec<Example> {
    let sha256 = "0".repeat(64);
    let key = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZQ==\n-----END PGP PUBLIC KEY BLOCK-----\n";
    let built = json!({"layout": "custom",
        "disks": {"left": {"id": "wwn-0x5000c500a1b2c3d4"}, "right": {"min_size": "100GiB"}, "spare": {}},
        "partitions": {"left-root": {"disk": "left", "size": "20GiB"}, "left-data": {"disk": "left"},
            "right-root": {"disk": "right", "size": "20GiB"}, "right-data": {"disk": "right"}},
        "raids": {"system": {"level": "raid1", "members": ["left-root", "right-root"], "spares": ["spare"]}},
        "volume_groups": {"data": {"members": ["left-data", "right-data"]}},
        "volumes": {"swap": {"volume_group": "data", "size": "2GiB"}, "srv": {"volume_group": "data"}},
        "filesystems": {"root": {"device": "system", "mount": "/", "label": "root"},
            "swap": {"device": "swap", "type": "swap"},
            "srv": {"device": "srv", "type": "xfs", "mount": "/srv", "options": "noatime,nofail"}}});
    let further =
        |address: &str| json!({"more": {"addressing": "static", "subnet": "office", "address": address}});
    let network = json!({"interfaces": {"eth0": {"mac": "52:54:00:00:00:01", "addressing": "static",
            "subnet": "lab", "address": "10.77.0.20", "addresses": further("10.78.0.30"), "accept_ra": false, "mtu": 1500},
            "eth1": {"addressing": "link_up"}, "eth2": {"addressing": "link_up"}, "eth3": {"addressing": "link_up"},
            "eth4": {"addressing": "link_up"}},
        "bonds": {"bond0": {"members": ["eth1", "eth2"], "mode": "802.3ad", "link_check_ms": 100, "lacp_rate": "fast",
            "hash_policy": "layer3+4", "addressing": "static", "subnet": "office", "address": "10.78.0.21",
            "addresses": further("10.78.0.31"), "accept_ra": false, "mtu": 9000, "mac": "52:54:00:00:00:0b",
            "up_delay_ms": 200, "down_delay_ms": 200},
            "bond1": {"members": ["eth4"], "mode": "active-backup", "primary": "eth4", "gratuitous_arps": 2,
                "addressing": "link_up"}},
        "bridges": {"br0": {"members": ["eth3"], "stp": true, "forward_delay_s": 4, "mac": "52:54:00:00:00:0c",
            "addressing": "static", "subnet": "office", "address": "10.78.0.20", "addresses": further("10.78.0.32"),
            "accept_ra": false, "mtu": 1500}},
        "vlans": {"bond0.7": {"parent": "bond0", "vid": 7, "addressing": "static", "subnet": "office",
            "address": "10.78.0.22", "addresses": further("10.78.0.33"), "accept_ra": false, "mtu": 1500}},
        "routes": {"far": {"interface": "br0", "destination": "192.0.2.0/24", "gateway": "10.78.0.1", "on_link": false, "metric": 100}},
        "dns_servers": ["10.77.0.2"], "search": ["lab.example.com"]});
    let specs = [
        ("Zone", "row-1", json!({"description": "the row by the door"})),
        ("Pool", "web", json!({"description": "what the web team may use"})),
        ("Space", "inside", json!({"description": "what stays inside"})),
        ("Fabric", "default", json!({"description": "the machine room's switches", "class": "10g"})),
        ("Rack", "r1", json!({"description": "by the door", "zone": "row-1", "maintenance": false})),
        (
            "Vlan",
            "default.0",
            json!({"fabric": "default", "vid": 0, "description": "untagged", "mtu": 9000, "space": "inside",
                "loader": "ipxe", "enlist": "create", "dhcp": {"enabled": true, "lease_time": "10m", "racks": ["r1"], "options": {"150": "10.77.0.5"}}}),
        ),
        (
            "Vlan",
            "default.7",
            json!({"fabric": "default", "vid": 7, "dhcp": {"enabled": false, "relay_to": ["192.0.2.67"]}}),
        ),
        (
            "Subnet",
            "lab",
            json!({"vlan": "default.0", "cidr": "10.77.0.0/24", "description": "the lab", "gateway": "10.77.0.1",
                "dns_servers": ["10.77.0.2"], "ntp_servers": ["ntp.example.com"], "managed": true,
                "allow_dns": true, "allow_proxy": false, "rdns": "enabled",
                "boot": {"mode": "dhcp", "architectures": ["amd64"]}, "search_domains": ["lab.example.com"],
                "dhcp_options": {"150": "10.77.0.5"}}),
        ),
        ("Subnet", "office", json!({"vlan": "default.0", "cidr": "10.78.0.0/24"})),
        ("Subnet", "lab6", json!({"vlan": "default.0", "cidr": "2001:db8::/64"})),
        (
            "IpRange",
            "pool",
            json!({"subnet": "lab", "start": "10.77.0.100", "end": "10.77.0.200", "purpose": "dynamic",
                "description": "for whoever asks"}),
        ),
        (
            "IpAddress",
            "printer",
            json!({"subnet": "lab", "address": "10.77.0.30", "mac": "52:54:00:00:00:09", "hostname": "printer",
                "description": "on the second floor"}),
        ),
        (
            "IpAddress",
            "printer6",
            json!({"subnet": "lab6", "address": "2001:db8::30", "duid": Semantic::Duid.example()}),
        ),
        (
            "StaticRoute",
            "to-office",
            json!({"source": "lab", "destination": "office", "gateway": "10.77.0.1", "metric": 5, "description": "to the office"}),
        ),
        (
            "StaticRoute",
            "to-world",
            json!({"source": "lab", "destination_cidr": "192.0.2.0/24", "gateway": "10.77.0.1"}),
        ),
        (
            "Domain",
            "lab.example.com",
            json!({"authoritative": true, "ttl": 60, "description": "the lab's names",
                "secondaries": {"ns1": {"address": "192.0.2.54", "port": 53, "key_name": "basalt.example.com",
                    "key": "AAAAAAAAAAAAAAAAAAAAAA=="}}}),
        ),
        ("Domain", "away.example.com", json!({"authoritative": false, "forward_to": ["192.0.2.53"]})),
        (
            "DnsRecord",
            "www",
            json!({"domain": "lab.example.com", "owner_name": "www", "type": "A", "data": "10.77.0.9", "ttl": 30,
                "description": "the web server"}),
        ),
        (
            "ImageSource",
            "upstream",
            json!({"url": "https://images.example.com/", "keyring": key, "schedule": "6h", "description": "what the distribution offers",
                "selections": {"stable": {"os": "debian", "release": "bookworm", "architectures": ["amd64"]}}}),
        ),
        (
            "Image",
            "debian",
            json!({"os": "debian", "release": "bookworm", "architecture": "amd64", "purpose": "deploy",
                "files": {"root_tarball": {"sha256": sha256, "size": 7}}, "kernel_options": "quiet",
                "source": "upstream", "description": "Debian 12"}),
        ),
        (
            "Tag",
            "gpu",
            json!({"expression": "gpu.count > 0", "kernel_options": "quiet", "comment": "has a GPU"}),
        ),
        (
            "Script",
            "disks",
            json!({"type": "testing", "content": "#!/bin/sh\n", "timeout": "5m", "parallel": "instance",
                "hardware": ["pci:8086:*"], "description": "reads every disk",
                "parameters": {"mode": {"type": "choice", "required": true, "default": "a", "min": 0, "max": 9,
                    "choices": ["a", "b"], "description": "how"}}}),
        ),
        (
            "Script",
            "seed",
            json!({"type": "deployment", "when": "first_boot", "content": "#!/bin/sh\n", "packages": ["jq"]}),
        ),
        ("Script", "flash", json!({"type": "commissioning", "content": "#!/bin/sh\n", "may_reboot": true})),
        (
            "PackageRepository",
            "extra",
            json!({"url": "http://deb.example.com/debian", "key": key, "suites": ["bookworm"],
                "components": ["main"], "architectures": ["amd64"], "description": "our own packages"}),
        ),
        (
            "PackageRepository",
            "rpms",
            json!({"type": "dnf", "url": "http://rpm.example.com/el/$releasever/$basearch", "key": key,
                "enabled": true, "signed": "both"}),
        ),
        ("SshKey", "me", json!({"public_key": Semantic::SshPublicKey.example(), "description": "mine"})),
        (
            "Machine",
            "m1",
            json!({"architecture": "amd64", "zone": "row-1", "pool": "web", "tags": ["gpu"],
                "domain": "lab.example.com", "boot_macs": ["52:54:00:00:00:01"],
                "bmc": {"driver": "ipmi", "address": "10.77.0.3", "port": 623, "username": "admin",
                    "password": "a password", "k_g": "0x0102", "rotate": 1, "options": {"cipher_suite": 17, "privilege": "administrator"}},
                "ownership": {"power": "managed", "boot": "managed", "network": "managed", "os": "managed"},
                "network": network, "storage": {"layout": "flat", "disk": "sda", "root_size": "8GiB"},
                "boot_order": "disk_first", "kernel_options": "quiet", "dhcp_options": {"150": "10.77.0.6"},
                "commissioning": {"scripts": ["disks"], "testing": ["disks"], "failed_tests": "block", "skip": false, "bmc": "set_up", "keep_power": false},
                "power": "auto", "mode": "managed", "locked": false, "description": "the first one"}),
        ),
        (
            "Machine",
            "m2",
            json!({"boot_macs": ["52:54:00:00:00:0a"], "bmc": {"driver": "redfish", "address": "10.77.0.5", "username": "admin",
                "password": "a password", "options": {"system": "1"},
                "tls": {"ca": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"}}, "storage": built}),
        ),
        (
            "Machine",
            "m3",
            json!({"boot_macs": ["52:54:00:00:00:0b"], "bmc": {"driver": "redfish", "address": "10.77.0.7", "username": "admin",
                "password": "a password", "tls": {"verify": true, "fingerprint": sha256}}}),
        ),
        (
            "Machine",
            "m4",
            json!({"boot_macs": ["52:54:00:00:00:0c"], "bmc": {"driver": "webhook", "address": "10.77.0.8", "password": "a-token",
                "webhook": {"on": "/outlets/3?power=on", "off": "/outlets/3?power=off", "status": "/outlets/3",
                    "cycle": "/outlets/3?power=cycle", "soft_off": "/outlets/3?power=shutdown", "says_on": "\"power\": *\"on\"",
                    "says_off": "\"power\": *\"off\"", "plain": true}}}),
        ),
        (
            "Device",
            "switch",
            json!({"macs": ["52:54:00:00:00:02"], "addresses": ["10.77.0.4"], "parent": "m1", "zone": "row-1",
                "domain": "lab.example.com", "description": "the switch on top"}),
        ),
        // Without a network, it would have the addresses of the machine's, which the next one has.
        (
            "Deployment",
            "one",
            json!({"image": "debian", "machine": "m1", "network": {"interfaces": {"eth0": {"subnet": "lab"}}}}),
        ),
        (
            "Deployment",
            "any",
            json!({"image": "debian", "kernel_options": "quiet", "user_data": "#cloud-config\n",
                "selector": {"architecture": "amd64", "zone": "row-1", "not_zone": [], "pool": "web",
                    "tags": ["gpu"], "not_tags": ["slow"], "min_cores": 2,
                    "min_x86_64_level": 3, "cpu_flags": ["avx512f"], "min_memory": "4GiB", "min_disk": "10GiB",
                    "name": "web-*", "disks": {"data": {"min_size": "1TB", "rotational": false, "transport": "nvme"}},
                    "interfaces": {"front": {"subnet": "lab", "vlan": "default.0", "space": "inside",
                        "fabric": "default", "fabric_class": "10g", "switch": "leaf-1*", "min_speed": 25000}},
                    "gpus": {"vendor": "nvidia", "model": "20b5", "min_count": 2},
                    "preferences": {"near": {"weight": 10, "zone": "row-1", "pool": "web", "tags": ["ssd"],
                        "not_tags": ["old"], "min_cores": 8, "min_memory": "8GiB"}},
                    "spread_by": "zone", "spread_group": "web"},
                "ssh_keys": [Semantic::SshPublicKey.example()], "hostname": "web-1",
                "network": network,
                "storage": {"layout": "flat", "disk": "sda", "root_size": "8GiB"}, "ephemeral": false, "wipe": "if_ours",
                "readiness": {"check": "tcp", "port": 22, "timeout": "15m"}, "redeploy": "refuse",
                "scripts": ["seed"], "release": {"erase": "quick", "scripts": ["disks"], "on_failure": "hold"}, "deletion_protection": false,
                "description": "the web server"}),
        ),
        (
            "Deployment",
            "elsewhere",
            json!({"image": "debian", "selector": {"not_zone": ["row-1"]}, "storage": built}),
        ),
        ("Discovery", "printer", json!({"description": "whose is it?"})),
        (
            "Webhook",
            "chat",
            json!({"url": "https://chat.example.com/hook", "events": ["stalled"], "secret": "a secret",
                "description": "tells the operators"}),
        ),
        (
            "Role",
            "web-admins",
            json!({"base": "operator", "pools": ["web"], "description": "works on the web team's machines"}),
        ),
        (
            "Settings",
            "default",
            json!({"default_image": "debian", "kernel_options": "quiet", "loader": "ipxe",
                "upstream_dns": ["192.0.2.53"], "dns_clients": ["10.80.0.0/16"], "default_domain": "lab.example.com", "internal_domain": "racks.internal", "ntp_servers": ["ntp.example.com"], "erase": "quick",
                "proxy": {"enabled": true, "upstream": "http://proxy.example.com:3128", "via": "region"},
                "enlist": "discover", "enlistment": {"at_once": 8, "allow": ["52:54:00"], "ignore": ["52:54:00:ff"], "name": "{vendor}-{serial}",
                    "rules": {"dell": {"rack": "r1", "vlan": "default.0", "vendor": "Dell*", "product": "PowerEdge R6?0", "switch": "leaf-1*", "zone": "row-1",
                        "pool": "web", "tags": ["new"]}}},
                "deadlines": {"claim": "20m"}, "bmc_networks": ["10.77.0.0/24"], "power_reading": "10m", "bmc_user": "basalt",
                "logs": {"keep": "90d", "machine_size": "128MiB", "size": "50GiB"},
                "dns_secondaries": {"ns2": {"address": "192.0.2.55", "port": 53, "key_name": "basalt.example.com",
                    "key": "AAAAAAAAAAAAAAAAAAAAAA=="}},
                "remote_syslog": {"siem": {"address": "logs.example.com:6514", "protocol": "tls",
                    "ca": "-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n"}},
                "openid": {"issuer": "https://id.example.com", "client_id": "basalt", "client_secret": "a secret", "console": "https://basalt.example.com:5240", "name_claim": "preferred_username",
                    "groups_claim": "groups", "groups": {"web": {"roles": ["web-admins"]}}},
                "fleet_budget": {"max_unavailable": 10, "max_unavailable_per_zone": 5, "destructive_per_hour": 100,
                    "power_on_per_minute": 5,
                    "windows": {"night": {"days": ["saturday"], "hour": 22, "length": "6h"}}}}),
        ),
        (
            "User",
            "ada",
            json!({"password": "a long password", "openid": {"issuer": "https://id.example.com", "subject": "248289761001"}, "roles": ["web-admins"], "disabled": false,
                "email": "ada@example.com", "description": "Ada"}),
        ),
        (
            "ApiToken",
            "ci",
            json!({"user": "ada", "scopes": ["machines:read"], "expires_at": "2100-01-01T00:00:00Z",
                "disabled": false, "description": "of the build server"}),
        ),
        ("ApiToken", "robot", json!({"role": "web-admins"})),
        (
            "Sample",
            "sample",
            json!({"description": "x", "serial": "1", "count_wanted": 2, "enabled": true, "mac": "525400000003",
                "network": "10.0.0.0/8", "patience": "1m", "colour": "dark_green", "zone": "row-1",
                "password": "a password", "script": "one\ntwo", "detail": {"label": "x", "size": 1},
                "parts": {"a": {"weight": 1, "height": 2, "notes": ["x"], "key": "a key"}}, "steps": ["x"],
                "macs": ["525400000004"]}),
        ),
    ];
    // A build without the sample kind omits the examples of that kind.
    let described = |(kind, name, spec)| Some(Example { kind: Kind::find(kind)?, name, spec });
    specs.into_iter().filter_map(described).collect()
}

/// The first example of a kind.
pub(super) fn example(kind: &Kind) -> Option<Example> {
    examples().into_iter().find(|example| example.kind == kind)
}
