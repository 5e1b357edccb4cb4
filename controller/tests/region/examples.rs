//! One object of every kind, and of kinds whose fields exclude each other more: together they say every field there is.

use crate::kinds::observe;
use crate::support::Lab;
use basalt_api::values::Naming;
use basalt_api::{KINDS, Kind, Presence, Schema, Semantic, Type};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// An object that is valid beside those before it.
#[derive(Clone, Debug)]
pub(crate) struct Example {
    pub(crate) kind: &'static Kind,
    pub(crate) name: &'static str,
    pub(crate) spec: Value,
}

impl Example {
    pub(crate) fn path(&self) -> String {
        self.path_of(self.name)
    }

    pub(crate) fn path_of(&self, name: &str) -> String {
        format!("/api/v1/{}/{name}", self.kind.plural)
    }

    /// Another name that an object of the kind could have, where clients can make a second one.
    pub(crate) fn other_name(&self, spec: &Value) -> String {
        match self.kind.naming {
            _ if !self.kind.declarable => self.name.to_owned(),
            Naming::Label => "another".to_owned(),
            Naming::DomainName => "another.example.com".to_owned(),
            Naming::Singleton => self.name.to_owned(),
            Naming::FabricVid => format!("{}.{}", spec["fabric"].as_str().unwrap_or_default(), spec["vid"]),
        }
    }

    pub(crate) async fn store(&self, lab: &Lab) {
        if self.kind.declarable {
            lab.api.declare(&self.path(), &self.spec.to_string()).await;
        } else {
            observe(lab, self.kind.name, self.name, &self.spec.to_string()).await;
        }
    }
}

