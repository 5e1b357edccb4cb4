//! The special rules of single kinds.

use crate::support::{Lab, lab, network};
use basalt_api::values::Uid;
use basalt_db::splice::Text;
use basalt_db::{Key, Precondition, Put};
use serde_json::json;

/// Puts an object that clients cannot declare.
pub(crate) async fn observe(lab: &Lab, kind: &str, name: &str, spec: &str) -> Uid {
    let spec = Text::parse(spec).expect("JSON");
    let put = Put {
        kind: basalt_api::Kind::find(kind).expect("a kind"),
        key: Key::Name(name),
        spec: &spec,
        at: "",
        labels: None,
        manager: None,
        adopt: false,
        precondition: Precondition::None,
        first_status: &json!({}),
    };
    lab.region.store().put(&put).await.expect("it is stored").object.uid
}

#[tokio::test]
async fn there_is_one_settings_object_and_deleting_it_returns_to_the_defaults() {
    let lab = lab().await;
    let (status, _, errors) = lab.api.put("/api/v1/settings/main", r#"{"spec":{}}"#).await.problem();
    assert_eq!(status, 422);
    let why = r#"/metadata/name: there is one object of this kind, and it is not called "main""#;
    assert_eq!(errors, [why]);
    lab.api.declare("/api/v1/settings/default", r#"{"loader":"shim_grub"}"#).await;
    let renamed = lab.api.send("POST", "/api/v1/settings/default/rename", &[], r#"{"name":"main"}"#).await;
    assert_eq!(renamed.problem().0, 422);
    assert_eq!(lab.api.delete("/api/v1/settings/default").await.status, 204);
    assert_eq!(lab.api.get("/api/v1/settings").await.json()["items"], json!([]));
    lab.api.declare("/api/v1/settings/default", "{}").await;
    assert_eq!(lab.api.get("/api/v1/settings/default").await.json()["spec"], json!({}));
}

#[tokio::test]
async fn what_nothing_acts_on_yet_says_so() {
    let lab = lab().await;
    let source = r#"{"url":"http://images.example.com","selections":{}}"#;
    lab.api.declare("/api/v1/image_sources/debian", source).await;
    let ready = lab.api.get("/api/v1/image_sources/debian").await.json()["status"]["conditions"][0].clone();
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("true"), &json!("Stored")));
    let told =
        "Stored; there is nothing to do for it. Nothing acts on it yet: nothing is fetched from sources.";
    assert_eq!(ready["message"], told);
    let body = format!(r#"{{"spec": {source}}}"#);
    let tried = lab.api.put("/api/v1/image_sources/other?dry_run=true", &body).await.json();
    let message = "ImageSource is not acted on yet: nothing is fetched from sources";
    let told = json!([{"pointer": "/spec", "code": "dormant", "message": message}]);
    assert_eq!(tried["advisories"], told);
    let tried = lab.api.put("/api/v1/zones/row-1?dry_run=true", r#"{"spec": {}}"#).await.json();
    assert_eq!(tried["advisories"], json!([]));
}

#[tokio::test]
async fn a_setting_in_the_comment_of_a_script_is_an_advisory_and_stands_in_ready() {
    let lab = lab().await;
    let comment = "# --- Start MAAS 1.0 script metadata ---\n# timeout: 00:20:00\n# --- End MAAS 1.0 script metadata ---\n";
    let spec =
        |timeout| json!({"type": "testing", "content": format!("#!/bin/sh\n{comment}"), "timeout": timeout});
    let path = "/api/v1/scripts/surface";
    let body = json!({"spec": spec("10m")}).to_string();
    let tried = lab.api.put(&format!("{path}?dry_run=true"), &body).await.json();
    let message = "the script's comment says timeout 20m: it is 10m, and the spec alone counts";
    let hint = "declare timeout, or take it out of the comment";
    let told = json!([{"pointer": "/spec/content", "code": "dormant", "message": message, "hint": hint}]);
    assert_eq!(tried["advisories"], told);
    lab.api.declare(path, &spec("10m").to_string()).await;
    let ready = lab.api.get(path).await.json()["status"]["conditions"][0]["message"].to_string();
    assert!(ready.contains(message), "{ready}");
    let same = json!({"spec": spec("1200s")}).to_string();
    let tried = lab.api.put(&format!("{path}?dry_run=true"), &same).await.json();
    assert_eq!(tried["advisories"], json!([]));
}

#[tokio::test]
async fn a_change_of_the_scripts_of_a_deployment_counts_from_its_next_install_on() {
    let lab = lab().await;
    let image = json!({"os": "debian", "release": "12", "architecture": "amd64",
        "files": {"root_tarball": {"sha256": "0".repeat(64)}}});
    lab.api.declare("/api/v1/images/debian", &image.to_string()).await;
    let script = json!({"type": "deployment", "content": "#!/bin/sh\n"});
    lab.api.declare("/api/v1/scripts/seed", &script.to_string()).await;
    let path = "/api/v1/deployments/db";
    let spec = |scripts: &[&str]| json!({"image": "debian", "selector": {}, "scripts": scripts});
    let tried = async |spec: serde_json::Value| {
        let body = json!({ "spec": spec }).to_string();
        lab.api.put(&format!("{path}?dry_run=true"), &body).await.json()["plan"].clone()
    };
    assert_eq!(tried(spec(&["seed"])).await.get("notes"), None, "nothing is installed yet");
    lab.api.declare(path, &spec(&[]).to_string()).await;
    let plan = tried(spec(&["seed"])).await;
    assert_eq!(plan["effect"], "none", "{plan}");
    let note = "scripts run at the end of an install: this change counts from the next one on, and a system that runs stays as it is";
    assert_eq!(plan["notes"], json!([note]));
    assert_eq!(tried(spec(&[])).await.get("notes"), None);
}

#[tokio::test]
async fn a_field_that_nothing_acts_on_yet_is_an_advisory_and_stands_in_ready() {
    let lab = lab().await;
    let spec = json!({"boot_macs": ["52:54:00:00:00:01"], "boot_order": "disk_first", "ownership": {"os": "observed"},
        "commissioning": {"bmc": null}});
    let body = json!({ "spec": spec }).to_string();
    let told = [
        r#"ownership/os: os "observed" is not acted on yet: a deployment may be installed on it; boot = "observed" prevents that"#,
        r#"boot_order: "boot_order" is not acted on yet: its BMC is asked for one network boot whenever one is needed"#,
    ];
    let advisories = |answer: serde_json::Value| {
        let all = answer["advisories"].as_array().expect("advisories").clone();
        assert!(all.iter().all(|it| it["code"] == "dormant"), "{all:?}");
        all.iter()
            .map(|it| format!("{}: {}", it["pointer"], it["message"]).replace(['\\', '"'], ""))
            .collect()
    };
    let plain = |at: &str| told.map(|text| format!("{at}/{text}").replace('"', ""));
    let tried: Vec<String> = advisories(lab.api.put("/api/v1/machines/m?dry_run=true", &body).await.json());
    assert_eq!(tried, plain("/spec"));
    let document = json!({"kind": "Machine", "metadata": {"name": "m"}, "spec": spec});
    let body = json!({ "documents": [document] }).to_string();
    let applied = lab.api.send("POST", "/api/v1/apply", &[], body).await;
    assert_eq!(applied.status, 200, "{}", applied.text());
    let applied: Vec<String> = advisories(applied.json());
    assert_eq!(applied, plain("/documents/0/spec"));
    let ready = lab.api.get("/api/v1/machines/m").await.json()["status"]["conditions"][0]["message"].clone();
    let ready = ready.as_str().expect("a message");
    let [order, mode] = told;
    assert!(
        ready.ends_with(&format!(" Of what is declared, this is stored alone: /{order}; /{mode}.")),
        "{ready}"
    );
    lab.api.declare("/api/v1/machines/m", r#"{"boot_macs":["52:54:00:00:00:01"]}"#).await;
    let ready = lab.api.get("/api/v1/machines/m").await.json()["status"]["conditions"][0]["message"].clone();
    assert!(!ready.as_str().expect("a message").contains("stored alone"), "{ready}");
}

#[tokio::test]
async fn the_secret_of_a_webhook_never_comes_back() {
    let lab = lab().await;
    let spec = |secret: &str| format!(r#"{{"url":"https://chat.example.com/hook","secret":{secret}}}"#);
    lab.api.declare("/api/v1/webhooks/chat", &spec(r#""signed-in-plain""#)).await;
    let read = lab.api.get("/api/v1/webhooks/chat").await;
    assert_eq!(read.json()["spec"]["secret"], json!({"set": true, "revision": 1}));
    assert!(!read.text().contains("in-plain"));
    lab.api.declare("/api/v1/webhooks/chat", &spec(r#""another-in-plain""#)).await;
    let read = lab.api.get("/api/v1/webhooks/chat").await;
    assert_eq!(read.json()["spec"]["secret"], json!({"set": true, "revision": 2}));
    lab.api.declare("/api/v1/webhooks/chat", &spec("null")).await;
    assert_eq!(lab.api.get("/api/v1/webhooks/chat").await.json()["spec"]["secret"], json!(null));
}

#[tokio::test]
async fn a_domain_is_called_by_its_name() {
    let lab = lab().await;
    lab.api.declare("/api/v1/domains/lab.example.com", "{}").await;
    let record = r#"{"domain":"lab.example.com","owner_name":"www","type":"A","data":"10.77.0.9"}"#;
    lab.api.declare("/api/v1/dns_records/www", record).await;
    let renamed = r#"{"name":"lab2.example.com"}"#;
    let renamed = lab.api.send("POST", "/api/v1/domains/lab.example.com/rename", &[], renamed).await;
    assert_eq!(renamed.status, 200, "{}", renamed.text());
    assert_eq!(lab.api.get("/api/v1/dns_records/www").await.json()["spec"]["domain"], "lab2.example.com");
    assert_eq!(lab.api.put("/api/v1/domains/Lab.example.com", r#"{"spec":{}}"#).await.status, 422);
}

#[tokio::test]
async fn a_record_is_there_once_and_a_cname_stands_alone() {
    let lab = lab().await;
    lab.api.declare("/api/v1/domains/example.com", "{}").await;
    let put = |name: &str, owner: &str, rtype: &str, data: &str| {
        let spec = json!({"domain": "example.com", "owner_name": owner, "type": rtype, "data": data});
        let (api, path) = (lab.api.clone(), format!("/api/v1/dns_records/{name}"));
        async move { api.put(&path, &json!({"spec": spec}).to_string()).await }
    };
    assert_eq!(put("a1", "www", "AAAA", "2001:db8::1").await.status, 201);
    assert_eq!(put("a2", "www", "AAAA", "2001:db8::2").await.status, 201, "a name has several addresses");
    let (status, code, errors) = put("a3", "WWW", "AAAA", "2001:DB8:0::1").await.problem();
    assert_eq!((status, code.as_str()), (409, "overlap"));
    assert_eq!(errors, [r#"/spec/data: DnsRecord "a1" is www AAAA 2001:db8::1 already"#]);
    let (status, _, errors) = put("c1", "www", "CNAME", "example.com").await.problem();
    assert_eq!((status, errors.len()), (409, 2), "{errors:?}");
    assert!(errors[0].contains(r#"www has the record "a1" of type AAAA, and a CNAME stands alone"#));
    assert_eq!(put("c1", "ftp", "CNAME", "www.example.com").await.status, 201);
    assert_eq!(put("c2", "ftp", "CNAME", "mail.example.com").await.status, 409);
    assert_eq!(put("t1", "ftp", "TXT", "hello").await.status, 409);
    assert_eq!(put("c1", "ftp", "CNAME", "mail.example.com").await.status, 200, "its data can change");
}

#[tokio::test]
async fn a_mac_address_is_one_machine_s_or_one_device_s() {
    let lab = lab().await;
    let mac = |n: u8| format!("52:54:00:00:00:0{n}");
    let machine = |n| format!(r#"{{"boot_macs":["{}"]}}"#, mac(n));
    let device = |n| format!(r#"{{"macs":["{}"]}}"#, mac(n).replace(':', "-"));
    let spec = |spec: String| format!(r#"{{"spec":{spec}}}"#);
    lab.api.declare("/api/v1/machines/m", &machine(1)).await;
    lab.api.declare("/api/v1/devices/d", &device(2)).await;
    let (status, code, errors) = lab.api.put("/api/v1/devices/e", &spec(device(1))).await.problem();
    assert_eq!((status, code.as_str()), (409, "overlap"));
    assert_eq!(errors, [r#"/spec/macs/0: 52-54-00-00-00-01 is a boot MAC of Machine "m" already"#]);
    let (_, _, errors) = lab.api.put("/api/v1/machines/n", &spec(machine(2))).await.problem();
    assert_eq!(errors, [r#"/spec/boot_macs/0: 52:54:00:00:00:02 is a MAC of Device "d" already"#]);
    lab.api.declare("/api/v1/devices/d", &device(3)).await;
    lab.api.declare("/api/v1/machines/n", &machine(2)).await;
    assert_eq!(lab.api.delete("/api/v1/devices/d").await.status, 204);
    lab.api.declare("/api/v1/machines/m", &machine(3)).await;
}

#[tokio::test]
async fn a_bmc_is_one_machine_s() {
    let lab = lab().await;
    let machine = |n: u8, bmc: &str| {
        let bmc = json!({"driver": "ipmi", "address": bmc, "username": "admin", "password": "secret"});
        json!({"kind": "Machine", "metadata": {"name": format!("m{n}")},
               "spec": {"boot_macs": [format!("52:54:00:00:00:0{n}")], "bmc": bmc}})
    };
    let apply = |documents: [serde_json::Value; 2]| {
        let (api, body) = (lab.api.clone(), json!({"documents": documents}).to_string());
        async move { api.send("POST", "/api/v1/apply", &[], body).await }
    };
    assert_eq!(apply([machine(1, "bmc-1"), machine(2, "bmc-2")]).await.status, 200);
    let third = json!({"spec": machine(3, "BMC-1")["spec"]}).to_string();
    let (status, code, errors) = lab.api.put("/api/v1/machines/m3", &third).await.problem();
    assert_eq!((status, code.as_str()), (409, "overlap"));
    assert_eq!(errors, [r#"/spec/bmc/address: bmc-1 port 623 is the BMC of Machine "m1" already"#]);
    let dry = lab.api.put("/api/v1/machines/m3?dry_run=true", &third).await;
    assert_eq!(dry.json()["advisories"][0]["pointer"], "/spec/bmc/address", "{}", dry.text());
    assert_eq!(apply([machine(1, "bmc-2"), machine(2, "bmc-1")]).await.status, 200, "two change places");
    let (status, _, errors) = apply([machine(1, "bmc-1"), machine(4, "bmc-4")]).await.problem();
    assert_eq!(status, 409);
    let why = r#"/documents/0/spec/bmc/address: bmc-1 port 623 is the BMC of Machine "m2" already"#;
    assert_eq!(errors, [why], "all or nothing");
    assert_eq!(lab.api.get("/api/v1/machines/m4").await.status, 404);
}

#[tokio::test]
async fn nobody_is_given_what_a_device_has() {
    let lab = lab().await;
    network(&lab.api).await;
    let device = r#"{"addresses":["10.77.0.1","fd00::1"],"macs":["52:54:00:00:00:01"]}"#;
    lab.api.declare("/api/v1/devices/printer", device).await;
    let condition = lab.api.get("/api/v1/devices/printer").await.json()["status"]["conditions"][0].clone();
    assert_eq!(condition["message"], "Stored; there is nothing to do for it.");
    lab.api.declare("/api/v1/ip_addresses/next", r#"{"subnet":"lab"}"#).await;
    let next = lab.api.get("/api/v1/ip_addresses/next").await.json();
    assert_eq!(next["status"]["address"], "10.77.0.2");
    let body = r#"{"spec":{"addresses":["10.77.0.9","10.77.0.2"]}}"#;
    let (status, code, errors) = lab.api.put("/api/v1/devices/other", body).await.problem();
    assert_eq!((status, code.as_str()), (409, "overlap"));
    assert_eq!(errors, [r#"/spec/addresses/1: 10.77.0.2 is the address of IpAddress "next" already"#]);
    let dry = lab.api.put("/api/v1/devices/other?dry_run=true", body).await.json();
    assert_eq!(dry["advisories"][0]["pointer"], "/spec/addresses/1", "{dry}");
    lab.api.declare("/api/v1/devices/other", r#"{"addresses":["10.77.0.9"]}"#).await;
    assert_eq!(lab.api.delete("/api/v1/devices/printer").await.status, 204);
    lab.api.declare("/api/v1/ip_addresses/printer", r#"{"subnet":"lab","address":"10.77.0.1"}"#).await;
}

#[tokio::test]
async fn a_route_leaves_its_subnet_through_a_router_in_it() {
    let lab = lab().await;
    network(&lab.api).await;
    lab.api.declare("/api/v1/subnets/office", r#"{"vlan":"default.0","cidr":"10.78.0.0/24"}"#).await;
    let put = |name: &str, spec: &str| {
        let (api, path) = (lab.api.clone(), format!("/api/v1/static_routes/{name}"));
        let body = format!(r#"{{"spec":{spec}}}"#);
        async move { api.put(&path, &body).await }
    };
    let outside = r#"{"source":"lab","destination":"office","gateway":"10.78.0.1"}"#;
    let (_, _, errors) = put("out", outside).await.problem();
    assert_eq!(errors, [r#"/spec/gateway: 10.78.0.1 is outside 10.77.0.0/24 of Subnet "lab""#]);
    let routed = r#"{"vlan":"default.0","cidr":"203.0.113.7/32","gateway":"203.0.113.1"}"#;
    lab.api.declare("/api/v1/subnets/routed", routed).await;
    for (name, source, gateway) in [("on-link", "routed", "203.0.113.1"), ("near", "lab", "169.254.0.1")] {
        let spec = format!(r#"{{"source":"{source}","destination":"office","gateway":"{gateway}"}}"#);
        assert_eq!(put(name, &spec).await.status, 201, "{name}: a neighbour on the link");
    }
    let good = r#"{"source":"lab","destination":"office","gateway":"10.77.0.1"}"#;
    assert_eq!(put("out", good).await.status, 201);
    let same = r#"{"source":"lab","destination_cidr":"10.78.0.0/24","gateway":"10.77.0.1","metric":5}"#;
    let (_, code, errors) = put("again", same).await.problem();
    assert_eq!(code, "overlap");
    assert_eq!(errors, [r#"/spec/gateway: StaticRoute "out" leads to 10.78.0.0/24 by 10.77.0.1 already"#]);
}

#[tokio::test]
async fn discoveries_are_observed_and_not_declared() {
    let lab = lab().await;
    let refused = lab.api.put("/api/v1/discoveries/x", r#"{"spec":{}}"#).await;
    assert_eq!(refused.problem().1, "not_found");
    observe(&lab, "Discovery", "x", "{}").await;
    lab.api.declare("/api/v1/discoveries/x", r#"{"description":"the old printer"}"#).await;
    assert_eq!(lab.api.delete("/api/v1/discoveries/x").await.status, 204);
}
