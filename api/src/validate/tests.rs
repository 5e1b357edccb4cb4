//! Refusals with their pointers and texts, and properties that hold for every kind.

use super::generate::{hostile, places, spec};
use super::*;
use crate::kinds::*;
use crate::{KINDS, Kind, KindOf, Semantic, diff, equal, references, secrets};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;

fn errors(kind: &str, spec: &Value) -> Vec<String> {
    let kind = Kind::find(kind).expect("a kind");
    validate(kind, spec).into_iter().map(|e| format!("{}: {e}", e.pointer)).collect()
}

/// The whole answer to each typical mistake. A message names the value; a hint has a valid one.
#[test]
fn typical_mistakes_are_answered_with_what_would_be_right() {
    let cases = [
        ("Subnet", json!({"vlan": "default.0", "cidr": "10.77.0.0/24", "gatway": "10.77.0.1"})),
        ("User", json!({"email": "ada at example.com"})),
        ("Subnet", json!({"vlan": "default", "cidr": "10.77.0.5/24", "gateway": "10.77.0.1/24"})),
        ("Subnet", json!({"vlan": "default.0", "cidr": "10.77.0.0/24", "gateway": "10.78.0.1"})),
        ("Subnet", json!({"vlan": "default.0", "cidr": "10.77.0.0/24", "gateway": "10.77.0.255"})),
        ("Subnet", json!({"cidr": null, "dns_servers": "10.0.0.1", "managed": "yes"})),
        ("IpRange", json!({"subnet": "lab", "start": "10.77.0.200", "end": "10.77.0.100"})),
        (
            "IpRange",
            json!({"subnet": "lab", "start": "10.77.0.1", "end": "2001:db8::1", "purpose": "dynamc"}),
        ),
        ("IpRange", json!({"subnet": "lab", "start": "10.77.0.1", "end": "2001:db8::1"})),
        ("IpAddress", json!({"subnet": "lab", "mac": "52:54:00:00:00:09", "duid": "00:04:01"})),
        ("IpAddress", json!({"subnet": "lab", "address": "10.77.0.9", "duid": "00-04-AB"})),
        ("IpAddress", json!({"subnet": "lab6", "duid": "0:3:0:1:52:54:0:0:0:1"})),
        ("IpAddress", json!({"subnet": "lab6", "duid": "00:04"})),
        ("Vlan", json!({"fabric": "Default", "vid": 4095, "mtu": 1500.5, "dhcp": {"lease_time": "10"}})),
        ("Machine", json!({"boot_macs": ["52:54:00:00:00:01", "52-54-00-00-00-01", "52:54:00:00:01"]})),
        ("Machine", json!({"boot_macs": ["ff:ff:ff:ff:ff:ff"], "bmc": {"driver": "ipmi", "password": 7}})),
        ("Machine", json!({"boot_macs": ["ff:ff:ff:ff:ff:ff"], "bmc": {"driver": "ipmi"}})),
        ("Machine", json!({"mode": "maintenance", "architecture": "x86_64"})),
        ("Deployment", json!({"image": "debian-12"})),
        ("Deployment", json!({"image": "debian-12", "selector": {"min_x86_64_level": 5}})),
        ("Deployment", json!({"image": "debian-12", "selector": {"cpu_flags": ["avx2", "AVX-512 F"]}})),
        (
            "Deployment",
            json!({"image": "debian-12", "machine": "a", "selector": {}, "readiness": {"check": "tcp"}, "ephemeral": true}),
        ),
        (
            "Image",
            json!({"os": "debian", "release": "bookworm", "architecture": "amd64", "files": {"kernal": {"sha256": "00"}}}),
        ),
        (
            "Image",
            json!({"os": "debian", "release": "bookworm", "architecture": "amd64", "purpose": "ephemeral",
            "files": {"kernel": {"sha256": "0".repeat(64)}, "initrd": {"sha256": "0".repeat(64)}}}),
        ),
        (
            "Machine",
            json!({"boot_macs": ["52:54:00:00:00:01"], "bmc": {"driver": "ipmi", "address": "10.77.0.101",
            "options": {"cipher_suite": 1}}}),
        ),
        (
            "Machine",
            json!({"boot_macs": ["52:54:00:00:00:01"], "bmc": {"driver": "redfish", "username": "a:b",
            "options": {"cipher_suite": 3, "system": "/redfish/v1/Systems/1"}, "tls": {"verify": false, "ca": "x"}}}),
        ),
        (
            "Machine",
            json!({"boot_macs": ["52:54:00:00:00:01"], "bmc": {"driver": "ipmi", "address": "10.77.0.101",
            "options": {"system": "1"}}}),
        ),
        (
            "Machine",
            json!({"boot_macs": ["52:54:00:00:00:01"], "bmc": {"driver": "ipmi", "address": "10.77.0.101",
            "username": "maintenance-robot", "password": "correct horse battery staple", "tls": {"verify": true}}}),
        ),
        (
            "Machine",
            json!({"boot_macs": ["52:54:00:00:00:01"], "bmc": {"driver": "ipmi", "address": "10.77.0.101", "username": "admin",
            "k_g": "longer than twenty bytes"}}),
        ),
        (
            "Machine",
            json!({"boot_macs": ["52:54:00:00:00:01"], "bmc": {"driver": "redfish", "address": "10.77.0.101", "username": "admin",
            "k_g": {"set": true, "revision": 1}}}),
        ),
        (
            "Machine",
            json!({"boot_macs": ["52:54:00:00:00:01"], "bmc": {"driver": "ipmi", "address": "10.77.0.101",
            "username": "admin", "options": {"privilege": "admin"}}}),
        ),
        (
            "Machine",
            json!({"boot_macs": ["52:54:00:00:00:01"], "bmc": {"driver": "redfish", "address": "10.77.0.101",
            "username": "admin", "options": {"privilege": "operator"}}}),
        ),
        (
            "Machine",
            json!({"boot_macs": ["52:54:00:00:00:01"], "bmc": {"driver": "webhook", "username": "", "options": {"system": "1"}}}),
        ),
        (
            "Machine",
            json!({"boot_macs": ["52:54:00:00:00:01"], "bmc": {"driver": "webhook", "address": "pdu", "password": "two words", "tls": {},
            "webhook": {"on": "outlets/3/on", "off": "/outlets/3#off", "status": "/outlets/\u{e4}", "cycle": "/a b", "soft_off": "",
                "says_on": "(on", "says_off": "(off)?", "plain": true}}}),
        ),
        (
            "Machine",
            json!({"boot_macs": ["52:54:00:00:00:01"], "bmc": {"driver": "webhook", "address": "pdu", "webhook": {"on": "/on"}}}),
        ),
        (
            "Machine",
            json!({"boot_macs": ["52:54:00:00:00:01"], "bmc": {"driver": "manual", "webhook": {"on": "/on", "off": "/off", "status": "/"}}}),
        ),
        ("Settings", json!({"deadlines": {"nonsense": "5m", "claim": "0s"}})),
    ];
    let answers: Vec<String> = cases
        .iter()
        .map(|(kind, spec)| format!("{kind} {spec}\n  {}\n", errors(kind, spec).join("\n  ")))
        .collect();
    insta::assert_snapshot!("typical_mistakes", answers.concat());
}

