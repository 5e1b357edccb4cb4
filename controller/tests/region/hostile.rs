//! Bad input: every field of every kind gets every sort of bad value. None is stored.

use crate::examples::{Example, examples, places};
use crate::support::{Lab, lab, lab_with};
use crate::tried::{furnished, headers};
use basalt_api::routes::{ROUTES, RouteId as Id};
use basalt_api::{Semantic, Type};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The sorts of bad values.
const CLASSES: [&str; 13] = [
    "wrong type",
    "out of range",
    "wrong form",
    "1 MB of text",
    "NUL",
    "unknown field",
    "dangling reference",
    "empty key",
    "NUL in a key",
    "control character in a key",
    "1 MB key",
    "key that stands twice",
    "key of another language",
];

const LONG: usize = 1_000_000;

/// One bad value for one place, and the pointer of the expected error.
struct Bad {
    class: &'static str,
    value: Value,
    below: &'static str,
}

/// Keys that a map must refuse, by class. Keys that are special in other languages are ordinary keys here.
fn bad_keys() -> [(&'static str, String); 6] {
    [
        ("empty key", String::new()),
        ("NUL in a key", "a\0b".to_owned()),
        ("control character in a key", "a\u{85}\nb".to_owned()),
        ("1 MB key", "x".repeat(LONG)),
        ("key that stands twice", TWICE.to_owned()),
        ("key of another language", "__proto__".to_owned()),
    ]
}

/// Stands for a duplicate: in the text of a request, it is replaced by the first key of its map.
const TWICE: &str = "stands-twice";

/// The bad values for a place of this type.
fn bad_values(ty: &Type) -> Vec<Bad> {
    let bad = |class, value| Bad { class, value, below: "" };
    let is_text = matches!(ty, Type::String | Type::Text | Type::Enum(_) | Type::Semantic(_) | Type::Ref(_));
    let mut all: Vec<Bad> = match ty {
        Type::Bool => vec![json!("true"), json!(1)],
        Type::Int { .. } => vec![json!("1"), json!(1.5), json!(true)],
        Type::Secret => vec![json!(1), json!({"set": false})],
        Type::Object(_) | Type::Map { .. } => vec![json!("x"), json!(1), json!([])],
        Type::List(_) | Type::Set(_) => vec![json!("x"), json!({})],
        _ => vec![json!(1), json!(true)],
    }
    .into_iter()
    .map(|value| bad("wrong type", value))
    .collect();
    if ty.is_scalar() {
        all.push(bad("wrong type", json!([1])));
        all.push(bad("wrong type", json!({"a": {"b": 1}})));
    }
    match ty {
        Type::Int { min, max } => {
            for value in [json!(max + 1), json!(min - 1), json!(u64::MAX), json!(1e300)] {
                all.push(bad("out of range", value));
            }
        }
        Type::Semantic(Semantic::Duration) => all.push(bad("out of range", json!("99999999d"))),
        Type::List(_) | Type::Set(_) => all.push(bad("out of range", json!(vec!["x"; 5000]))),
        Type::Enum(_) | Type::Semantic(_) => {
            all.push(bad("wrong form", json!("")));
            all.push(bad("wrong form", json!("no such thing!")));
            all.push(bad("wrong form", json!("ü\u{202e}")));
        }
        Type::Object(_) => {
            all.push(Bad { class: "unknown field", value: json!("x"), below: "/frobnicate" });
        }
        Type::Ref(kind) => {
            let naming = basalt_api::Kind::find(kind).map(|kind| kind.naming);
            let nobody =
                if naming == Some(basalt_api::values::Naming::FabricVid) { "nobody.7" } else { "nobody" };
            all.push(bad("dangling reference", json!(nobody)));
            all.push(bad("wrong form", json!("No Such Thing!")));
        }
        _ => {}
    }
    if is_text || matches!(ty, Type::Secret) {
        all.push(bad("1 MB of text", json!("x".repeat(LONG))));
        all.push(bad("NUL", json!("a\0b")));
    }
    all
}

/// Checks that the next change is that of `marker`.
async fn nothing_but(lab: &Lab, changes: &mut Changes, marker: &str) {
    lab.api.declare(&format!("/api/v1/zones/{marker}"), "{}").await;
    let next = tokio::time::timeout(Duration::from_secs(30), changes.recv()).await;
    let next = next.expect("the change arrives").expect("the log is followed");
    assert_eq!((next.kind.as_str(), next.name.as_str()), ("Zone", marker), "something was stored: {next:?}");
}

type Changes = tokio::sync::broadcast::Receiver<std::sync::Arc<basalt_db::change::Change>>;

#[tokio::test]
async fn what_is_around_a_spec_is_checked_as_well() {
    let lab = lab().await;
    lab.api.declare("/api/v1/zones/a", "{}").await;
    let manager: &[(&str, &str)] = &[("X-Basalt-Manager", "test")];
    for (method, path, headers, body) in [
        ("GET", "/api/v1/zones?q=%00", &[][..], ""),
        ("GET", "/api/v1/zones?labels=a%3D%00", &[], ""),
        ("GET", "/api/v1/zones?continue=%00", &[], ""),
        ("GET", "/api/v1/audit?actor=%00", &[], ""),
        ("GET", "/api/v1/audit?object=web1", &[], ""),
        ("GET", "/api/v1/addresses?address=10.77.0", &[], ""),
        ("GET", "/api/v1/addresses?source=dns", &[], ""),
        ("GET", "/api/v1/addresses?continue=10.77.0.1", &[], ""),
        ("GET", "/api/v1/addresses?subnet=%00", &[], ""),
        ("GET", "/api/v1/addresses?limit=abc", &[], ""),
        ("GET", "/api/v1/audit?object=Zone/%00", &[], ""),
        ("GET", "/api/v1/zones/%ff", &[], ""),
        ("GET", "/api/v1/boots/%00", &[], ""),
        ("GET", "/api/v1/boots/52:54:00:00:00", &[], ""),
        ("GET", "/api/v1/names/a%00", &[], ""),
        ("GET", "/api/v1/names/a..b", &[], ""),
        ("POST", "/api/v1/login", &[], r#"{"user":"a\u0000","password":"x"}"#),
        ("POST", "/api/v1/apply", manager, r#"{"documents":[],"prune":"a\u0000=b"}"#),
        ("POST", "/api/v1/apply", manager, r#"{"documents":[],"prune":"a=b\u0000"}"#),
        ("PUT", "/api/v1/zones/b", &[], r#"["Zone", {}, {}, null]"#),
        (
            "PUT",
            "/api/v1/zones/b",
            &[],
            r#"{"metadata": ["b", {}, null, null, null, null, null, null], "spec": {}}"#,
        ),
        ("POST", "/api/v1/apply", &[], r#"{"documents": [["Zone", {"name": "b"}, {}, null]]}"#),
        ("POST", "/api/v1/join_tokens", &[], "[null, null]"),
        ("POST", "/api/v1/zones/a/rename", &[], r#"["b"]"#),
    ] {
        let (status, code, _) = lab.api.send(method, path, headers, body).await.problem();
        assert_eq!((status, code.as_str()), (422, "invalid"), "{method} {path}");
    }
    assert_eq!(lab.api.get("/api/v1/zones/a").await.status, 200, "it has its name still");
    let refused = lab.api.delete("/api/v1/zones").await;
    assert_eq!(refused.problem().1, "method_not_allowed");
    assert_eq!(
        (refused.status.as_u16(), &refused.headers["allow"]),
        (405, &"GET,HEAD".parse().expect("a value"))
    );
}

#[tokio::test]
async fn every_field_of_every_kind_refuses_what_it_is_not_and_stores_nothing() {
    let lab = lab().await;
    let examples = examples();
    for example in &examples {
        example.store(&lab).await;
    }
    let before = everything(&lab, &examples).await;
    let mut changes = lab.region.follower().subscribe();
    lab.api.declare("/api/v1/zones/begin", "{}").await;
    while changes.recv().await.expect("the log is followed").name != "begin" {}

    let mut counts: BTreeMap<&str, usize> = CLASSES.iter().map(|class| (*class, 0)).collect();
    for example in &examples {
        for (pointer, ty) in places(example.kind.spec, &example.spec) {
            for bad in bad_values(&ty) {
                refused(&lab, example, &pointer, &bad).await;
                *counts.get_mut(bad.class).expect("a class of the list") += 1;
            }
        }
    }
    for example in &examples {
        for (pointer, ty) in places(example.kind.spec, &example.spec) {
            if !matches!(ty, Type::Map { .. }) {
                continue;
            }
            for (class, key) in bad_keys() {
                refused_key(&lab, example, &pointer, (class, &key)).await;
                *counts.get_mut(class).expect("a class of the list") += 1;
            }
        }
    }
    nothing_but(&lab, &mut changes, "end").await;
    assert_eq!(everything(&lab, &examples).await, before);
    eprintln!("refused: {counts:?}");
    assert!(counts.values().all(|count| *count > 0), "a class has no cases: {counts:?}");
}

/// Checks that one bad value is refused, with the right pointer and code.
async fn refused(lab: &Lab, example: &Example, pointer: &str, bad: &Bad) {
    let mut spec = example.spec.clone();
    let at = format!("{pointer}{}", bad.below);
    match spec.pointer_mut(pointer).expect("the place is there") {
        Value::Object(map) if !bad.below.is_empty() => {
            map.insert(bad.below.trim_start_matches('/').to_owned(), bad.value.clone());
        }
        place => *place = bad.value.clone(),
    }
    // In an existing object, an immutable field would be refused for another reason.
    let name = match bad.class {
        "dangling reference" => example.other_name(&spec),
        _ => example.name.to_owned(),
    };
    let answer = lab.api.put(&example.path_of(&name), &json!({"spec": spec}).to_string()).await;
    let shown: String = bad.value.to_string().chars().take(60).collect();
    let what = format!("{} {pointer}: {} {shown}", example.kind.name, bad.class);
    assert!(answer.status.is_client_error(), "{what}: {}", answer.status);
    let problem = answer.json();
    assert!(problem["code"].as_str().is_some_and(|code| !code.is_empty()), "{what}: {problem}");
    let wanted = format!("/spec{at}");
    let errors = problem["errors"].as_array().cloned().unwrap_or_default();
    let error = errors.iter().find(|error| {
        let pointer = error["pointer"].as_str().unwrap_or_default();
        pointer == wanted || pointer.starts_with(&format!("{wanted}/"))
    });
    let error = error.unwrap_or_else(|| panic!("{what}: no error at {wanted}: {errors:?}"));
    assert!(error["code"].as_str().is_some_and(|code| !code.is_empty()), "{what}: {error}");
    assert!(error["message"].as_str().is_some_and(|m| !m.is_empty() && m.len() < 1000), "{what}: {error}");
    match bad.class {
        "unknown field" => assert_eq!(error["code"], "unknown_field", "{what}"),
        "dangling reference" => assert_eq!(error["code"], "reference_not_found", "{what}"),
        _ => {}
    }
}

/// Checks that one bad key of a map is refused, and not sent back whole. A strange key may also be accepted like others.
async fn refused_key(lab: &Lab, example: &Example, pointer: &str, (class, key): (&str, &str)) {
    let mut spec = example.spec.clone();
    let Some(Value::Object(map)) = spec.pointer_mut(pointer) else { panic!("no map at {pointer}") };
    let (first, value) =
        map.iter().next().map(|(key, value)| (key.clone(), value.clone())).expect("an entry");
    map.insert(key.to_owned(), value);
    let body = json!({"spec": spec}).to_string().replace(TWICE, &first);
    let what = format!("{} {pointer}: {class}", example.kind.name);
    let answer = lab.api.put(&format!("{}?dry_run=true", example.path()), &body).await;
    if class == "key of another language" && answer.status.is_success() {
        let said = answer.json();
        let read = said["object"]["spec"].pointer(pointer).expect("the map");
        assert_eq!(read.as_object().expect("a map").get(key), read.get(&first), "{what}");
        return;
    }
    let (status, code, _) = answer.problem();
    assert_eq!((status, code.as_str()), (422, "invalid"), "{what}");
    assert!(answer.body.len() < 10_000, "{what}: an answer of {} bytes", answer.body.len());
    let errors = answer.json()["errors"].as_array().cloned().unwrap_or_default();
    let wanted = format!("/spec{pointer}");
    let error = errors.iter().find(|error| {
        let at = error["pointer"].as_str().unwrap_or_default();
        at == wanted || at.starts_with(&format!("{wanted}/"))
    });
    let error = error.unwrap_or_else(|| panic!("{what}: no error at {wanted}: {errors:?}"));
    assert!(error["code"].as_str().is_some_and(|code| !code.is_empty()), "{what}: {error}");
    if class == "key that stands twice" {
        assert_eq!(error["code"], "duplicate", "{what}");
    }
}

/// Every request with labels, with `LABELS` in their place.
const LABELLED: &[(&str, &str, &str)] = &[
    ("PUT", "/api/v1/zones/new", r#"{"metadata":{"labels":LABELS},"spec":{}}"#),
    ("PUT", "/api/v1/zones/a/layers/cmdb", r#"{"labels":LABELS}"#),
    (
        "POST",
        "/api/v1/apply",
        r#"{"documents":[{"kind":"Zone","metadata":{"name":"new","labels":LABELS},"spec":{}}]}"#,
    ),
];

#[tokio::test]
async fn labels_have_keys_that_can_be_named_and_each_once() {
    let lab = lab().await;
    lab.api.declare("/api/v1/zones/a", "{}").await;
    let mut changes = lab.region.follower().subscribe();
    lab.api.declare("/api/v1/zones/begin", "{}").await;
    while changes.recv().await.expect("the log is followed").name != "begin" {}
    let long = "x".repeat(LONG);
    let wrong = [
        r#"{"":"x"}"#.to_owned(),
        r#"{"a\u0000":"x"}"#.to_owned(),
        r#"{"a\nb":"x"}"#.to_owned(),
        r#"{"__proto__":"x"}"#.to_owned(),
        r#"{"a":"x\u0000"}"#.to_owned(),
        r#"{"a":"1","a":"2"}"#.to_owned(),
        r#"{"a":["1"]}"#.to_owned(),
        r#"["a"]"#.to_owned(),
        format!(r#"{{"{long}":"x"}}"#),
        format!(r#"{{"a":"{long}"}}"#),
        format!(r#"{{"a":{{"{long}":"x"}}}}"#),
    ];
    for (method, path, body) in LABELLED {
        for labels in &wrong {
            invalid(&lab, (method, path), body.replace("LABELS", labels)).await;
        }
    }
    nothing_but(&lab, &mut changes, "end").await;
}

/// Checks that a request is refused, with a short description of the error.
async fn invalid(lab: &Lab, (method, path): (&str, &str), body: impl Into<Vec<u8>>) {
    let body: Vec<u8> = body.into();
    let start = String::from_utf8_lossy(&body).chars().take(80).collect::<String>();
    let answer = lab.api.send(method, path, headers(method), body).await;
    let what = format!("{method} {path}: {start}");
    let (status, code, _) = answer.problem();
    assert_eq!((status, code.as_str()), (422, "invalid"), "{what}");
    assert!(answer.body.len() < 10_000, "{what}: an answer of {} bytes", answer.body.len());
    let errors = answer.json()["errors"].as_array().cloned().unwrap_or_default();
    assert!(!errors.is_empty(), "{what}: it does not say what is wrong");
    for error in errors {
        assert!(error["pointer"].is_string(), "{what}: {error}");
        assert!(error["code"].as_str().is_some_and(|code| !code.is_empty()), "{what}: {error}");
        assert!(
            error["message"].as_str().is_some_and(|m| !m.is_empty() && m.len() < 1000),
            "{what}: {error}"
        );
    }
}

/// Every request with a JSON body, with `BAD` in the place of a value. The region reads each of them in its own way.
const BODIES: &[(Id, &str, &str)] = &[
    (Id::Write, "/api/v1/zones/a", r#"{"spec":{"description":BAD}}"#),
    (Id::Write, "/api/v1/zones/a", r#"{"metadata":{"labels":{"a":BAD}},"spec":{}}"#),
    (Id::Patch, "/api/v1/zones/a", r#"{"description":BAD}"#),
    (Id::Patch, "/api/v1/zones/a", "BAD"),
    (
        Id::Apply,
        "/api/v1/apply",
        r#"{"documents":[{"kind":"Zone","metadata":{"name":"new"},"spec":{"description":BAD}}]}"#,
    ),
    (
        Id::Apply,
        "/api/v1/apply",
        r#"{"documents":[{"kind":"Zone","metadata":{"name":"new","labels":{"a":BAD}},"spec":{}}]}"#,
    ),
    (Id::Apply, "/api/v1/apply", r#"{"documents":[BAD]}"#),
    (Id::Apply, "/api/v1/apply", r#"{"documents":BAD}"#),
    (Id::ReportRun, "/api/v1/runs/0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e", r#"{"confirms":BAD}"#),
    (Id::Login, "/api/v1/login", r#"{"user":"alice","password":BAD}"#),
    (Id::ChangePassword, "/api/v1/password", r#"{"present":"correct horse battery","password":BAD}"#),
    (Id::Rename, "/api/v1/zones/a/rename", r#"{"name":BAD}"#),
    (Id::WriteLayer, "/api/v1/zones/a/layers/cmdb", r#"{"labels":{"a":BAD}}"#),
    (Id::WriteLayer, "/api/v1/zones/a/layers/cmdb", r#"{"tags":BAD}"#),
    (Id::Operate, "/api/v1/machines/m/operations", r#"{"verb":BAD}"#),
    (Id::OperateMany, "/api/v1/operations", r#"{"names":["m"],"operation":{"verb":BAD}}"#),
    (Id::OperateMany, "/api/v1/operations", r#"{"names":BAD,"operation":{"verb":"abort"}}"#),
    (Id::OperateMany, "/api/v1/operations", r#"{"where":BAD,"operation":{"verb":"abort"}}"#),
    (Id::Redeliver, "/api/v1/webhooks/hook/redeliver", r#"{"id":BAD}"#),
    (Id::Discard, "/api/v1/webhooks/hook/discard", r#"{"id":BAD}"#),
    (Id::MakeJoinToken, "/api/v1/join_tokens", r#"{"rack":BAD}"#),
];

#[tokio::test]
async fn every_body_that_is_deep_or_no_text_or_says_something_twice_is_refused_and_nothing_is_stored() {
    let lab = furnished().await;
    let of_bodies: BTreeSet<_> = BODIES.iter().map(|body| body.0).collect();
    for route in ROUTES {
        // Blobs are bytes.
        let reads_json = route.request.is_some() && route.id != Id::PutBlob;
        assert_eq!(reads_json, of_bodies.contains(&route.id), "{route}: a body, and a row in BODIES");
    }
    let mut changes = lab.region.follower().subscribe();
    lab.api.declare("/api/v1/zones/begin", "{}").await;
    while changes.recv().await.expect("the log is followed").name != "begin" {}
    let nested =
        |open: &str, close: &str, depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
    for (id, path, body) in BODIES {
        let route = id.route();
        let mut bodies: Vec<Vec<u8>> = Vec::new();
        for depth in [70, 200_000] {
            bodies.push(body.replace("BAD", &nested("[", "]", depth)).into());
            bodies.push(body.replace("BAD", &nested(r#"{"a":"#, "}", depth)).into());
        }
        for bytes in [&b"\"a\xffb\""[..], b"\"\xed\xa0\x80\"", b"\"\\ud800\"", b"\"a", b"\xfe\xff"] {
            let (before, after) = body.split_once("BAD").expect("a place");
            bodies.push([before.as_bytes(), bytes, after.as_bytes()].concat());
        }
        bodies.extend([
            Vec::new(),
            b"\0".to_vec(),
            b"null".to_vec(),
            b"[]".to_vec(),
            b"\xef\xbb\xbf{}".to_vec(),
        ]);
        if let Some(member) = body.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            let member = member.replace("BAD", "\"x\"");
            bodies.push(format!("{{{member},{member}}}").into());
        }
        // A larger body is refused for its size.
        let most = route.body.unwrap_or(usize::MAX);
        for bytes in bodies.into_iter().filter(|bytes| bytes.len() <= most) {
            invalid(&lab, (route.method, path), bytes).await;
        }
    }
    nothing_but(&lab, &mut changes, "end").await;
}

/// All examples, as GET returns them.
async fn everything(lab: &Lab, examples: &[Example]) -> Vec<Value> {
    let mut all = Vec::new();
    for example in examples {
        let mut object = lab.api.get(&example.path()).await.json();
        // The state of the connection to a receiver of logs changes by itself.
        if let Some(status) = object["status"].as_object_mut() {
            status.remove("remote_syslog");
        }
        all.push(object);
    }
    all
}

#[tokio::test]
async fn a_secret_that_is_refused_is_not_repeated() {
    let lab = lab().await;
    for secret in ["hunter2\0".to_owned(), "hunter2".repeat(1000)] {
        let spec = json!({"url": "https://chat.example.com/hook", "secret": secret});
        let refused = lab.api.put("/api/v1/webhooks/chat", &json!({"spec": spec}).to_string()).await;
        assert_eq!(refused.status, 422);
        assert!(!refused.text().contains("hunter2"), "{}", refused.text());
    }
}

/// The index of a spec holds a pointer for each value, with the names around it.
#[tokio::test]
async fn long_names_around_many_values_do_not_fill_the_memory() {
    let lab = lab().await;
    lab.api.declare("/api/v1/zones/a", "{}").await;
    let spec = format!(r#"{{"{}":[0{}]}}"#, "x".repeat(LONG), ",0".repeat(LONG / 3));
    invalid(&lab, ("PUT", "/api/v1/zones/a"), format!(r#"{{"spec":{spec}}}"#)).await;
    invalid(&lab, ("PATCH", "/api/v1/zones/a"), spec.clone()).await;
    let documents = format!(r#"{{"kind":"Zone","metadata":{{"name":"new"}},"spec":{spec}}}"#);
    invalid(&lab, ("POST", "/api/v1/apply"), format!(r#"{{"documents":[{documents}]}}"#)).await;
}

/// Each requested member is copied from each object of a list.
#[tokio::test]
async fn a_member_is_not_asked_for_a_thousand_times() {
    let lab = lab().await;
    let fields = |count: usize| format!("/api/v1/zones?fields={}", vec!["status"; count].join(","));
    assert_eq!(lab.api.get(&fields(64)).await.status, 200);
    let (status, _, errors) = lab.api.get(&fields(1000)).await.problem();
    assert_eq!((status, errors.len()), (422, 1), "{errors:?}");
}

#[tokio::test]
async fn deep_json_is_refused_wherever_it_stands() {
    let lab = lab().await;
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    for depth in [20, 200, 200_000] {
        let deep = nested(depth);
        for body in [
            format!(r#"{{"spec":{{"description":{deep}}}}}"#),
            format!(r#"{{"spec":{deep}}}"#),
            format!(r#"{{"spec":{{}},"metadata":{{"labels":{deep}}}}}"#),
            deep.clone(),
        ] {
            let refused = lab.api.put("/api/v1/zones/deep", &body).await;
            assert_eq!(refused.problem().0, 422, "{depth}: {body:.60}");
        }
    }
    assert_eq!(lab.api.get("/api/v1/zones/deep").await.status, 404);
}

/// The answer on a connection until the region ends it, after `sent` and nothing more.
async fn said_until_the_end(lab: &Lab, sent: &str) -> String {
    let mut stream = TcpStream::connect(lab.region.address()).await.expect("it listens");
    stream.write_all(sent.as_bytes()).await.expect("it reads");
    let mut said = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut said)).await;
    // The end may be a reset, because the region does not read the rest.
    drop(ended.expect("the region ends the connection"));
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_however_it_is_announced() {
    let lab = lab().await;
    let token = lab.api.token.clone().unwrap_or_default();
    let head =
        format!("PUT /api/v1/zones/large HTTP/1.1\r\nHost: region\r\nAuthorization: Bearer {token}\r\n");
    // Exactly one byte too many is sent, so that no byte is unread when the region ends the connection.
    let mebibyte = " ".repeat(0x10_0000);
    let announced = format!("Content-Length: 3000000\r\nConnection: close\r\n\r\n{mebibyte}{mebibyte}x");
    let chunk = format!("100000\r\n{mebibyte}\r\n");
    let chunked = format!("Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n{chunk}{chunk}1\r\nx\r\n");
    for body in [announced, chunked] {
        let said = said_until_the_end(&lab, &format!("{head}{body}")).await;
        assert!(said.starts_with("HTTP/1.1 413 ") && said.contains(r#""code":"too_large""#), "{said}");
    }
    assert_eq!(lab.api.get("/api/v1/zones/large").await.status, 404);
}

#[tokio::test]
async fn a_stranger_sends_72_kib_for_a_login_and_no_more() {
    let lab = lab().await;
    let head = "POST /api/v1/login HTTP/1.1\r\nHost: region\r\nContent-Length: 2000000\r\n\r\n";
    // One byte too many, so that no byte is unread. The rest is never sent.
    let body = " ".repeat((72 << 10) + 1);
    let said = said_until_the_end(&lab, &format!("{head}{body}")).await;
    assert!(said.starts_with("HTTP/1.1 413 ") && said.contains("72 KiB for a login"), "{said}");
}

#[tokio::test]
async fn a_client_that_does_not_send_is_dropped() {
    let lab = lab_with(|settings| settings.client_timeout = Duration::from_millis(300)).await;
    let token = lab.api.token.clone().unwrap_or_default();
    for silent in ["", "GET /healthz HTTP/1.1\r\nHost: reg"] {
        let said = said_until_the_end(&lab, silent).await;
        assert!(!said.contains(" 200 "), "{silent}: {said}");
    }
    let half = format!(
        "PUT /api/v1/zones/slow HTTP/1.1\r\nHost: region\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: 1000\r\n\r\n{{\"spec\""
    );
    let said = said_until_the_end(&lab, &half).await;
    assert!(said.starts_with("HTTP/1.1 408 ") && said.contains(r#""code":"too_slow""#), "{said}");
    assert_eq!(lab.api.get("/api/v1/zones/slow").await.status, 404);
}
