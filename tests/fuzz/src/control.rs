//! Data from regions to racks, files of racks, and input from Terraform and from people.

use basalt_api::expression::{Expression, MAX_LIST, MAX_TEXT, Subject};
use basalt_api::kinds::{Architecture, Disk, Inventory};
use basalt_api::{KINDS, canonical, diff, mask, references, secrets, validate};
use basalt_proto::rack_v1::{
    AddressRange, BootConcern, BootMachine, DhcpConcern, DhcpSubnet, Fact, LocalBoot, boot_machine,
};
use basalt_rack::concern::Concern;
use basalt_rack::link::join::JoinToken;
use basalt_rack::spool::record;
use basalt_rack::token::{BootToken, Session, report};
use prost::Message;
use serde_json::Value;
use std::sync::LazyLock;
use tfplugin::{Type, Val};

/// The body of a concern; the first byte selects the concern.
pub fn concern(data: &[u8]) {
    let Some((which, body)) = data.split_first() else { return };
    let concern = Concern::ALL[usize::from(*which) % Concern::ALL.len()];
    let _ = concern.read(body);
}

pub(crate) fn seeds_concern() -> Vec<Vec<u8>> {
    let subnet = DhcpSubnet {
        subnet_uid: "s1".into(),
        cidr: "10.77.0.0/24".into(),
        gateway: "10.77.0.1".into(),
        dns_servers: vec!["10.77.0.2".into()],
        dynamic: vec![AddressRange { start: "10.77.0.100".into(), end: "10.77.0.199".into() }],
        lease_seconds: 600,
        ..DhcpSubnet::default()
    };
    let dhcp = DhcpConcern { subnets: vec![subnet], serve_unknown: true, ..DhcpConcern::default() };
    let machine = BootMachine {
        machine_uid: "u".into(),
        name: "m1".into(),
        macs: vec!["52:54:00:00:00:01".into()],
        action: Some(boot_machine::Action::Local(LocalBoot {})),
        networks: Vec::new(),
        architecture: "amd64".into(),
    };
    let boot = BootConcern { machines: vec![machine], enlist: None };
    vec![[&[0][..], &dhcp.encode_to_vec()].concat(), [&[1][..], &boot.encode_to_vec()].concat()]
}

/// A segment of the spool, read from disk.
pub fn spool(data: &[u8]) {
    let mut rest = data;
    while let Some((fact, length)) = record::decode::<Fact>(rest) {
        let mut again = Vec::new();
        assert!(record::encode(&mut again, &fact), "what was read can be written");
        let (read, _) = record::decode::<Fact>(&again).expect("and read again");
        assert_eq!(read, fact);
        rest = &rest[length..];
    }
}

pub(crate) fn seeds_spool() -> Vec<Vec<u8>> {
    let mut segment = Vec::new();
    for seq in 1..4 {
        record::encode(&mut segment, &Fact { seq, mac: "52:54:00:00:00:01".into(), ..Fact::default() });
    }
    vec![segment]
}

/// Tokens from machines and people.
pub fn tokens(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let key = [1; 32];
    if let Ok(token) = JoinToken::parse(text) {
        assert!(JoinToken::parse(&token.render()).is_ok_and(|again| again == token));
    }
    if let Ok(token) = BootToken::verify(text, &key) {
        assert_eq!(BootToken::peek(text), Ok(token));
    }
    let _ = (BootToken::peek(text), Session::peek(text), Session::verify(text, &key));
    let _ = (report::peek(text), report::verify(text, &key, "uid"));
}

pub(crate) fn seeds_tokens() -> Vec<Vec<u8>> {
    let join =
        JoinToken { urls: vec!["10.0.0.1:5250".into()], ca_sha256: "a".repeat(64), secret: "s".into() };
    let mac = basalt_dhcp::Mac([0x52, 0x54, 0, 0, 0, 1]);
    let boot = BootToken { attempt: 1, mac, boot: 2, expires_unix_ms: 3 };
    let report = report::mint(&[1; 32], 1, "uid");
    vec![join.render().into_bytes(), boot.mint(&[1; 32]).into_bytes(), report.into_bytes()]
}

/// A type that contains every other type.
fn everything() -> Type {
    let text = || Box::new(Type::String);
    let fields = [
        ("flag", Type::Bool),
        ("number", Type::Number),
        ("text", Type::String),
        ("list", Type::List(Box::new(Type::Number))),
        ("set", Type::Set(text())),
        ("map", Type::Map(Box::new(Type::List(text())))),
        ("pair", Type::Tuple(vec![Type::String, Type::Bool])),
        ("any", Type::Dynamic),
    ];
    Type::Object(fields.into_iter().map(|(name, of)| (name.to_owned(), of)).collect())
}

