//! Logins by OpenID Connect: the users, their roles, and the end of their sessions.

use crate::accounts::session;
use crate::issuer::Issuer;
use crate::support::{Answer, Client, Lab, lab};
use serde_json::{Value, json};

struct World {
    lab: Lab,
    issuer: Issuer,
}

impl World {
    /// Settings with the issuer: its group `ops` are operators here, and `all` are viewers.
    async fn new() -> Self {
        let (lab, issuer) = (lab().await, Issuer::start().await);
        for role in ["viewer", "operator"] {
            lab.api.declare(&format!("/api/v1/roles/{role}"), &json!({"base": role}).to_string()).await;
        }
        let world = Self { lab, issuer };
        world.trust(&world.issuer).await;
        world
    }

    async fn trust(&self, issuer: &Issuer) {
        let openid = json!({"issuer": issuer.url(), "client_id": "basalt",
            "groups": {"ops": {"roles": ["operator"]}, "all": {"roles": ["viewer"]}}});
        self.lab.api.declare("/api/v1/settings/default", &json!({"openid": openid}).to_string()).await;
    }

    async fn send(&self, body: &Value) -> Answer {
        let anybody = Client::new(self.lab.region.address(), None);
        anybody.send("POST", "/api/v1/login", &[], body.to_string()).await
    }

    async fn login(&self, subject: &str, claims: Value) -> Answer {
        self.send(&json!({"id_token": self.issuer.token(subject, &claims)})).await
    }

    async fn comes_in(&self, subject: &str, claims: Value) -> Client {
        session(&self.lab, &self.login(subject, claims).await)
    }

    /// The reason why a login is refused.
    async fn refused(&self, subject: &str, claims: Value) -> String {
        why(&self.login(subject, claims).await)
    }

    async fn users(&self) -> Vec<Value> {
        let list = self.lab.api.get("/api/v1/users").await.json();
        list["items"].as_array().expect("a list").clone()
    }
}

fn why(answer: &Answer) -> String {
    assert_eq!(answer.status.as_u16(), 401, "{answer:?}");
    answer.json()["detail"].as_str().expect("words").to_owned()
}

async fn may(client: &Client) -> (u16, u16) {
    let write = client.put("/api/v1/zones/a", "{\"spec\":{}}").await.status.as_u16();
    (client.get("/api/v1/zones").await.status.as_u16(), write)
}

#[tokio::test]
async fn who_logs_in_first_becomes_a_user_with_the_roles_of_its_groups_anew_at_each_login() {
    let world = World::new().await;
    let groups = |groups: &[&str]| json!({"preferred_username": "Ada.L@example.com", "groups": groups});
    let ada = world.comes_in("42", groups(&["ops", "golf"])).await;
    assert_eq!(may(&ada).await, (200, 201));
    let me = ada.get("/api/v1/whoami").await.json();
    assert_eq!((&me["actor"], &me["by"]), (&json!("user ada-l"), &json!("session")));
    let user = &world.users().await[0];
    assert_eq!(
        (&user["metadata"]["name"], &user["metadata"]["manager"]),
        (&json!("ada-l"), &json!("openid"))
    );
    assert_eq!(user["spec"]["openid"], json!({"issuer": world.issuer.url(), "subject": "42"}));

    // A user who loses a role loses it in existing sessions too. A new name at the issuer does not rename the user.
    let mut renamed = groups(&["all"]);
    renamed["preferred_username"] = json!("somebody");
    let again = world.comes_in("42", renamed).await;
    assert_eq!((may(&again).await, may(&ada).await), ((200, 403), (200, 403)));
    assert_eq!(world.users().await.len(), 1);
    assert!(world.refused("42", groups(&["golf"])).await.contains("has a role here: golf"));
    assert_eq!(may(&again).await, (403, 403), "who has left all groups has nothing left");

    let log = world.lab.api.get("/api/v1/audit?actor=user%20ada-l&object=User/ada-l").await.json();
    let done = |entry: &Value| (entry["request"].clone(), entry["after"]["session"].clone());
    let told: Vec<_> = log["items"].as_array().expect("entries").iter().map(done).collect();
    let (login, opened, written) = (json!("POST /api/v1/login"), json!("opened"), Value::Null);
    let wanted =
        [written.clone(), opened.clone(), written.clone(), opened, written].map(|what| (login.clone(), what));
    assert_eq!(told, wanted, "{log:#}");
}