#[test]
fn a_repository_has_only_the_fields_of_its_package_manager() {
    let key = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZQ==\n-----END PGP PUBLIC KEY BLOCK-----";
    let url = "http://rpm.example.com/$releasever";
    for good in [
        json!({"type": "apt", "url": url, "suites": ["lab"], "components": ["main"], "enabled": false}),
        json!({"type": "dnf", "url": url, "enabled": false}),
        json!({"type": "dnf", "url": url, "signed": "packages"}),
        json!({"type": "dnf", "url": url, "signed": "metadata", "key": key}),
        json!({"type": "dnf", "url": url, "signed": "both", "key": key}),
    ] {
        assert_eq!(errors("PackageRepository", &good), [""; 0], "{good}");
    }
    for (bad, wanted) in [
        (json!({"url": url, "signed": "packages"}), "/signed: signed is for dnf"),
        (
            json!({"type": "dnf", "url": url, "suites": ["lab"]}),
            "/suites: a repository for dnf has no suites",
        ),
        (
            json!({"type": "dnf", "url": url, "components": ["main"]}),
            "/components: a repository for dnf has no components",
        ),
        (json!({"type": "dnf", "url": "http://a.example.com/x,y"}), "/url: for dnf, a comma"),
        (json!({"type": "dnf", "url": url, "signed": "metadata"}), "/key: dnf checks metadata"),
        (json!({"type": "dnf", "url": url, "signed": "both"}), "/key: dnf checks metadata"),
    ] {
        let errors = errors("PackageRepository", &bad);
        assert!(matches!(&errors[..], [one] if one.starts_with(wanted)), "{bad}: {errors:?}");
    }
}

