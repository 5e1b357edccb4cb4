//! Roles, users, sessions and tokens.

use crate::support::{Answer, Client, Lab, lab};
use basalt_api::values::Timestamp;
use serde_json::{Value, json};

/// Declares roles for everywhere and one for the pool `blue`, and a machine and a deployment in each of two pools.
pub(crate) async fn pools(api: &Client) {
    for role in ["viewer", "operator", "admin"] {
        api.declare(&format!("/api/v1/roles/{role}"), &format!("{{\"base\":\"{role}\"}}")).await;
    }
    let sha256 = "0".repeat(64);
    let image = format!(
        r#"{{"os":"debian","release":"12","architecture":"amd64","files":{{"root_tarball":{{"sha256":"{sha256}"}}}}}}"#
    );
    api.declare("/api/v1/images/debian", &image).await;
    for (number, pool) in ["blue", "red"].into_iter().enumerate() {
        api.declare(&format!("/api/v1/pools/{pool}"), "{}").await;
        let machine = json!({"pool": pool, "boot_macs": [format!("52:54:00:00:00:0{number}")]});
        api.declare(&format!("/api/v1/machines/{pool}"), &machine.to_string()).await;
        let deployment = json!({"machine": pool, "image": "debian"});
        api.declare(&format!("/api/v1/deployments/{pool}"), &deployment.to_string()).await;
    }
    api.declare("/api/v1/roles/blue", r#"{"base":"operator","pools":["blue"]}"#).await;
}

/// Declares an ApiToken and issues its text.
pub(crate) async fn issue(lab: &Lab, name: &str, spec: &str) -> String {
    lab.api.declare(&format!("/api/v1/api_tokens/{name}"), spec).await;
    let answer = lab.api.send("POST", &format!("/api/v1/api_tokens/{name}/issue"), &[], "").await;
    assert_eq!(answer.status.as_u16(), 201, "{answer:?}");
    answer.json()["token"].as_str().unwrap().to_owned()
}

async fn token(lab: &Lab, name: &str, spec: &str) -> Client {
    Client::new(lab.region.address(), Some(issue(lab, name, spec).await))
}

async fn login(lab: &Lab, user: &str, password: &str) -> Answer {
    let anybody = Client::new(lab.region.address(), None);
    let body = json!({"user": user, "password": password}).to_string();
    anybody.send("POST", "/api/v1/login", &[], body).await
}

pub(crate) fn session(lab: &Lab, answer: &Answer) -> Client {
    assert_eq!(answer.status.as_u16(), 201, "{answer:?}");
    let token = answer.json()["token"].as_str().unwrap().to_owned();
    Client::new(lab.region.address(), Some(token))
}

/// A problem without the id of its request, which is always another one.
fn nameless(answer: &Answer) -> Value {
    let mut problem = answer.json();
    problem.as_object_mut().unwrap().remove("request_id");
    problem
}

async fn status(client: &Client, path: &str) -> u16 {
    client.get(path).await.status.as_u16()
}

async fn names(client: &Client, plural: &str) -> Vec<String> {
    let list = client.get(&format!("/api/v1/{plural}")).await.json();
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    list["items"].as_array().unwrap().iter().map(name).collect()
}

#[tokio::test]
async fn a_role_for_a_pool_sees_and_changes_that_pool_alone() {
    let lab = lab().await;
    pools(&lab.api).await;
    let blue = token(&lab, "blue", r#"{"role":"blue"}"#).await;
    for plural in ["machines", "deployments"] {
        assert_eq!(names(&blue, plural).await, ["blue"], "{plural}");
    }
    assert_eq!(names(&blue, "pools").await, ["blue", "red"]);
    let put = async |path: &str, spec: Value| {
        let answer = blue.put(path, &json!({"spec": spec}).to_string()).await;
        (answer.status.as_u16(), answer.json()["code"].as_str().unwrap_or_default().to_owned())
    };
    let macs = |n: u32| json!([format!("52:54:00:00:01:0{n}")]);
    let is = |status: u16, code: &str| (status, code.to_owned());
    assert_eq!(put("/api/v1/machines/new", json!({"pool": "blue", "boot_macs": macs(1)})).await, is(201, ""));
    assert_eq!(put("/api/v1/machines/new", json!({"pool": "blue", "boot_macs": macs(2)})).await, is(200, ""));
    assert_eq!(
        put("/api/v1/machines/new", json!({"pool": "red", "boot_macs": macs(2)})).await,
        is(403, "forbidden")
    );
    assert_eq!(put("/api/v1/machines/new", json!({"boot_macs": macs(2)})).await, is(403, "forbidden"));
    assert_eq!(
        put("/api/v1/machines/red", json!({"pool": "blue", "boot_macs": macs(3)})).await,
        is(404, "not_found")
    );
    assert_eq!(
        put("/api/v1/deployments/x", json!({"image": "debian", "machine": "red"})).await,
        put("/api/v1/deployments/x", json!({"image": "debian", "machine": "nowhere"})).await,
        "what is not seen is not there"
    );
    let select = |selector: Value| json!({"image": "debian", "selector": selector});
    assert_eq!(put("/api/v1/deployments/x", select(json!({"pool": "red"}))).await, is(403, "forbidden"));
    assert_eq!(put("/api/v1/deployments/x", select(json!({}))).await, is(403, "forbidden"));
    assert_eq!(put("/api/v1/deployments/x", select(json!({"pool": "blue"}))).await, is(201, ""));
    assert_eq!(names(&blue, "deployments").await, ["blue", "x"]);

    let merge = [("content-type", "application/merge-patch+json")];
    let patched = blue.send("PATCH", "/api/v1/machines/new", &merge, r#"{"pool":"red"}"#).await;
    assert_eq!(patched.status.as_u16(), 403, "{patched:?}");

    // The machine moves to another pool: the caller no longer sees it or its deployment.
    let moved = json!({"pool": "red", "boot_macs": ["52:54:00:00:00:00"]});
    lab.api.declare("/api/v1/machines/blue", &moved.to_string()).await;
    assert_eq!(names(&blue, "machines").await, ["new"]);
    assert_eq!(status(&blue, "/api/v1/machines/blue").await, 404);
    assert_eq!(status(&blue, "/api/v1/deployments/blue").await, 404);
}

#[tokio::test]
async fn a_role_for_no_pool_sees_no_machine_and_is_not_for_all() {
    let lab = lab().await;
    pools(&lab.api).await;
    lab.api.declare("/api/v1/roles/none", r#"{"base":"admin","pools":[]}"#).await;
    let nobody = token(&lab, "nobody", r#"{"role":"none"}"#).await;
    for plural in ["machines", "deployments"] {
        assert_eq!(names(&nobody, plural).await, Vec::<String>::new(), "{plural}");
    }
    assert_eq!(nobody.put("/api/v1/zones/a", "{\"spec\":{}}").await.status.as_u16(), 403);
    lab.api.declare("/api/v1/roles/none", r#"{"base":"viewer"}"#).await;
    assert_eq!(names(&nobody, "machines").await, ["blue", "red"], "without the field it is for all");
}

#[tokio::test]
async fn a_user_logs_in_and_a_wrong_password_is_answered_as_an_unknown_user_is() {
    let lab = lab().await;
    pools(&lab.api).await;
    let user = |password: Value| json!({"password": password, "roles": ["viewer"]}).to_string();
    lab.api.declare("/api/v1/users/alice", &user(json!("correct horse battery"))).await;
    lab.api.declare("/api/v1/users/bob", r#"{"roles":["viewer"]}"#).await;
    let read = lab.api.get("/api/v1/users/alice").await.json();
    assert_eq!(read["spec"]["password"], json!({"set": true, "revision": 1}));

    let alice = session(&lab, &login(&lab, "alice", "correct horse battery").await);
    assert_eq!(status(&alice, "/api/v1/zones").await, 200);
    assert_eq!(alice.put("/api/v1/zones/a", "{\"spec\":{}}").await.status.as_u16(), 403);
    let wrong = login(&lab, "alice", "incorrect horse battery").await;
    let others =
        [login(&lab, "nobody", "x").await, login(&lab, "bob", "x").await, login(&lab, "No Name", "").await];
    assert_eq!((wrong.problem().0, wrong.problem().1.as_str()), (401, "unauthenticated"));
    for other in others {
        assert_eq!(nameless(&other), nameless(&wrong));
    }

    // The same password again is no change and ends no session. Another password ends all of them.
    lab.api.declare("/api/v1/users/alice", &user(json!("correct horse battery"))).await;
    assert_eq!(lab.api.get("/api/v1/users/alice").await.json()["metadata"]["generation"], 1);
    assert_eq!(status(&alice, "/api/v1/zones").await, 200);
    lab.api.declare("/api/v1/users/alice", &user(json!("another horse altogether"))).await;
    assert_eq!(status(&alice, "/api/v1/zones").await, 401);
    assert_eq!(login(&lab, "alice", "correct horse battery").await.status.as_u16(), 401);
    let alice = session(&lab, &login(&lab, "alice", "another horse altogether").await);

    let disabled = json!({"password": {"set": true, "revision": 2}, "roles": ["viewer"], "disabled": true});
    lab.api.declare("/api/v1/users/alice", &disabled.to_string()).await;
    assert_eq!(status(&alice, "/api/v1/zones").await, 401);
    let disabled = login(&lab, "alice", "another horse altogether").await;
    assert_eq!(nameless(&disabled), nameless(&wrong));

    for (password, words) in [("short", "fewer than 10"), (&"x".repeat(1025), "more than 1024")] {
        let answer =
            lab.api.put("/api/v1/users/carol", &json!({"spec": {"password": password}}).to_string()).await;
        let (status, _, errors) = answer.problem();
        assert_eq!(status, 422);
        assert!(errors[0].starts_with("/spec/password: ") && errors[0].contains(words), "{errors:?}");
        assert!(!answer.text().contains(password));
    }
}

#[tokio::test]
async fn a_session_ends_at_logout_and_both_are_in_the_audit_log() {
    let lab = lab().await;
    pools(&lab.api).await;
    lab.api.declare("/api/v1/users/alice", r#"{"password":"correct horse","roles":["operator"]}"#).await;
    let alice = session(&lab, &login(&lab, "alice", "correct horse").await);
    alice.declare("/api/v1/zones/a", "{}").await;
    assert_eq!(alice.send("POST", "/api/v1/logout", &[], "").await.status.as_u16(), 204);
    assert_eq!(status(&alice, "/api/v1/zones").await, 401);
    assert_eq!(lab.api.send("POST", "/api/v1/logout", &[], "").await.problem().0, 404);
    let log = lab.api.get("/api/v1/audit?actor=user%20alice").await.json();
    let told: Vec<_> =
        log["items"].as_array().unwrap().iter().map(|e| (e["kind"].clone(), e["after"].clone())).collect();
    let wanted =
        [("User", json!({"session": "closed"})), ("Zone", json!({})), ("User", json!({"session": "opened"}))];
    assert_eq!(told, wanted.map(|(kind, after)| (json!(kind), after)));
}

#[tokio::test]
async fn a_user_changes_its_password_in_a_session_and_every_other_session_ends() {
    let lab = lab().await;
    pools(&lab.api).await;
    let (present, next) = ("correct horse battery", "another horse altogether");
    lab.api.declare("/api/v1/users/alice", &json!({"password": present}).to_string()).await;
    let here = session(&lab, &login(&lab, "alice", present).await);
    let elsewhere = session(&lab, &login(&lab, "alice", present).await);
    let change = async |client: &Client, body: Value| {
        client.send("POST", "/api/v1/password", &[], body.to_string()).await
    };
    let refused = [
        (json!({"present": "incorrect horse", "password": next}), 403, "the present password is another one"),
        (json!({"present": present, "password": "short"}), 422, "fewer than 10"),
        (json!({"present": present, "password": present}), 422, "this is the present password"),
        (json!({"present": present}), 422, "the body is no change of a password"),
    ];
    for (body, status, words) in refused {
        let answer = change(&here, body).await;
        assert_eq!(answer.status.as_u16(), status, "{answer:?}");
        assert!(answer.text().contains(words) && !answer.text().contains(present), "{answer:?}");
    }
    assert_eq!(status(&elsewhere, "/api/v1/whoami").await, 200, "what is refused ends nothing");

    let answer = change(&here, json!({"present": present, "password": next})).await;
    let fresh = session(&lab, &answer);
    for (client, answered) in [(&here, 401), (&elsewhere, 401), (&fresh, 200)] {
        assert_eq!(status(client, "/api/v1/whoami").await, answered);
    }
    assert_eq!(login(&lab, "alice", present).await.status.as_u16(), 401);
    session(&lab, &login(&lab, "alice", next).await);
    let read = lab.api.get("/api/v1/users/alice").await.json();
    assert_eq!(
        (&read["metadata"]["generation"], &read["spec"]["password"]["revision"]),
        (&json!(2), &json!(2))
    );

    // A token is no session, even if it belongs to the user.
    let laptop = token(&lab, "laptop", r#"{"user":"alice"}"#).await;
    let answer = change(&laptop, json!({"present": next, "password": present})).await;
    assert_eq!((answer.problem().0, answer.problem().1.as_str()), (403, "forbidden"));
}

#[tokio::test]
async fn passwords_are_not_guessed_by_changing_them() {
    let lab = lab().await;
    lab.api.declare("/api/v1/users/alice", r#"{"password":"correct horse battery"}"#).await;
    let alice = session(&lab, &login(&lab, "alice", "correct horse battery").await);
    let body = r#"{"present":"a guess","password":"another horse altogether"}"#;
    let mut tries = 0;
    while alice.send("POST", "/api/v1/password", &[], body).await.status.as_u16() == 403 {
        tries += 1;
        assert!(tries < 100, "nobody is stopped");
    }
    let answer = alice.send("POST", "/api/v1/password", &[], body).await;
    assert_eq!((answer.problem().0, answer.problem().1.as_str()), (429, "rate_limited"), "after {tries}");
    let answer = login(&lab, "alice", "correct horse battery").await;
    assert_eq!(answer.status.as_u16(), 429, "it counts as a login does");
}

#[tokio::test]
async fn everybody_is_told_who_they_are() {
    let lab = lab().await;
    pools(&lab.api).await;
    lab.api
        .declare("/api/v1/users/alice", r#"{"password":"correct horse battery","roles":["blue","viewer"]}"#)
        .await;
    lab.api.declare("/api/v1/users/bob", r#"{"password":"correct horse battery"}"#).await;
    let spec = r#"{"user":"alice","scopes":["zones"],"expires_at":"2100-01-01T00:00:00Z"}"#;
    let laptop = token(&lab, "laptop", spec).await;
    let who = async |client: &Client| {
        let answer = client.get("/api/v1/whoami").await;
        assert_eq!(answer.status.as_u16(), 200, "{answer:?}");
        answer.json()
    };
    let uid = async |path: &str| lab.api.get(path).await.json()["metadata"]["uid"].clone();

    let mut alice = who(&session(&lab, &login(&lab, "alice", "correct horse battery").await)).await;
    let ends: Timestamp = alice["expires_at"].as_str().unwrap().parse().unwrap();
    assert!(ends > Timestamp::now(), "{alice}");
    alice["roles"].as_array_mut().unwrap().sort_by_key(|role| role["role"].to_string());
    let roles = json!([{"role": "operator", "pools": ["blue"]}, {"role": "viewer"}]);
    let wanted = json!({
        "actor": "user alice", "by": "session", "name": "alice", "uid": uid("/api/v1/users/alice").await, "user": "alice",
        "roles": roles, "scopes": [], "expires_at": alice["expires_at"],
    });
    assert_eq!(alice, wanted);

    let mut told = who(&laptop).await;
    told["roles"].as_array_mut().unwrap().sort_by_key(|role| role["role"].to_string());
    let wanted = json!({
        "actor": "token laptop", "by": "token", "name": "laptop", "uid": uid("/api/v1/api_tokens/laptop").await,
        "user": "alice", "roles": roles, "scopes": ["zones"], "expires_at": "2100-01-01T00:00:00Z",
    });
    assert_eq!(told, wanted, "scopes do not keep a token from asking");

    let bob = who(&session(&lab, &login(&lab, "bob", "correct horse battery").await)).await;
    assert_eq!((&bob["actor"], &bob["roles"]), (&json!("user bob"), &json!([])), "without a role too");
}

#[tokio::test]
async fn logins_are_limited_by_user_with_a_time_to_wait() {
    let lab = lab().await;
    // There may be more than ten tries if the hashes take so long that a part of the wait is over.
    let mut tries = 0;
    let answer = loop {
        let answer = login(&lab, "mallory", "guess").await;
        if answer.status.as_u16() != 401 {
            break answer;
        }
        tries += 1;
        assert!(tries < 100, "nobody is stopped");
    };
    assert!(tries >= 10, "stopped after {tries}");
    assert_eq!((answer.problem().0, answer.problem().1.as_str()), (429, "rate_limited"));
    let seconds: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=7).contains(&seconds), "{seconds}");
    assert_eq!(login(&lab, "somebody-else", "guess").await.status.as_u16(), 401);
}

#[tokio::test]
async fn a_token_is_shown_once_and_another_one_ends_it() {
    let lab = lab().await;
    pools(&lab.api).await;
    let first = token(&lab, "ci", r#"{"role":"viewer"}"#).await;
    let text = first.token.clone().unwrap();
    assert_eq!(status(&first, "/api/v1/zones").await, 200);
    let read = lab.api.get("/api/v1/api_tokens/ci").await;
    assert!(!read.text().contains(&text));
    assert!(read.json()["status"]["issued_at"].is_string() && read.json()["status"]["last_used"].is_string());
    let second = token(&lab, "ci", r#"{"role":"viewer"}"#).await;
    assert_eq!((status(&first, "/api/v1/zones").await, status(&second, "/api/v1/zones").await), (401, 200));
    lab.api.declare("/api/v1/api_tokens/ci", r#"{"role":"viewer","disabled":true}"#).await;
    assert_eq!(status(&second, "/api/v1/zones").await, 401);
    lab.api.declare("/api/v1/api_tokens/ci", r#"{"role":"viewer"}"#).await;
    assert_eq!(status(&second, "/api/v1/zones").await, 200);
    lab.api.delete("/api/v1/api_tokens/ci").await;
    assert_eq!(status(&second, "/api/v1/zones").await, 401);
    assert_eq!(lab.api.send("POST", "/api/v1/api_tokens/ci/issue", &[], "").await.problem().0, 404);
    for bad in [
        json!({}),
        json!({"role": "viewer", "user": "x"}),
        json!({"role": "viewer", "scopes": ["machine"]}),
        json!({"role": "viewer", "scopes": []}),
    ] {
        let answer = lab.api.put("/api/v1/api_tokens/bad", &json!({"spec": bad}).to_string()).await;
        assert_eq!(answer.status.as_u16(), 422, "{bad}");
    }
}

#[tokio::test]
async fn a_token_of_a_user_has_the_user_s_roles_and_ends_with_the_user() {
    let lab = lab().await;
    pools(&lab.api).await;
    lab.api.declare("/api/v1/users/alice", r#"{"roles":["blue","viewer"]}"#).await;
    let alice = token(&lab, "laptop", r#"{"user":"alice"}"#).await;
    assert_eq!(names(&alice, "machines").await, ["blue", "red"], "a viewer of everything");
    let rename = async |machine: &str| {
        alice.send("POST", &format!("/api/v1/machines/{machine}/rename"), &[], "").await.status.as_u16()
    };
    assert_eq!((rename("blue").await, rename("red").await), (422, 403), "an operator of blue");
    lab.api.declare("/api/v1/users/alice", r#"{"roles":["blue","viewer"],"disabled":true}"#).await;
    assert_eq!(status(&alice, "/api/v1/machines").await, 401);
}

#[tokio::test]
async fn scopes_limit_a_token_to_kinds_and_to_looking() {
    let lab = lab().await;
    pools(&lab.api).await;
    let ci = token(&lab, "ci", r#"{"role":"operator","scopes":["machines:read","zones"]}"#).await;
    assert_eq!((status(&ci, "/api/v1/machines").await, status(&ci, "/api/v1/pools").await), (200, 403));
    ci.declare("/api/v1/zones/a", "{}").await;
    let refused = ci.delete("/api/v1/machines/red").await;
    assert_eq!(refused.status.as_u16(), 403);
    let said = "DELETE /api/v1/machines/red is not among this token's scopes: it needs \"machines\" there";
    assert!(refused.text().contains(&said.replace('"', "\\\"")), "as it was asked: {}", refused.text());
    assert_eq!(ci.send("POST", "/api/v1/apply", &[], "{\"documents\":[]}").await.status.as_u16(), 403);
}

#[tokio::test]
async fn an_operator_does_not_become_an_admin_by_apply() {
    let lab = lab().await;
    pools(&lab.api).await;
    let operator = token(&lab, "ci", r#"{"role":"operator"}"#).await;
    let gitops = [("x-basalt-manager", "gitops")];
    let admin = json!({"kind": "Role", "metadata": {"name": "mine"}, "spec": {"base": "admin"}});
    let apply = async |client: &Client, body: Value| {
        client.send("POST", "/api/v1/apply", &gitops, body.to_string()).await
    };
    for query in ["", "?dry_run=true"] {
        let body = json!({"documents": [admin]}).to_string();
        let answer = operator.send("POST", &format!("/api/v1/apply{query}"), &gitops, body).await;
        assert_eq!(answer.problem().0, 403, "{answer:?}");
    }
    let labelled = json!({"kind": "Role", "metadata": {"name": "mine", "labels": {"set": "x"}}, "spec": {"base": "viewer"}});
    assert_eq!(apply(&lab.api, json!({"documents": [labelled]})).await.status.as_u16(), 200);
    let pruned = apply(&operator, json!({"documents": [], "prune": "set=x"})).await;
    assert_eq!((pruned.status.as_u16(), &pruned.json()["results"]), (200, &json!([])), "{pruned:?}");
    assert_eq!(status(&lab.api, "/api/v1/roles/mine").await, 200);
}

#[tokio::test]
async fn an_apply_of_a_role_for_a_pool_is_judged_document_by_document() {
    let lab = lab().await;
    pools(&lab.api).await;
    let blue = token(&lab, "blue", r#"{"role":"blue"}"#).await;
    let gitops = [("x-basalt-manager", "gitops")];
    let apply = async |client: &Client, query: &str, body: Value| {
        client.send("POST", &format!("/api/v1/apply{query}"), &gitops, body.to_string()).await
    };
    let document = |kind: &str, name: &str, spec: Value| json!({"kind": kind, "metadata": {"name": name, "labels": {"set": "x"}}, "spec": spec});
    let machine = |name: &str, pool: &str, number: u32| {
        document("Machine", name, json!({"pool": pool, "boot_macs": [format!("52:54:00:00:02:0{number}")]}))
    };
    let of_red = document("Deployment", "d", json!({"machine": "red", "image": "debian"}));
    let cases = [
        (
            json!([machine("a", "blue", 1), document("Zone", "z", json!({}))]),
            (403, "forbidden"),
            vec!["/documents/1"],
        ),
        (
            json!([machine("a", "blue", 1), machine("red", "blue", 2)]),
            (404, "not_found"),
            vec!["/documents/1/spec"],
        ),
        (
            json!([machine("b", "red", 1), machine("a", "blue", 2), machine("c", "green", 3), of_red]),
            (422, "reference_not_found"),
            vec!["/documents/2/spec/pool", "/documents/3/spec/machine"],
        ),
        (
            json!([machine("b", "red", 1), machine("a", "blue", 2)]),
            (403, "forbidden"),
            vec!["/documents/0/spec/pool"],
        ),
        (json!([of_red]), (422, "reference_not_found"), vec!["/documents/0/spec/machine"]),
    ];
    for (documents, (status, code), pointers) in cases {
        let answer = apply(&blue, "", json!({"documents": documents})).await;
        let problem = answer.json();
        let found: Vec<&str> =
            problem["errors"].as_array().unwrap().iter().map(|e| e["pointer"].as_str().unwrap()).collect();
        assert_eq!((answer.status.as_u16(), problem["code"].as_str()), (status, Some(code)), "{answer:?}");
        assert_eq!(found, pointers, "{answer:?}");
    }
    assert_eq!(names(&blue, "machines").await, ["blue"], "all or nothing");
    let two = json!([
        machine("a", "blue", 1),
        document("Deployment", "d", json!({"machine": "a", "image": "debian"}))
    ]);
    assert_eq!(apply(&blue, "?dry_run=true", json!({"documents": two})).await.status.as_u16(), 200);
    assert_eq!(apply(&blue, "", json!({"documents": two})).await.status.as_u16(), 200);

    // Objects that the caller may not delete are not pruned.
    let others = json!([machine("b", "red", 2), document("Zone", "z", json!({}))]);
    assert_eq!(apply(&lab.api, "", json!({"documents": others})).await.status.as_u16(), 200);
    let pruned = apply(&blue, "", json!({"documents": [], "prune": "set=x"})).await.json();
    let gone: Vec<_> =
        pruned["results"].as_array().unwrap().iter().map(|r| (&r["kind"], &r["name"])).collect();
    assert_eq!(gone, [(&json!("Deployment"), &json!("d")), (&json!("Machine"), &json!("a"))]);
}

#[tokio::test]
async fn a_token_that_has_expired_already_is_refused_with_its_end_and_the_time() {
    let lab = lab().await;
    pools(&lab.api).await;
    let put = async |name: &str, spec: &str| {
        lab.api.put(&format!("/api/v1/api_tokens/{name}"), &format!("{{\"spec\":{spec}}}")).await
    };
    let past = r#"{"role":"viewer","expires_at":"2020-01-01T00:00:00Z"}"#;
    let (status, _, errors) = put("ci", past).await.problem();
    assert_eq!(status, 422);
    let says =
        "/spec/expires_at: the token has expired already: it ends at 2020-01-01T00:00:00Z, and now it is ";
    assert!(errors[0].starts_with(says), "{errors:?}");
    let tried = put("ci?dry_run=true", past).await.json();
    assert_eq!(tried["advisories"][0]["pointer"], "/spec/expires_at", "{tried}");
    assert_eq!(lab.api.get("/api/v1/api_tokens/ci").await.status, 404);

    let ends = Timestamp::now() + std::time::Duration::from_secs(2);
    let soon = format!("{{\"role\":\"viewer\",\"expires_at\":\"{ends}\"}}");
    assert_eq!(put("ci", &soon).await.status, 201);
    let issue = async || lab.api.send("POST", "/api/v1/api_tokens/ci/issue", &[], "").await;
    while issue().await.status == 201 {
        tokio::task::yield_now().await;
    }
    let (status, _, errors) = issue().await.problem();
    assert_eq!(status, 422, "its text would be good for nothing");
    assert!(errors[0].starts_with("/expires_at: the token has expired already"), "{errors:?}");
    assert_eq!(put("ci", &soon).await.status, 200, "it can be declared as it is");
}
