//! Default columns by kind: a table of headings and paths in the object.
//!
//! If a path in `spec` is not declared, the default in `status.effective` is used. The name is the first column; readiness and the present
//! work or wait are the last ones.

use std::collections::{BTreeMap, BTreeSet};

use basalt_api::Kind;
use basalt_api::kinds::Condition;
use serde_json::Value;

/// A column of a table.
struct Column {
    head: &'static str,
    cell: Cell,
    /// Only shown in wide tables.
    wide: bool,
}

/// The source of a cell's text.
#[derive(Clone, Copy)]
enum Cell {
    /// The value there: all items of a list, all values of an object.
    At(&'static str),
    /// The same, and `default` if there is none.
    Or(&'static str),
    /// The keys of the object there.
    Keys(&'static str),
    /// An amount of bytes.
    Bytes(&'static str),
    /// The sizes of files.
    Sizes(&'static str),
    /// Services by their first word; those that do not run by their whole name, with their state.
    Services(&'static str),
    /// Leases by subnet, as `lab 12/100`.
    Leases(&'static str),
    /// The image of the deployment there.
    Image(&'static str),
}

use Cell::{At, Bytes, Image, Keys, Leases, Or, Services, Sizes};

const fn col(head: &'static str, cell: Cell) -> Column {
    Column { head, cell, wide: false }
}

const fn wide(head: &'static str, cell: Cell) -> Column {
    Column { head, cell, wide: true }
}

/// The description, which most kinds have.
const DESCRIPTION: Column = col("DESCRIPTION", At("spec.description"));

/// The columns of each kind.
const COLUMNS: &[(&str, &[Column])] = &[
    ("Zone", &[col("MACHINES", At("status.machines")), DESCRIPTION]),
    ("Pool", &[col("MACHINES", At("status.machines")), col("FREE", At("status.ready")), DESCRIPTION]),
    ("Space", &[col("VLANS", At("status.vlans")), DESCRIPTION]),
    ("Fabric", &[col("CLASS", At("spec.class")), DESCRIPTION]),
    (
        "Vlan",
        &[
            col("SPACE", At("spec.space")),
            col("MTU", At("spec.mtu")),
            col("DHCP", At("spec.dhcp.enabled")),
            col("RACKS", At("status.serving")),
            wide("LEASE TIME", At("spec.dhcp.lease_time")),
            wide("LOADER", At("spec.loader")),
            wide("DESCRIPTION", At("spec.description")),
        ],
    ),
    (
        "Subnet",
        &[
            col("CIDR", At("spec.cidr")),
            col("VLAN", At("spec.vlan")),
            col("GATEWAY", At("spec.gateway")),
            col("USED", At("status.used")),
            col("FREE", At("status.free")),
            wide("DYNAMIC", At("status.by_purpose.dynamic")),
            wide("LEASES", At("status.by_purpose.leases")),
            wide("RESERVED", At("status.by_purpose.reserved")),
            wide("DESCRIPTION", At("spec.description")),
        ],
    ),
    (
        "IpRange",
        &[
            col("SUBNET", At("spec.subnet")),
            col("START", At("spec.start")),
            col("END", At("spec.end")),
            col("PURPOSE", At("spec.purpose")),
            col("USED", At("status.used")),
            wide("DESCRIPTION", At("spec.description")),
        ],
    ),
    (
        "IpAddress",
        &[
            col("ADDRESS", At("status.address")),
            col("SUBNET", At("spec.subnet")),
            col("MAC", At("spec.mac")),
            col("HOSTNAME", At("spec.hostname")),
            wide("DUID", At("spec.duid")),
            wide("DESCRIPTION", At("spec.description")),
        ],
    ),
    (
        "StaticRoute",
        &[
            col("SOURCE", At("spec.source")),
            col("DESTINATION", At("spec.destination")),
            col("CIDR", At("spec.destination_cidr")),
            col("GATEWAY", At("spec.gateway")),
            col("METRIC", At("spec.metric")),
        ],
    ),
    ("Domain", &[col("AUTHORITATIVE", At("spec.authoritative")), col("TTL", At("spec.ttl")), DESCRIPTION]),
    (
        "DnsRecord",
        &[
            col("DOMAIN", At("spec.domain")),
            col("OWNER", At("spec.owner_name")),
            col("TYPE", At("spec.type")),
            col("DATA", At("spec.data")),
        ],
    ),
    (
        "Device",
        &[
            col("ADDRESSES", At("spec.addresses")),
            col("MACS", At("spec.macs")),
            col("ZONE", At("spec.zone")),
            col("PARENT", At("spec.parent")),
            wide("DESCRIPTION", At("spec.description")),
        ],
    ),
    (
        "Discovery",
        &[
            col("SORT", At("status.sort")),
            col("MAC", At("status.mac")),
            col("ADDRESSES", At("status.addresses")),
            col("VLAN", At("status.vlan")),
            wide("RACKS", At("status.racks")),
            wide("LAST SEEN", At("status.last_seen_at")),
        ],
    ),
    (
        "Rack",
        &[
            col("CONNECTED", At("status.connected")),
            col("VERSION", At("status.version")),
            col("ADDRESSES", At("status.addresses")),
            col("SERVICES", Services("status.services")),
            wide("ZONE", At("spec.zone")),
            wide("VLANS", At("status.vlans")),
            wide("LEASES", Leases("status.leases")),
            wide("IMAGES", Keys("status.cache.images")),
            wide("CACHE", Bytes("status.cache.bytes")),
            wide("MAINTENANCE", At("spec.maintenance")),
            wide("LAST SEEN", At("status.last_seen")),
        ],
    ),
    (
        "Machine",
        &[
            col("PHASE", At("status.phase")),
            col("POWER", At("status.power.state")),
            col("ADDRESS", At("status.addresses")),
            col("ZONE", Or("spec.zone")),
            col("POOL", Or("spec.pool")),
            col("CORES", At("status.inventory.cpu.cores")),
            col("MEMORY", Bytes("status.inventory.memory_bytes")),
            col("IMAGE", Image("status.deployment")),
            wide("DEPLOYMENT", At("status.deployment")),
            wide("ARCHITECTURE", At("spec.architecture")),
            wide("MACS", At("spec.boot_macs")),
            wide("BMC", At("spec.bmc.address")),
            wide("TAGS", At("status.tags")),
            wide("DISKS", Keys("status.inventory.disks")),
            wide("SERIAL", At("status.inventory.dmi.serial")),
        ],
    ),
    (
        "Deployment",
        &[
            col("PHASE", At("status.phase")),
            col("MACHINE", At("status.machine")),
            col("ADDRESS", At("status.address")),
            col("IMAGE", At("spec.image")),
            wide("HOSTNAME", At("status.hostname")),
            wide("STAGE", At("status.stage")),
            wide("DISK", At("status.disk")),
            wide("READY SINCE", At("status.timings.ready_at")),
        ],
    ),
    (
        "Image",
        &[
            col("OS", At("spec.os")),
            col("RELEASE", At("spec.release")),
            col("ARCHITECTURE", At("spec.architecture")),
            col("PURPOSE", At("spec.purpose")),
            col("SIZE", Sizes("spec.files")),
            wide("FILES", Keys("spec.files")),
            wide("MISSING", At("status.missing")),
            wide("DIGEST", At("status.digest")),
        ],
    ),
    (
        "ImageSource",
        &[
            col("URL", At("spec.url")),
            col("SELECTIONS", Keys("spec.selections")),
            col("SCHEDULE", At("spec.schedule")),
        ],
    ),
    (
        "PackageRepository",
        &[
            col("URL", At("spec.url")),
            col("SUITES", At("spec.suites")),
            col("COMPONENTS", At("spec.components")),
        ],
    ),
    (
        "Script",
        &[
            col("TYPE", At("spec.type")),
            col("TIMEOUT", At("spec.timeout")),
            col("PARALLEL", At("spec.parallel")),
            DESCRIPTION,
        ],
    ),
    (
        "Tag",
        &[
            col("MACHINES", At("status.machines")),
            col("AUTOMATIC", At("status.automatic")),
            col("EXPRESSION", At("spec.expression")),
            wide("COMMENT", At("spec.comment")),
        ],
    ),
    ("SshKey", &[col("LAST USED", At("status.last_used_at")), DESCRIPTION]),
    ("Role", &[col("BASE", At("spec.base")), col("POOLS", At("spec.pools")), DESCRIPTION]),
    (
        "User",
        &[
            col("ROLES", At("spec.roles")),
            col("DISABLED", At("spec.disabled")),
            col("EMAIL", At("spec.email")),
        ],
    ),
    (
        "ApiToken",
        &[
            col("USER", At("spec.user")),
            col("ROLE", At("spec.role")),
            col("ISSUED", At("status.issued_at")),
            col("LAST USED", At("status.last_used")),
            col("EXPIRES", At("spec.expires_at")),
            wide("SCOPES", At("spec.scopes")),
            wide("DISABLED", At("spec.disabled")),
        ],
    ),
    (
        "Webhook",
        &[
            col("URL", At("spec.url")),
            col("EVENTS", At("spec.events")),
            col("DELIVERED", At("status.delivered")),
            col("WAITING", At("status.waiting")),
            col("FAILED", At("status.failed")),
            wide("LAST ERROR", At("status.last_error")),
        ],
    ),
];

/// Headings and cells. The message of an object is shown in wide tables, and if the object is not ready.
pub(super) fn rows(
    kind: &Kind,
    objects: &[Value],
    images: &BTreeMap<String, String>,
    is_wide: bool,
) -> Vec<Vec<String>> {
    let columns = COLUMNS.iter().find(|(of, _)| *of == kind.name).map_or(&[][..], |(_, columns)| *columns);
    let columns: Vec<&Column> = columns.iter().filter(|column| is_wide || !column.wide).collect();
    let heads = columns.iter().map(|column| column.head);
    let heads = ["NAME"].into_iter().chain(heads).chain(["READY", "WHAT IT DOES OR WAITS FOR"]);
    let mut rows = vec![heads.map(str::to_owned).collect::<Vec<String>>()];
    for object in objects {
        let mut row = vec![at(object, "metadata.name")];
        row.extend(columns.iter().map(|column| cell(object, column.cell, images)));
        let (ready, message) = readiness(object);
        row.push(ready.to_owned());
        row.push(if is_wide || ready != "yes" { message } else { String::new() });
        rows.push(row);
    }
    rows
}

/// The Ready condition in one word, and its message.
fn readiness(object: &Value) -> (&'static str, String) {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions.find(|it| it.get("type").and_then(Value::as_str) == Some(Condition::READY));
    let word = match ready.and_then(|ready| ready.get("status")?.as_str()) {
        Some("true") => "yes",
        Some("false") => "no",
        _ => "?",
    };
    let message = ready.and_then(|ready| ready.get("message")?.as_str()).unwrap_or_default();
    (word, message.to_owned())
}

fn cell(object: &Value, cell: Cell, images: &BTreeMap<String, String>) -> String {
    match cell {
        At(path) => at(object, path),
        Or(path) => find(object, path).map_or_else(|| "default".to_owned(), text),
        Keys(path) => listed(members(object, path).map(|(key, _)| key.to_owned())),
        Bytes(path) => find(object, path).and_then(Value::as_u64).map_or_else(nothing, size),
        Sizes(path) => {
            let sizes = members(object, path).filter_map(|(_, file)| file.get("size")?.as_u64());
            let sum = sizes.fold(0_u64, u64::saturating_add);
            if sum == 0 { nothing() } else { size(sum) }
        }
        Services(path) => {
            // A rack has several services of one sort, like `tftp 10.77.0.2:69`.
            let sort = |name: &str| name.split(' ').next().unwrap_or_default().to_owned();
            let is_running =
                |service: &Value| service.get("state").and_then(Value::as_str) == Some("running");
            let running: BTreeSet<String> = members(object, path)
                .filter(|(_, service)| is_running(service))
                .map(|(name, _)| sort(name))
                .collect();
            let others = members(object, path).filter(|(_, service)| !is_running(service));
            let others = others.map(|(name, service)| format!("{name} ({})", at(service, "state")));
            listed(running.into_iter().chain(others))
        }
        Leases(path) => listed(members(object, path).map(|(subnet, leases)| {
            format!("{subnet} {}/{}", at(leases, "running"), at(leases, "addresses"))
        })),
        Image(path) => {
            let deployment = find(object, path).and_then(Value::as_str);
            deployment.and_then(|name| images.get(name).cloned()).unwrap_or_else(nothing)
        }
    }
}

fn nothing() -> String {
    "-".to_owned()
}

/// The text at a path of the object.
pub(super) fn at(object: &Value, path: &str) -> String {
    find(object, path).map_or_else(nothing, text)
}

/// The value at a path, or its default.
fn find<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let found = lookup(object, path);
    found.or_else(|| lookup(object.get("status")?.get("effective")?, path.strip_prefix("spec.")?))
}

fn lookup<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let found = path.split('.').try_fold(value, |value, word| match value {
        Value::Array(items) => items.get(word.parse::<usize>().ok()?),
        other => other.get(word),
    });
    found.filter(|found| !found.is_null())
}

fn members<'a>(object: &'a Value, path: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let members = find(object, path).and_then(Value::as_object);
    members.into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

/// A value as one cell: a text as it is, a list or object of scalars as its values, anything else as JSON.
pub(super) fn text(value: &Value) -> String {
    let is_scalar = |value: &Value| !value.is_array() && !value.is_object();
    match value {
        Value::Null => nothing(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(is_scalar) => listed(items.iter().map(text)),
        Value::Object(members) if members.values().all(is_scalar) => listed(members.values().map(text)),
        other => other.to_string(),
    }
}

fn listed(words: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = words.collect();
    if words.is_empty() { nothing() } else { words.join(",") }
}

/// Bytes in the largest unit of which there is at least one, rounded down to a tenth.
fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        None => format!("{bytes}B"),
        Some((name, unit)) => {
            let (whole, tenth) = (bytes / unit, bytes % unit * 10 / unit);
            if tenth == 0 { format!("{whole}{name}") } else { format!("{whole}.{tenth}{name}") }
        }
    }
}

/// True if objects of the kind can have a value at this path. Only the first two words are checked against the description.
pub(super) fn is_member(kind: &Kind, path: &str) -> bool {
    let mut words = path.split('.');
    match (words.next(), words.next()) {
        (Some("kind"), None) => true,
        (Some("metadata"), _) => true,
        (Some("spec"), field) => field.is_none_or(|field| kind.spec.field(field).is_some()),
        (Some("status"), field) => field.is_none_or(|field| kind.status.field(field).is_some()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_api::{KINDS, Schema, Type};
    use serde_json::json;

    fn machine() -> Value {
        json!({
            "kind": "Machine", "metadata": {"name": "web1"},
            "spec": {"zone": "row-1", "boot_macs": ["52:54:00:00:00:01"]},
            "status": {
                "phase": "Deployed", "deployment": "web",
                "power": {"state": "on"}, "addresses": {"enp1s0": "10.77.0.9", "enp2s0": "10.78.0.9"},
                "inventory": {"cpu": {"cores": 8}, "memory_bytes": 34_359_738_368_u64},
                "conditions": [{"type": "Ready", "status": "true", "message": "it runs"}],
            },
        })
    }

    fn shown(kind: &str, object: Value, is_wide: bool) -> Vec<String> {
        let images = BTreeMap::from([("web".to_owned(), "debian-12".to_owned())]);
        let kind = Kind::find(kind).unwrap();
        let rows = rows(kind, &[object], &images, is_wide);
        rows[0].iter().zip(&rows[1]).map(|(head, cell)| format!("{head} {cell}").trim().to_owned()).collect()
    }

    #[test]
    fn a_machine_says_where_it_is_what_it_has_and_what_it_runs() {
        let wanted = [
            "NAME web1",
            "PHASE Deployed",
            "POWER on",
            "ADDRESS 10.77.0.9,10.78.0.9",
            "ZONE row-1",
            "POOL default",
            "CORES 8",
            "MEMORY 32GiB",
            "IMAGE debian-12",
            "READY yes",
            "WHAT IT DOES OR WAITS FOR",
        ];
        assert_eq!(shown("Machine", machine(), false), wanted);
        let wide = shown("Machine", machine(), true);
        for cell in
            ["DEPLOYMENT web", "MACS 52:54:00:00:00:01", "TAGS -", "WHAT IT DOES OR WAITS FOR it runs"]
        {
            assert!(wide.contains(&cell.to_owned()), "{wide:?}");
        }
        let mut waiting = machine();
        waiting["status"]["conditions"][0]["status"] = json!("false");
        let shown = shown("Machine", waiting, false);
        assert_eq!(shown[9..], ["READY no", "WHAT IT DOES OR WAITS FOR it runs"]);
    }

    #[test]
    fn a_rack_says_which_services_do_not_run_and_an_image_how_large_it_is() {
        let cache = json!({"bytes": 3_145_728, "images": {"debian-12": {"held": 1, "files": 1}}});
        let leases = json!({"lab": {"running": 12, "addresses": 100}});
        let rack = json!({"metadata": {"name": "r1"}, "status": {"cache": cache, "leases": leases}});
        let all = shown("Rack", rack, true).join("; ");
        assert!(all.contains("LEASES lab 12/100; IMAGES debian-12; CACHE 3MiB"), "{all}");
        let services = json!({
            "dhcp eth0": {"state": "running"}, "dhcp eth1": {"state": "running"}, "tftp 10.77.0.2:69": {"state": "stopped"},
        });
        let rack = json!({"metadata": {"name": "r1"}, "status": {"connected": true, "version": "0.3.0", "services": services}});
        let shown = |kind, object: Value| shown(kind, object, false).join("; ");
        assert!(shown("Rack", rack).contains(
            "CONNECTED true; VERSION 0.3.0; ADDRESSES -; SERVICES dhcp,tftp 10.77.0.2:69 (stopped)"
        ));
        let files = json!({"kernel": {"size": 1_048_576}, "initrd": {"size": 524_288}});
        let image =
            json!({"metadata": {"name": "e"}, "spec": {"os": "debian", "release": "12", "files": files}});
        assert!(
            shown("Image", image).contains("OS debian; RELEASE 12; ARCHITECTURE -; PURPOSE -; SIZE 1.5MiB")
        );
    }

    fn leads(schema: &Schema, path: &str) -> bool {
        let (word, rest) = path.split_once('.').map_or((path, None), |(word, rest)| (word, Some(rest)));
        match (schema.field(word).map(|field| field.ty), rest) {
            (Some(_), None) => true,
            (Some(Type::Object(inner)), Some(rest)) => leads(inner, rest),
            _ => false,
        }
    }

    #[test]
    fn every_kind_has_columns_and_every_column_shows_a_field() {
        for kind in KINDS.iter().filter(|kind| !["Settings", "Sample"].contains(&kind.name)) {
            let (_, columns) =
                COLUMNS.iter().find(|(of, _)| *of == kind.name).unwrap_or_else(|| panic!("{}", kind.name));
            for Column { head, cell, .. } in *columns {
                let (At(path) | Or(path) | Keys(path) | Bytes(path) | Sizes(path) | Services(path)
                | Leases(path) | Image(path)) = cell;
                let known = match path.split_once('.') {
                    Some(("spec", path)) => leads(kind.spec, path),
                    Some(("status", path)) => leads(kind.status, path),
                    _ => false,
                };
                assert!(known, "{}: {head} is to show {path}", kind.name);
            }
        }
        assert!(COLUMNS.iter().all(|(of, _)| Kind::find(of).is_some_and(|kind| kind.name == *of)));
    }
}