/// Each after those it refers to.
pub(crate) fn examples() -> Vec<Example> {
    let sha256 = "0".repeat(64);
    let key = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZQ==\n-----END PGP PUBLIC KEY BLOCK-----\n";
    let specs = [
        ("Zone", "row-1", json!({"description": "x"})),
        ("Pool", "web", json!({"description": "x"})),
        ("Space", "inside", json!({"description": "x"})),
        ("Fabric", "default", json!({"description": "x", "class": "10g"})),
        ("Rack", "r1", json!({"description": "x", "zone": "row-1", "maintenance": false})),
        (
            "Vlan",
            "default.0",
            json!({"fabric": "default", "vid": 0, "description": "x", "mtu": 9000, "space": "inside",
                "dhcp": {"enabled": true, "lease_time": "10m", "racks": ["r1"]}}),
        ),
        (
            "Subnet",
            "lab",
            json!({"vlan": "default.0", "cidr": "10.77.0.0/24", "description": "x", "gateway": "10.77.0.1",
                "dns_servers": ["10.77.0.2"], "ntp_servers": ["ntp.example.com"], "managed": true,
                "boot": {"mode": "dhcp"}}),
        ),
        ("Subnet", "office", json!({"vlan": "default.0", "cidr": "10.78.0.0/24"})),
        (
            "IpRange",
            "pool",
            json!({"subnet": "lab", "start": "10.77.0.100", "end": "10.77.0.200", "purpose": "dynamic",
                "description": "x"}),
        ),
        (
            "IpAddress",
            "printer",
            json!({"subnet": "lab", "address": "10.77.0.30", "mac": "52:54:00:00:00:09", "hostname": "printer",
                "description": "x"}),
        ),
        (
            "StaticRoute",
            "to-office",
            json!({"source": "lab", "destination": "office", "gateway": "10.77.0.1", "metric": 5, "description": "x"}),
        ),
        (
            "StaticRoute",
            "to-world",
            json!({"source": "lab", "destination_cidr": "192.0.2.0/24", "gateway": "10.77.0.1"}),
        ),
        ("Domain", "lab.example.com", json!({"authoritative": true, "ttl": 60, "description": "x"})),
        ("Domain", "away.example.com", json!({"authoritative": false, "forward_to": ["192.0.2.53"]})),
        (
            "DnsRecord",
            "www",
            json!({"domain": "lab.example.com", "owner_name": "www", "type": "A", "data": "10.77.0.9", "ttl": 30,
                "description": "x"}),
        ),
        (
            "ImageSource",
            "upstream",
            json!({"url": "https://images.example.com/", "keyring": key, "schedule": "6h", "description": "x",
                "selections": {"stable": {"os": "debian", "release": "bookworm", "architectures": ["amd64"]}}}),
        ),
        (
            "Image",
            "debian",
            json!({"os": "debian", "release": "bookworm", "architecture": "amd64", "purpose": "deploy",
                "files": {"root_tarball": {"sha256": sha256, "size": 7}}, "kernel_options": "quiet",
                "source": "upstream", "description": "x"}),
        ),
        ("Tag", "gpu", json!({"expression": "gpu.count > 0", "kernel_options": "quiet", "comment": "x"})),
        (
            "Script",
            "disks",
            json!({"type": "testing", "content": "#!/bin/sh\n", "timeout": "5m", "parallel": "instance",
                "hardware": ["pci:8086:*"], "description": "x",
                "parameters": {"mode": {"type": "choice", "required": true, "default": "a", "min": 0, "max": 9,
                    "choices": ["a", "b"], "description": "x"}}}),
        ),
        (
            "PackageRepository",
            "extra",
            json!({"url": "http://deb.example.com/debian", "key": key, "suites": ["bookworm"],
                "components": ["main"], "architectures": ["amd64"], "description": "x"}),
        ),
        ("SshKey", "me", json!({"public_key": Semantic::SshPublicKey.example(), "description": "x"})),
        (
            "Machine",
            "m1",
            json!({"architecture": "amd64", "zone": "row-1", "pool": "web", "tags": ["gpu"],
                "domain": "lab.example.com", "boot_macs": ["52:54:00:00:00:01"],
                "bmc": {"driver": "ipmi", "address": "10.77.0.3", "port": 623, "username": "admin",
                    "password": "a password", "options": {"cipher_suite": 17, "privilege": "administrator"}},
                "boot_order": "disk_first", "kernel_options": "quiet",
                "commissioning": {"skip": false, "skip_bmc_config": true, "keep_power": false},
                "power": "auto", "mode": "managed", "locked": false, "description": "x"}),
        ),
        (
            "Device",
            "switch",
            json!({"macs": ["52:54:00:00:00:02"], "addresses": ["10.77.0.4"], "parent": "m1",
                "domain": "lab.example.com", "description": "x"}),
        ),
        ("Deployment", "one", json!({"image": "debian", "machine": "m1"})),
        (
            "Deployment",
            "any",
            json!({"image": "debian", "kernel_options": "quiet", "user_data": "#cloud-config\n",
                "selector": {"architecture": "amd64", "zone": "row-1", "not_zone": [], "pool": "web",
                    "tags": ["gpu"], "not_tags": ["slow"], "min_cores": 2, "min_memory": "4GiB", "min_disk": "10GiB"},
                "ssh_keys": [Semantic::SshPublicKey.example()], "hostname": "web-1",
                "network": {"interfaces": {"eth0": {"mac": "52:54:00:00:00:01", "addressing": "static",
                        "subnet": "lab", "address": "10.77.0.20", "mtu": 1500}},
                    "dns_servers": ["10.77.0.2"], "search": ["lab.example.com"]},
                "storage": {"layout": "flat", "disk": "sda", "root_size": "8GiB"}, "wipe": "if_ours",
                "readiness": {"check": "tcp", "port": 22, "timeout": "15m"}, "redeploy": "refuse",
                "release": {"erase": "quick", "on_failure": "hold"}, "deletion_protection": false,
                "description": "x"}),
        ),
        ("Deployment", "elsewhere", json!({"image": "debian", "selector": {"not_zone": ["row-1"]}})),
        ("Discovery", "printer", json!({"description": "x"})),
        (
            "Webhook",
            "chat",
            json!({"url": "https://chat.example.com/hook", "events": ["created"], "secret": "a secret",
                "description": "x"}),
        ),
        (
            "Settings",
            "default",
            json!({"default_image": "debian", "kernel_options": "quiet", "loader": "ipxe",
                "upstream_dns": ["192.0.2.53"], "ntp_servers": ["ntp.example.com"], "erase": "quick",
                "proxy": {"enabled": true, "upstream": "http://proxy.example.com:3128"},
                "deadlines": {"readiness": "20m"},
                "fleet_budget": {"max_unavailable": 10, "power_on_per_minute": 5}}),
        ),
        ("Role", "web-admins", json!({"base": "operator", "pools": ["web"], "description": "x"})),
        (
            "User",
            "ada",
            json!({"password": "a long password", "roles": ["web-admins"], "disabled": false, "description": "x"}),
        ),
        (
            "ApiToken",
            "ci",
            json!({"user": "ada", "scopes": ["machines:read"], "expires_at": "2100-01-01T00:00:00Z",
                "disabled": false, "description": "x"}),
        ),
        ("ApiToken", "robot", json!({"role": "web-admins"})),
        (
            "Sample",
            "sample",
            json!({"description": "x", "serial": "1", "count_wanted": 2, "enabled": true, "mac": "525400000003",
                "network": "10.0.0.0/8", "patience": "1m", "colour": "dark_green", "zone": "row-1",
                "password": "a password", "script": "one\ntwo", "detail": {"label": "x", "size": 1},
                "parts": {"a": {"weight": 1, "notes": ["x"], "key": "a key"}}, "steps": ["x"],
                "macs": ["525400000004"]}),
        ),
    ];
    let example = |(kind, name, spec): (&str, &'static str, Value)| {
        let kind = Kind::find(kind).unwrap_or_else(|| panic!("no kind {kind}"));
        Example { kind, name, spec }
    };
    specs.map(example).into()
}