#[test]
fn the_description_of_deadlines_names_all_of_them() {
    let fields = Kind::find("Settings").expect("a kind").spec.fields;
    let doc = fields.iter().find(|field| field.name == "deadlines").expect("the field").doc;
    for (name, _) in DEADLINES {
        assert!(doc.contains(&format!("`{name}`")), "{name}: {doc}");
        assert_eq!(errors("Settings", &json!({"deadlines": {name: "5m"}})), Vec::<String>::new());
    }
}

#[test]
fn a_minimal_spec_of_every_kind_is_valid() {
    let minimal = [
        ("Zone", json!({})),
        ("Pool", json!({"description": null})),
        ("Fabric", json!({})),
        ("Vlan", json!({"fabric": "default", "vid": 0})),
        ("Subnet", json!({"vlan": "default.0", "cidr": "2001:db8::/64"})),
        ("IpRange", json!({"subnet": "lab", "start": "10.0.0.1", "end": "10.0.0.1"})),
        ("IpAddress", json!({"subnet": "lab"})),
        (
            "Image",
            json!({"os": "debian", "release": "12", "architecture": "amd64",
            "files": {"root_tarball": {"sha256": "A".repeat(64)}}}),
        ),
        ("Machine", json!({"boot_macs": ["525400000001"]})),
        ("Deployment", json!({"image": "debian", "selector": {}})),
        ("Rack", json!({})),
        ("Space", json!({})),
        ("ImageSource", json!({"url": "https://images.example.com"})),
        ("Tag", json!({})),
        ("Script", json!({"type": "testing", "content": "#!/bin/sh\n"})),
        ("PackageRepository", json!({"url": "http://deb.example.com/debian"})),
        ("SshKey", json!({"public_key": Semantic::SshPublicKey.example()})),
        ("StaticRoute", json!({"source": "lab", "destination": "office", "gateway": "10.0.0.1"})),
        ("Domain", json!({})),
        ("DnsRecord", json!({"domain": "example.com", "owner_name": "@", "type": "A", "data": "10.0.0.1"})),
        ("Device", json!({"macs": ["525400000001"]})),
        ("Discovery", json!({})),
        ("Settings", json!({})),
        ("Webhook", json!({"url": "https://example.com/hook"})),
        ("Role", json!({"base": "viewer"})),
        ("User", json!({})),
        ("ApiToken", json!({"role": "ci"})),
        ("Sample", json!({"serial": "1"})),
    ];
    assert_eq!(minimal.len(), KINDS.len());
    for (kind, spec) in minimal {
        assert_eq!(errors(kind, &spec), [] as [&str; 0], "{kind}");
    }
}