/// Terraform's values, in msgpack and JSON.
pub fn terraform(data: &[u8]) {
    let of = everything();
    if let Ok(value) = Val::from_msgpack(data, &of) {
        let again = Val::from_msgpack(&value.to_msgpack(), &of).expect("our own bytes");
        assert_eq!(again, value);
    }
    if let Ok(value) = Val::from_json(data, &of) {
        let again = Val::from_msgpack(&value.to_msgpack(), &of).expect("our own bytes");
        assert_eq!(again, value);
    }
}

pub(crate) fn seeds_terraform() -> Vec<Vec<u8>> {
    let json = br#"{"flag":true,"number":12345678901234567890.5,"text":"x","list":[1,2,3],"set":["a","b"],"map":{"k":["v"]},
        "pair":["x",false],"any":{"value":{"a":[1,"b"]},"type":["object",{"a":["tuple",["number","string"]]}]}}"#;
    let value = Val::from_json(json, &everything()).expect("a value");
    vec![value.to_msgpack(), json.to_vec()]
}

/// Specs of objects; the first byte selects the kind.
pub fn objects(data: &[u8]) {
    let Some((which, json)) = data.split_first() else { return };
    let Ok(spec) = serde_json::from_slice::<Value>(json) else { return };
    let kind = KINDS[usize::from(*which) % KINDS.len()];
    if validate(kind, &spec).is_empty() {
        assert!(diff(kind, &spec, &spec).is_empty(), "nothing differs from itself");
        for field in kind.spec.fields {
            if let Some(value) = spec.get(field.name) {
                let spelled = canonical(&field.ty, value);
                assert!(serde_json::from_str::<Value>(&spelled).is_ok(), "{spelled}");
                let _ = mask(&field.ty, value, false);
            }
        }
        let _ = (references(kind, &spec), secrets(kind, &spec));
    }
}

pub(crate) fn seeds_objects() -> Vec<Vec<u8>> {
    let seed = |example: basalt_api::Example| {
        let which = KINDS.iter().position(|kind| kind.name == example.kind.name)?;
        Some([&[u8::try_from(which).ok()?][..], example.spec.to_string().as_bytes()].concat())
    };
    basalt_api::examples().into_iter().filter_map(seed).collect()
}

/// Expressions of tags, parsed and evaluated for an ordinary machine and for the largest possible one.
pub fn expression(data: &[u8]) {
    static MACHINES: LazyLock<[Inventory; 2]> = LazyLock::new(|| [large(4, 20), large(MAX_LIST, MAX_TEXT)]);
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(expression) = Expression::parse(text) else { return };
    for inventory in MACHINES.iter() {
        let machine = Subject {
            name: "web-1",
            architecture: Architecture::Amd64,
            zone: "row-1",
            pool: "default",
            inventory: Some(inventory),
        };
        let _ = expression.holds(&machine);
    }
}

/// A machine with this number of disks, and texts of this many bytes.
fn large(disks: usize, text: usize) -> Inventory {
    let long = || Some("x".repeat(text));
    let disk =
        |n| (format!("sd{n}"), Disk { model: long(), serial: long(), transport: long(), ..Disk::new(1) });
    let mut inventory = Inventory { disks: (0..disks).map(disk).collect(), ..Inventory::default() };
    inventory.dmi.serial = long();
    inventory
}

pub(crate) fn seeds_expression() -> Vec<Vec<u8>> {
    let texts = [
        "cpu.cores >= 32 && gpu.count > 0",
        "!(vendor == \"x\") || \"a\" in tags",
        "disks.exists(d, d.size > 5)",
        // Just below the limit: a slightly larger one is refused.
        "[dmi.serial].map(a, a + a + a + a).map(a, a + a + a + a).map(a, a + a + a + a).exists(a, a == 'x')",
        "disks.map(d, [d, d]).map(d, d + d).exists(d, d == [])",
        "disks.all(a, disks.all(b, a.name == b.name || a.serial != b.serial))",
        "disks.map(a, disks.filter(b, b.name == a.name)).size() > 1",
    ];
    let mut seeds: Vec<_> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    let chain = |link: &str, n: usize| format!("[name]{}.exists(a, a == 'x')", link.repeat(n)).into_bytes();
    seeds.extend([
        chain(".map(a, a + a + a + a)", 13),
        chain(".map(a, [a, a, a, a])", 13),
        chain(".map(a, a + a + a + a)", 6),
    ]);
    seeds
}