#[tokio::test]
async fn settings_say_which_claims_have_the_name_and_the_groups() {
    let world = World::new().await;
    let openid = json!({"issuer": world.issuer.url(), "client_id": "basalt", "name_claim": "nick", "groups_claim": "teams",
        "groups": {"ops": {"roles": ["operator"]}}});
    world.lab.api.declare("/api/v1/settings/default", &json!({"openid": openid}).to_string()).await;
    let claims = json!({"preferred_username": "other", "nick": "ada", "groups": ["golf"], "teams": ["ops"]});
    let ada = world.comes_in("42", claims).await;
    assert_eq!(may(&ada).await, (200, 201));
    assert_eq!(ada.get("/api/v1/whoami").await.json()["actor"], "user ada");
}

#[tokio::test]
async fn nobody_comes_in_who_has_no_role_and_nothing_is_written() {
    let world = World::new().await;
    for claims in [
        json!({"preferred_username": "eve"}),
        json!({"preferred_username": "eve", "groups": []}),
        json!({"preferred_username": "eve", "groups": ["golf", {"ops": true}]}),
        json!({"preferred_username": "eve", "groups": {"ops": true}}),
    ] {
        world.refused("666", claims).await;
    }
    let words = world.refused("666", json!({"preferred_username": "--", "groups": ["ops"]})).await;
    assert!(words.contains("\"preferred_username\" makes no name"), "{words}");
    assert_eq!(world.users().await, [json!(null); 0]);
}