#[test]
fn what_no_rack_would_do_is_refused_before_any_rack_hears_of_it() {
    let image = json!({"sha256": "0".repeat(64), "size": 7});
    let specs = [
        ("Machine", json!({"boot_macs": ["525400000001"]})),
        ("Deployment", json!({"image": "debian", "selector": {}})),
        (
            "Image",
            json!({"os": "debian", "release": "12", "architecture": "amd64", "files": {"root_tarball": image}}),
        ),
        ("Tag", json!({})),
        ("Settings", json!({})),
    ];
    for (kind, mut spec) in specs {
        for (options, want) in [
            ("quiet console=ttyS0,115200n8 init=/bin/sh;x a='b;c' mitigations=auto,nosmt", None),
            ("quiet || shell", Some("\"||\" is for a boot loader")),
            ("quiet ; shell", Some("\";\" is for a boot loader")),
            ("a=${net0/mac}", Some("${net0/mac}")),
            (&"x".repeat(513), Some("513 bytes")),
        ] {
            spec["kernel_options"] = json!(options);
            let found = errors(kind, &spec);
            assert_eq!(found.len(), usize::from(want.is_some()), "{kind} {options}: {found:?}");
            assert!(want.is_none_or(|want| found[0].contains(want)), "{kind}: {found:?}");
        }
    }
    for (lease, is_refused) in [("59s", true), ("1m", false), ("31d", false), ("745h", true)] {
        let spec = json!({"fabric": "default", "vid": 0, "dhcp": {"lease_time": lease}});
        let found = errors("Vlan", &spec);
        assert_eq!(!found.is_empty(), is_refused, "{found:?}");
        assert!(found.iter().all(|error| error.contains("1m to 31d")), "{found:?}");
    }
}

#[test]
fn an_object_is_called_as_its_kind_demands() {
    let wrong = |kind: &str, name: &str, spec: Value| {
        validate_name(Kind::find(kind).unwrap(), name, &spec).map(|e| e.to_string())
    };
    assert_eq!(wrong("Zone", "row-1", json!({})), None);
    assert!(wrong("Zone", "row.1", json!({})).unwrap().contains("it contains '.'"));
    let vlan = json!({"fabric": "default", "vid": 5});
    assert_eq!(wrong("Vlan", "default.5", vlan.clone()), None);
    assert_eq!(
        wrong("Vlan", "default.6", vlan).unwrap(),
        r#""default.6" is not the name of VLAN default.5; call it "default.5""#
    );
}

#[test]
fn a_router_of_an_ipv6_network_may_be_link_local() {
    let spec = json!({"vlan": "default.0", "cidr": "2001:db8::/64", "gateway": "fe80::1"});
    assert_eq!(errors("Subnet", &spec), [] as [&str; 0]);
    let spec = json!({"vlan": "default.0", "cidr": "10.0.0.0/24", "gateway": "fe80::1"});
    assert_eq!(errors("Subnet", &spec).len(), 1);
}

#[test]
fn the_router_of_a_network_of_one_address_is_a_neighbour_outside_of_it() {
    let subnet = |cidr: &str, gateway: &str| {
        errors("Subnet", &json!({"vlan": "default.0", "cidr": cidr, "gateway": gateway}))
    };
    for (cidr, gateway) in [
        ("203.0.113.7/32", "203.0.113.1"),
        ("203.0.113.7/32", "169.254.0.1"),
        ("10.0.0.0/24", "169.254.0.1"),
        ("2001:db8::7/128", "2001:db8:1::1"),
    ] {
        assert_eq!(subnet(cidr, gateway), [] as [&str; 0], "{gateway} of {cidr}");
    }
    let own = "/gateway: gateway 203.0.113.7 is the only address of 203.0.113.7/32, which is for a host; \
               the router's own address; it may be outside of a network of one address";
    assert_eq!(subnet("203.0.113.7/32", "203.0.113.7"), [own]);
    assert!(subnet("203.0.113.7/32", "0.0.0.0")[0].contains("is not the address of a router"));
}