/// Every place of a spec that is there, with its type.
pub(crate) fn places(schema: &'static Schema, spec: &Value) -> Vec<(String, Type)> {
    let mut found = Vec::new();
    below(&Type::Object(schema), spec, "", &mut found);
    found
}

fn below(ty: &Type, value: &Value, at: &str, found: &mut Vec<(String, Type)>) {
    found.push((at.to_owned(), *ty));
    match (ty, value) {
        (Type::Object(schema), Value::Object(map)) => {
            for field in schema.fields {
                if let Some(value) = map.get(field.name) {
                    below(&field.ty, value, &format!("{at}/{}", field.name), found);
                }
            }
        }
        (Type::Map { value: item, .. }, Value::Object(map)) => {
            map.iter().for_each(|(key, value)| below(item, value, &format!("{at}/{key}"), found));
        }
        (Type::List(item) | Type::Set(item), Value::Array(items)) => {
            for (index, value) in items.iter().enumerate() {
                below(item, value, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// Every field that specs of the kind can have, by pointer; `*` for whatever varies.
fn fields(at: &str, ty: &'static Type, found: &mut BTreeSet<String>) {
    match ty {
        Type::Object(schema) => {
            for field in schema.fields {
                let here = format!("{at}/{}", field.name);
                found.insert(here.clone());
                fields(&here, &field.ty, found);
            }
        }
        Type::Map { value: item, .. } | Type::List(item) | Type::Set(item) => {
            let here = format!("{at}/*");
            found.insert(here.clone());
            fields(&here, item, found);
        }
        _ => {}
    }
}

/// The same of what a spec says.
fn said(at: &str, ty: &'static Type, value: &Value, found: &mut BTreeSet<String>) {
    match (ty, value) {
        (Type::Object(schema), Value::Object(map)) => {
            for field in schema.fields.iter().filter(|field| map.contains_key(field.name)) {
                let here = format!("{at}/{}", field.name);
                found.insert(here.clone());
                said(&here, &field.ty, &map[field.name], found);
            }
        }
        (Type::Map { value: item, .. }, Value::Object(map)) => {
            for value in map.values() {
                found.insert(format!("{at}/*"));
                said(&format!("{at}/*"), item, value, found);
            }
        }
        (Type::List(item) | Type::Set(item), Value::Array(items)) => {
            for value in items {
                found.insert(format!("{at}/*"));
                said(&format!("{at}/*"), item, value, found);
            }
        }
        _ => {}
    }
}

#[test]
fn the_examples_say_every_field_of_every_kind() {
    let examples = examples();
    for kind in KINDS {
        let (mut all, mut shown) = (BTreeSet::new(), BTreeSet::new());
        for field in kind.spec.fields {
            all.insert(format!("/{}", field.name));
            fields(&format!("/{}", field.name), &field.ty, &mut all);
        }
        for example in examples.iter().filter(|example| example.kind == *kind) {
            for field in kind.spec.fields {
                if let Some(value) = example.spec.get(field.name) {
                    shown.insert(format!("/{}", field.name));
                    said(&format!("/{}", field.name), &field.ty, value, &mut shown);
                }
                assert!(field.presence != Presence::Required || example.spec.get(field.name).is_some());
            }
        }
        let missing: Vec<_> = all.difference(&shown).collect();
        assert!(missing.is_empty(), "no example of {} says {missing:?}: add it", kind.name);
    }
}