#[tokio::test]
async fn a_user_that_somebody_declares_is_theirs_who_declare_it() {
    let world = World::new().await;
    let api = &world.lab.api;
    let ops = || json!({"preferred_username": "ada", "groups": ["ops"]});
    api.declare("/api/v1/users/ada", r#"{"roles":["viewer"]}"#).await;
    let words = world.refused("42", ops()).await;
    let wanted = format!(
        "User \"ada\" already, who is not said to be this one: its openid would be issuer {}, subject \"42\"",
        world.issuer.url()
    );
    assert!(words.contains(&wanted), "{words}");

    let openid = json!({"issuer": world.issuer.url(), "subject": "42"});
    let spec = |openid: &Value, disabled: bool| {
        json!({"roles": ["viewer"], "openid": openid, "disabled": disabled}).to_string()
    };
    api.declare("/api/v1/users/ada", &spec(&openid, false)).await;
    let ada = world.comes_in("42", ops()).await;
    assert_eq!(may(&ada).await, (200, 403), "the groups say nothing of a user that is declared");
    let other = json!({"spec": {"openid": openid}}).to_string();
    let (status, _, errors) = api.put("/api/v1/users/eve", &other).await.problem();
    assert_eq!(status, 409);
    assert!(
        errors[0].contains("/openid/subject: \"42\" of") && errors[0].contains("User \"ada\" already"),
        "{errors:?}"
    );

    api.declare("/api/v1/users/ada", &spec(&openid, true)).await;
    assert_eq!(may(&ada).await.0, 401);
    assert_eq!(world.refused("42", ops()).await, "User \"ada\" is disabled");
    api.declare("/api/v1/users/ada", &spec(&openid, false)).await;
    assert_eq!(may(&ada).await.0, 200);
    // From now on another subject logs in as ada.
    api.declare("/api/v1/users/ada", &spec(&json!({"issuer": world.issuer.url(), "subject": "43"}), false))
        .await;
    assert_eq!(may(&ada).await.0, 401);
}

#[tokio::test]
async fn a_subject_of_one_issuer_is_nobody_of_another() {
    let mut world = World::new().await;
    let ops = || json!({"preferred_username": "ada", "groups": ["ops"]});
    let ada = world.comes_in("42", ops()).await;
    let theirs = world.issuer.token("42", &ops());
    world.issuer = Issuer::start().await;
    world.trust(&world.issuer).await;
    assert!(why(&world.send(&json!({"id_token": theirs})).await).contains("signature is not the issuer's"));
    assert!(world.refused("42", ops()).await.contains("User \"ada\" already"));
    assert_eq!(may(&ada).await, (200, 201), "sessions go on until they end, or their user changes");
    world.lab.api.declare("/api/v1/settings/default", "{}").await;
    assert!(world.refused("42", ops()).await.contains("Settings name no issuer"));
}

#[tokio::test]
async fn a_login_is_with_a_password_or_with_a_token_never_with_both() {
    let world = World::new().await;
    let ops = |nonce: Value| json!({"preferred_username": "ada", "groups": ["ops"], "nonce": nonce});
    let token = world.issuer.token("42", &ops(json!("n1")));
    assert!(why(&world.send(&json!({"id_token": token, "nonce": "n2"})).await).contains("nonce"));
    assert_eq!(world.send(&json!({"id_token": token, "nonce": "n1"})).await.status.as_u16(), 201);
    for (body, status) in [
        (json!({"id_token": token, "user": "ada"}), 422),
        (json!({"id_token": token, "user": "ada", "password": "x"}), 422),
        (json!({"nonce": "n1"}), 422),
        (json!({"id_token": 7}), 422),
        (json!({"id_token": "x"}), 401),
        (json!({"id_token": "x".repeat(70_000)}), 401),
    ] {
        let answer = world.send(&body).await;
        assert_eq!(answer.status.as_u16(), status, "{body}: {answer:?}");
        assert!(!answer.text().contains(&token), "a token comes back");
    }
    let words = world.refused("42", json!({"aud": "grafana", "groups": ["ops"]})).await;
    assert_eq!(words, "the ID token is not good: it is for \"grafana\"");
}

#[tokio::test]
async fn keys_that_the_issuer_changed_are_fetched_and_not_more_often_than_once_a_minute() {
    let world = World::new().await;
    let ops = || json!({"preferred_username": "ada", "groups": ["ops"]});
    world.comes_in("42", ops()).await;
    world.comes_in("42", ops()).await;
    assert_eq!(world.issuer.asked(), 1);
    world.issuer.rotate(2);
    world.comes_in("42", ops()).await;
    assert_eq!(world.issuer.asked(), 2);
    world.issuer.rotate(3);
    for _ in 0..3 {
        assert!(
            world
                .refused("42", ops())
                .await
                .contains("signed with key \"key-3\", which the issuer does not have")
        );
    }
    assert_eq!(world.issuer.asked(), 2);
}

#[tokio::test]
async fn issuers_need_not_say_which_key_they_signed_with() {
    let world = World::new().await;
    let ops = || json!({"preferred_username": "ada", "groups": ["ops"]});
    world.issuer.be_silent();
    world.comes_in("42", ops()).await;
    world.issuer.rotate(2);
    world.comes_in("42", ops()).await;
    assert_eq!(world.issuer.asked(), 2);
}

#[tokio::test]
async fn an_issuer_that_is_away_fails_its_own_logins_alone() {
    let world = World::new().await;
    let ops = || json!({"preferred_username": "ada", "groups": ["ops"]});
    world.lab.api.declare("/api/v1/users/bob", r#"{"password":"correct horse","roles":["viewer"]}"#).await;
    world.comes_in("42", ops()).await;
    world.issuer.is_away(true);
    world.comes_in("42", ops()).await;
    let known = world.issuer.token("42", &ops());
    world.issuer.rotate(2);
    let answer = world.login("42", ops()).await;
    assert_eq!(answer.status.as_u16(), 503);
    let again = world.send(&json!({"id_token": known})).await;
    assert_eq!(again.status.as_u16(), 201, "keys that are known stay good");
    let words = answer.json()["detail"].as_str().expect("words").to_owned();
    assert!(words.contains(&world.issuer.url()) && words.contains("answered 502"), "{words}");
    let bob = world.send(&json!({"user": "bob", "password": "correct horse"})).await;
    assert_eq!(may(&session(&world.lab, &bob)).await.0, 200);
}

#[tokio::test]
async fn another_password_ends_the_sessions_without_one_as_well() {
    let world = World::new().await;
    let api = &world.lab.api;
    // The issuer's scheme is written in capitals, unlike in Settings.
    let issuer = world.issuer.url().replace("http:", "HTTP:");
    let user = |password: Value| {
        json!({"roles": ["viewer"], "openid": {"issuer": issuer, "subject": "42"}, "password": password})
            .to_string()
    };
    api.declare("/api/v1/users/ada", &user(Value::Null)).await;
    let before = world.comes_in("42", json!({})).await;
    let change = json!({"present": "x", "password": "correct horse"}).to_string();
    let refused = before.send("POST", "/api/v1/password", &[], change).await;
    assert!(refused.status.as_u16() == 403 && refused.text().contains("has no password"), "{refused:?}");
    api.declare("/api/v1/users/ada", &user(json!("correct horse"))).await;
    assert_eq!(may(&before).await.0, 401);
    let meanwhile = world.comes_in("42", json!({})).await;
    assert_eq!(may(&meanwhile).await.0, 200);
    let ada = session(&world.lab, &world.send(&json!({"user": "ada", "password": "correct horse"})).await);
    let change = json!({"present": "correct horse", "password": "another horse"}).to_string();
    assert_eq!(ada.send("POST", "/api/v1/password", &[], change).await.status.as_u16(), 201);
    assert_eq!(may(&meanwhile).await.0, 401);
}

#[tokio::test]
async fn a_user_that_is_being_deleted_is_nobody_and_no_other_takes_its_place() {
    let world = World::new().await;
    let ops = || json!({"preferred_username": "ada", "groups": ["ops"]});
    world.comes_in("42", ops()).await;
    world.lab.api.declare("/api/v1/api_tokens/of-ada", r#"{"user":"ada"}"#).await;
    world.lab.api.delete("/api/v1/users/ada").await;
    assert!(world.refused("42", ops()).await.starts_with("User \"ada\" is being deleted"));
    world.lab.api.delete("/api/v1/api_tokens/of-ada").await;
    world.comes_in("42", ops()).await;
}

#[tokio::test]
async fn people_who_log_in_at_the_same_time_are_one_user() {
    let world = World::new().await;
    let ops = |all: &str| json!({"preferred_username": "ada", "groups": [all]});
    let logins = (0..8).map(|n| world.login("42", ops(if n % 2 == 0 { "ops" } else { "all" })));
    let answers = futures_util::future::join_all(logins).await;
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
    assert!(statuses.iter().all(|status| *status == 201), "{statuses:?}");
    assert_eq!(world.users().await.len(), 1);
}

/// A login of a browser, up to the issuer's page.
struct Begun {
    cookie: String,
    state: String,
    nonce: String,
    challenge: String,
}

impl World {
    /// Settings with the console's address and a client secret.
    async fn with_console() -> Self {
        let world = Self::new().await;
        let openid = json!({"issuer": world.issuer.url(), "client_id": "basalt", "client_secret": "s:3",
            "console": "https://region", "groups": {"ops": {"roles": ["operator"]}}});
        world.lab.api.declare("/api/v1/settings/default", &json!({"openid": openid}).to_string()).await;
        world
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        Client::new(self.lab.region.address(), None).send(method, path, headers, body).await
    }

    async fn begin(&self) -> Begun {
        let answer = self.ask("GET", "/api/v1/login/openid", &[OWN], &Value::Null).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.headers["cache-control"]),
            (200, &"no-store".parse().unwrap())
        );
        let cookie = answer.headers["set-cookie"].to_str().unwrap();
        assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/; Max-Age=600"), "{cookie}");
        let body = answer.json();
        let location = body["location"].as_str().expect("a page");
        let page = format!(
            "{}/authorize?response_type=code&client_id=basalt&redirect_uri=https%3A%2F%2Fregion%2Fui%2Flogin&scope=openid%20profile&",
            self.issuer.url()
        );
        assert!(location.starts_with(&page), "{location}");
        let of = |name: &str| {
            let value = location.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")));
            value.unwrap_or_else(|| panic!("no {name}: {location}")).to_owned()
        };
        let cookie = cookie.split(';').next().unwrap().to_owned();
        Begun { cookie, state: of("state"), nonce: of("nonce"), challenge: of("code_challenge") }
    }

    /// Makes the issuer accept the code `c` for a token of ada.
    fn grants(&self, begun: &Begun, nonce: &str) {
        let claims = json!({"preferred_username": "ada", "groups": ["ops"], "nonce": nonce});
        self.issuer.grants("c", &begun.challenge, self.issuer.token("42", &claims));
    }

    async fn come_back(&self, cookie: &str, state: &str) -> Answer {
        let headers = [OWN, ("cookie", cookie)];
        let body = json!({"code": "c", "state": state, "iss": self.issuer.url()});
        self.ask("POST", "/api/v1/login?cookie=true", &headers, &body).await
    }
}

/// The header of requests from a page of the region.
const OWN: (&str, &str) = ("sec-fetch-site", "same-origin");

#[tokio::test]
async fn a_browser_goes_by_way_of_the_issuer_and_comes_back_with_a_session_once() {
    let world = World::with_console().await;
    let ways = world.ask("GET", "/api/v1/login", &[], &Value::Null).await.json();
    assert_eq!(ways, json!({"openid": world.issuer.url().replace("http://", "")}));
    let begun = world.begin().await;
    world.grants(&begun, &begun.nonce);
    let session = world.come_back(&begun.cookie, &begun.state).await;
    assert_eq!(session.status, 204, "{session:?}");
    let session = session.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let me = world.ask("GET", "/api/v1/whoami", &[("cookie", &session)], &Value::Null).await.json();
    assert_eq!((&me["actor"], &me["by"]), (&json!("user ada"), &json!("session")));

    world.grants(&begun, &begun.nonce);
    let words = why(&world.come_back(&begun.cookie, &begun.state).await);
    assert!(words.contains("this login was used before"), "{words}");
}

#[tokio::test]
async fn no_other_browser_state_or_token_ends_a_login() {
    let world = World::with_console().await;
    let (mine, theirs) = (world.begin().await, world.begin().await);
    world.grants(&theirs, &theirs.nonce);
    let words = why(&world.come_back("a=b", &theirs.state).await);
    assert!(words.contains("this browser began no login"), "{words}");
    let words = why(&world.come_back(&mine.cookie, &theirs.state).await);
    assert!(words.contains("the issuer's answer is to another login"), "{words}");
    let words = why(&world.come_back(&mine.cookie, &mine.state).await);
    assert!(words.contains("this login was used before"), "a wrong state uses it up: {words}");

    // The code of one login in another login: the verifier does not match the challenge.
    let fresh = world.begin().await;
    let words = why(&world.come_back(&fresh.cookie, &fresh.state).await);
    assert!(words.contains("does not take its code") && words.contains("invalid_grant"), "{words}");
    let fresh = world.begin().await;
    world.grants(&fresh, &mine.nonce);
    let words = why(&world.come_back(&fresh.cookie, &fresh.state).await);
    assert!(words.contains("its nonce is not the one of this login"), "{words}");
    assert_eq!(world.users().await, [json!(null); 0]);
}

#[tokio::test]
async fn a_login_begins_on_a_page_of_the_console_alone() {
    let world = World::with_console().await;
    let begin = async |headers: &[(&str, &str)]| {
        world.ask("GET", "/api/v1/login/openid", headers, &Value::Null).await.problem()
    };
    for headers in [&[][..], &[("sec-fetch-site", "cross-site")], &[("sec-fetch-site", "same-site")]] {
        assert_eq!(begin(headers).await.0, 403, "{headers:?}");
    }
    let openid = json!({"issuer": world.issuer.url(), "client_id": "basalt", "console": "https://elsewhere", "groups": {}});
    world.lab.api.declare("/api/v1/settings/default", &json!({"openid": openid}).to_string()).await;
    let elsewhere = begin(&[OWN]).await;
    assert_eq!(elsewhere.0, 403, "the cookie would stay at this host: {elsewhere:?}");

    // Without the console's address there is no button and no such login.
    world.trust(&world.issuer).await;
    assert_eq!(world.ask("GET", "/api/v1/login", &[], &Value::Null).await.json(), json!({}));
    let refused = world.ask("GET", "/api/v1/login/openid", &[OWN], &Value::Null).await;
    assert!(why(&refused).contains("openid.console"), "{refused:?}");
}