#[test]
fn a_public_key_is_given_as_the_whole_file_and_is_the_same_as_its_line() {
    let (key, kind) = (Semantic::SshPublicKey.example(), Kind::find("SshKey").unwrap());
    let [line, file] = [key.to_owned(), format!("{key}\n")].map(|text| json!({"public_key": text}));
    assert_eq!(errors("SshKey", &file), [] as [&str; 0]);
    assert!(equal(kind, &line, &file));
    let twice = json!({"image": "debian-12", "machine": "a", "ssh_keys": [key, format!("{key}\n")]});
    assert_eq!(errors("Deployment", &twice).len(), 1, "it is there twice");
    let two = json!({"public_key": format!("{key}\n{key}\n")});
    assert_eq!(errors("SshKey", &two).len(), 1, "a file of two keys is no key");
}

#[test]
fn a_token_without_scopes_is_good_for_everything_and_an_empty_set_of_them_is_refused() {
    assert_eq!(errors("ApiToken", &json!({"role": "ci", "scopes": null})), [] as [&str; 0]);
    let wrong = errors("ApiToken", &json!({"role": "ci", "scopes": []}));
    assert!(
        wrong.len() == 1 && wrong[0].contains("no scopes is good for nothing; leave it out"),
        "{wrong:?}"
    );
}

#[test]
fn what_is_not_known_yet_is_not_missed() {
    let kind = Kind::find("Subnet").unwrap();
    let spec = json!({"cidr": "10.0.0.0/24", "gateway": "10.9.9.9"});
    assert_eq!(validate_partial(kind, &spec, &["/vlan".to_owned()]), []);
    assert_eq!(validate_partial(kind, &spec, &["/gateway".to_owned()]).len(), 1);
}

#[test]
fn a_spec_can_be_too_large_and_too_deep() {
    let deep = (0..40).fold(json!(1), |inner, _| json!({ "a": inner }));
    assert!(errors("Zone", &deep)[0].contains("nested more than 16 levels"));
    let large = json!({"description": "x".repeat(MAX_SPEC_BYTES)});
    assert!(errors("Zone", &large)[0].contains("at most 1048576"));
    assert!(errors("Zone", &json!("x"))[0].contains("is not an object"));
    let long = json!({"a": [{"x".repeat(1025): {"a": 1}}]});
    assert_eq!(errors("Zone", &long), ["/a/0: a name here has 1025 bytes; at most 1024"]);
    let many: Value =
        (0..1000).map(|n| (format!("f{n}"), json!(1))).collect::<serde_json::Map<_, _>>().into();
    assert_eq!(errors("Zone", &many).len(), 100, "more errors than that help nobody");
}

#[test]
fn a_secret_is_written_kept_or_cleared() {
    let kind = Kind::find("Sample").unwrap();
    let with = |password: Value| json!({"serial": "1", "password": password});
    for good in [
        json!("x"),
        json!("two\nlines"),
        json!({"set": true}),
        json!({"set": true, "revision": 3}),
        json!(null),
    ] {
        assert_eq!(validate(kind, &with(good.clone())), [], "{good}");
    }
    let sealed = with(json!({"set": true, "revision": 3}));
    assert!(equal(kind, &sealed, &json!({"serial": "1"})), "omitting keeps");
    assert!(equal(kind, &sealed, &sealed), "writing back what was read keeps");
    assert_eq!(diff(kind, &sealed, &with(json!(null))).len(), 1, "null clears");
    let change = diff(kind, &sealed, &with(json!("hunter2")));
    assert_eq!(change[0].pointer, "/password");
    assert!(!serde_json::to_string(&change).unwrap().contains("hunter2"));
}

#[test]
fn differences_are_of_meaning_not_of_spelling() {
    let kind = Kind::find("Sample").unwrap();
    let old = json!({"serial": "1", "mac": "52:54:00:AB:CD:EF", "macs": ["525400000001", "525400000002"],
        "patience": "5m", "network": "2001:DB8::/64", "steps": ["a", "b"], "enabled": null});
    let new = json!({"serial": "1", "mac": "5254.00ab.cdef", "macs": ["52-54-00-00-00-02", "52-54-00-00-00-01"],
        "count_wanted": 3, "colour": "red", "network": "2001:db8:0::/64", "steps": ["a", "b"], "parts": {}});
    assert_eq!(diff(kind, &old, &new), []);
    let reordered = json!({"serial": "1", "mac": "5254.00ab.cdef", "macs": ["525400000001", "525400000002"],
        "network": "2001:db8::/64", "steps": ["b", "a"]});
    let changes = diff(kind, &old, &reordered);
    assert_eq!(changes.iter().map(|c| c.pointer.as_str()).collect::<Vec<_>>(), ["/steps"]);
}

#[test]
fn a_difference_says_what_it_does_and_hides_what_is_sensitive() {
    let kind = Kind::find("Sample").unwrap();
    let old = json!({"serial": "1", "script": "echo old", "detail": {"label": "a"},
        "parts": {"x": {"weight": 1, "key": "k1"}, "y": {"weight": 1}}});
    let new = json!({"serial": "2", "script": "echo new", "detail": {"label": "b", "size": 4},
        "parts": {"x": {"weight": 2}, "z/1": {"weight": 1, "key": "k3"}}});
    let lines: Vec<String> =
        diff(kind, &old, &new).iter().map(|c| serde_json::to_string(c).unwrap() + "\n").collect();
    insta::assert_snapshot!(lines.concat(), @r#"
    {"pointer":"/serial","old":"1","new":"2","effect":"replace"}
    {"pointer":"/script","old":"(sensitive)","new":"(sensitive)","effect":"redeploy"}
    {"pointer":"/detail/label","old":"a","new":"b","effect":"reboot"}
    {"pointer":"/detail/size","new":4,"effect":"redeploy"}
    {"pointer":"/parts/x/weight","old":1,"new":2,"effect":"live"}
    {"pointer":"/parts/y","old":{"weight":1},"effect":"live"}
    {"pointer":"/parts/z~11","new":{"weight":1,"key":{"set":true}},"effect":"live"}
    "#);
}

#[test]
fn references_and_secrets_are_found_where_they_stand() {
    let spec = json!({"image": "debian", "selector": {"zone": "a", "not_zone": ["b", "c"]},
        "network": {"interfaces": {"eth0": {"subnet": "lab"}}}});
    let found: Vec<String> = references(Kind::find("Deployment").unwrap(), &spec)
        .into_iter()
        .map(|r| format!("{} {} {}", r.pointer, r.kind, r.name))
        .collect();
    assert_eq!(
        found,
        [
            "/selector/zone Zone a",
            "/selector/not_zone/0 Zone b",
            "/selector/not_zone/1 Zone c",
            "/image Image debian",
            "/network/interfaces/eth0/subnet Subnet lab",
        ]
    );
    let spec = json!({"serial": "1", "password": null, "parts": {"x": {"weight": 1, "key": "k"}}});
    let found: Vec<String> =
        secrets(Kind::find("Sample").unwrap(), &spec).into_iter().map(|s| s.pointer).collect();
    assert_eq!(found, ["/password", "/parts/x/key"]);
}

fn kind_and_spec() -> impl Strategy<Value = (&'static Kind, Value)> {
    proptest::sample::select(KINDS).prop_flat_map(|kind| (Just(kind), spec(kind.spec)))
}

fn round_trip<K: KindOf>(spec: &Value) -> Value {
    let typed: K::Spec = serde_json::from_value(spec.clone()).expect("the types agree with the description");
    let written = serde_json::to_value(&typed).expect("a spec is JSON");
    let again: K::Spec = serde_json::from_value(written.clone()).expect("what was written can be read");
    assert_eq!(serde_json::to_value(again).expect("a spec is JSON"), written);
    written
}

/// The typed round trip of each kind.
fn round_trip_of(kind: &Kind) -> fn(&Value) -> Value {
    macro_rules! table {
        ($($kind:ty),*) => { [$((<$kind as KindOf>::NAME, round_trip::<$kind> as fn(&Value) -> Value)),*] };
    }
    let table = table![
        Zone,
        Pool,
        Fabric,
        Vlan,
        Subnet,
        IpRange,
        IpAddress,
        Image,
        Machine,
        Deployment,
        Rack,
        Space,
        ImageSource,
        Tag,
        Script,
        PackageRepository,
        SshKey,
        Webhook,
        StaticRoute,
        Domain,
        DnsRecord,
        Device,
        Discovery,
        Settings,
        Role,
        User,
        ApiToken,
        Sample
    ];
    assert_eq!(table.len(), KINDS.len());
    table.iter().find(|(name, _)| *name == kind.name).expect("every kind is in the table").1
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_the_description_allows_is_refused_only_by_rules_between_fields((kind, spec) in kind_and_spec()) {
        for error in validate(kind, &spec) {
            let is_rule = error.code == FieldCode::Rule || error.code == FieldCode::Required;
            prop_assert!(is_rule, "{} {spec}: {error:?}", kind.name);
        }
        prop_assert_eq!(walk::walk(kind, &spec, &[]), []);
    }

    #[test]
    fn one_hostile_value_is_refused_where_it_stands((kind, spec) in kind_and_spec(), place in any::<Index>()) {
        let places = places(kind.spec, &spec);
        let (pointer, ty) = place.get(&places);
        for poison in hostile(ty) {
            let mut bad = spec.clone();
            *bad.pointer_mut(pointer).expect("the place is there") = poison.clone();
            let errors = validate(kind, &bad);
            prop_assert!(
                errors.iter().any(|e| crate::pointer::is_within(&e.pointer, pointer)),
                "{kind:?} at {pointer}: {poison} gave {errors:?}"
            );
            prop_assert!(errors.iter().all(|e| e.message.len() < 1000 && !e.message.is_empty()));
        }
    }

    #[test]
    fn an_unknown_field_is_refused_in_every_object((kind, spec) in kind_and_spec(), place in any::<Index>()) {
        let objects: Vec<_> =
            places(kind.spec, &spec).into_iter().filter(|(_, ty)| matches!(ty, crate::Type::Object(_))).collect();
        let (pointer, _) = place.get(&objects);
        let mut bad = spec;
        bad.pointer_mut(pointer).and_then(Value::as_object_mut).expect("an object")
            .insert("frobnicate".to_owned(), json!(1));
        let wanted = format!("{pointer}/frobnicate");
        prop_assert!(validate(kind, &bad).iter().any(|e| e.pointer == wanted && e.code == FieldCode::UnknownField));
    }

    #[test]
    fn nothing_differs_from_itself((kind, spec) in kind_and_spec()) {
        prop_assert_eq!(diff(kind, &spec, &spec), []);
    }

    #[test]
    fn typed_and_back_means_the_same((kind, spec) in kind_and_spec()) {
        let written = round_trip_of(kind)(&spec);
        prop_assert_eq!(diff(kind, &spec, &written), [], "{} became {}", spec, written);
        prop_assert_eq!(walk::walk(kind, &written, &[]), []);
    }

    #[test]
    fn a_difference_never_shows_a_secret((kind, spec) in kind_and_spec()) {
        for change in diff(kind, &json!({}), &spec) {
            for secret in secrets(kind, &spec) {
                if let crate::SecretWrite::Set(plain) = secret.write && plain.len() > 6 {
                    let shown = serde_json::to_string(&change).expect("JSON");
                    let escaped = serde_json::to_string(&plain).expect("JSON");
                    prop_assert!(!shown.contains(&escaped), "{shown}");
                }
            }
        }
    }
}
