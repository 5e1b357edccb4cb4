//! Login by OpenID Connect: a foreign issuer, its code flow, and the operator's command.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use basalt_lab::site::Programs;
use basalt_region::region::Region;
use basalt_region::settings::Settings;
use basalt_tests::browser;
use serde_json::{Value, json};
use tempfile::TempDir;

/// oidc-provider-mock (`tests/openid`) on a port of loopback, until it is dropped.
struct Issuer {
    process: Child,
    url: String,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Issuer {
    /// Starts an issuer with these people, each given by the claims.
    fn start(people: &[&str]) -> Self {
        let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("python-tools");
        let tools = Command::new(&setup).arg("openid").output().expect("the tools");
        assert!(tools.status.success(), "{}", String::from_utf8_lossy(&tools.stderr));
        let program = Path::new(String::from_utf8_lossy(&tools.stdout).trim()).join("oidc-provider-mock");
        let mut command = Command::new(program);
        command.args(["--host", "127.0.0.1", "--port", "0"]).stderr(Stdio::piped()).stdout(Stdio::null());
        for claims in people {
            command.args(["--user-claims", claims]);
        }
        let mut process = command.spawn().expect("it runs");
        let mut lines = BufReader::new(process.stderr.take().expect("its log")).lines();
        let url = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, url) = line.split_once("running on ")?;
            url.split_whitespace().next().map(str::to_owned)
        });
        // A process blocks once its pipe is full, so a thread reads the log.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, url: url.expect("it says where it listens") }
    }

    /// Registers a client whose browsers are redirected to `back`. Returns its id and its secret.
    fn register(&self, back: &str) -> (String, String) {
        let client =
            json!({"client_name": "basalt", "redirect_uris": [back], "scope": "openid profile"}).to_string();
        let url = format!("{}/oauth2/clients", self.url);
        let answer = curl(&["--header", "content-type: application/json", "--data", &client, &url]);
        let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|_| panic!("no client: {answer}"));
        let of =
            |name: &str| answer[name].as_str().unwrap_or_else(|| panic!("no {name}: {answer}")).to_owned();
        (of("client_id"), of("client_secret"))
    }

    /// Runs the code flow as a browser and a client with a secret. Returns an ID token for this person.
    fn token(&self, subject: &str) -> String {
        let query =
            "client_id=basalt&redirect_uri=http://localhost/back&response_type=code&scope=openid+profile";
        let back = curl(&[
            "--write-out",
            "%{redirect_url}",
            "--data",
            &format!("sub={subject}"),
            &format!("{}/oauth2/authorize?{query}", self.url),
        ]);
        let code = back.split_once("code=").unwrap_or_else(|| panic!("no code: {back}")).1.to_owned();
        let form = format!("grant_type=authorization_code&code={code}&redirect_uri=http://localhost/back");
        let answer =
            curl(&["--user", "basalt:secret", "--data", &form, &format!("{}/oauth2/token", self.url)]);
        let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|_| panic!("no token: {answer}"));
        answer["id_token"].as_str().expect("an ID token").to_owned()
    }
}

fn curl(args: &[&str]) -> String {
    let output =
        Command::new("curl").args(["--silent", "--show-error", "--max-time", "30"]).args(args).output();
    let output = output.expect("curl runs");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A region, and a person's home directory.
struct World {
    home: TempDir,
    region: Region,
    program: PathBuf,
}

impl World {
    async fn new() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let mut settings = Settings::new(home.path().join("region"));
        settings.database_url = Some(basalt_db::testing::database().await);
        settings.listen = ([127, 0, 0, 1], 0).into();
        let region = Box::pin(Region::start(settings)).await.expect("a region");
        Self { home, region, program: Programs::find().expect("programs").path("basalt") }
    }

    /// Runs the command with this standard input, as an admin or as the person. Returns its output, and true for
    /// success.
    async fn basalt(&self, is_admin: bool, args: &[&str], input: String) -> (bool, String) {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .current_dir(self.home.path())
            .env("HOME", self.home.path())
            .env("BASALT_ENDPOINT", format!("http://{}", self.region.address()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for name in ["BASALT_TOKEN", "BASALT_TOKEN_FILE", "BASALT_USER", "XDG_CONFIG_HOME"] {
            command.env_remove(name);
        }
        if is_admin {
            command.env("BASALT_TOKEN_FILE", self.home.path().join("region/admin-token"));
        }
        let ended = tokio::task::spawn_blocking(move || {
            let mut child = command.spawn()?;
            // The command may end without reading its input.
            let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
            child.wait_with_output()
        });
        let output = ended.await.expect("it ends").expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    async fn ok(&self, is_admin: bool, args: &[&str], input: String) -> String {
        let (done, said) = self.basalt(is_admin, args, input).await;
        assert!(done, "{args:?}: {said}");
        said
    }

    async fn login(&self, token: String) -> (bool, String) {
        self.basalt(false, &["login", "--id-token-file", "-"], token).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn people_of_an_issuer_come_in_with_the_roles_of_their_groups() {
    let issuer = Issuer::start(&[
        r#"{"sub":"4711","preferred_username":"ada","groups":["ops"]}"#,
        r#"{"sub":"0815","preferred_username":"eve","groups":["golf"]}"#,
    ]);
    let world = World::new().await;
    assert!(world.login(issuer.token("4711")).await.1.contains("Settings name no issuer"));
    let site = format!(
        "kind: Role\nmetadata: {{name: looks}}\nspec: {{base: viewer}}\n---\n\
         kind: Settings\nmetadata: {{name: default}}\n\
         spec: {{openid: {{issuer: \"{}\", client_id: basalt, groups: {{ops: {{roles: [looks]}}}}}}}}\n",
        issuer.url
    );
    world.ok(true, &["apply", "--yes", "-f", "-"], site).await;

    let (done, said) = world.login(issuer.token("4711")).await;
    assert!(done && said.starts_with("logged in as ada;"), "{said}");
    assert!(world.ok(false, &["whoami"], String::new()).await.contains("user ada"));
    world.ok(false, &["get", "zones"], String::new()).await;
    let zone = "kind: Zone\nmetadata: {name: row-1}\nspec: {}\n".to_owned();
    let (done, said) = world.basalt(false, &["apply", "--yes", "-f", "-"], zone).await;
    assert!(!done && said.contains("needs the role operator"), "{said}");
    assert!(world.ok(true, &["get", "users"], String::new()).await.contains("ada"));

    let (done, said) = world.login(issuer.token("0815")).await;
    assert!(
        !done && said.contains("none of the groups that the issuer names has a role here: golf"),
        "{said}"
    );
    let token = issuer.token("4711");
    let (claims, signature) = token.rsplit_once('.').expect("a signature");
    let turned: String = signature.chars().rev().collect();
    let (done, said) = world.login(format!("{claims}.{turned}")).await;
    assert!(!done && said.contains("the ID token is not good"), "{said}");
    drop(issuer);
    // The region caches the issuer's keys for an hour.
    assert!(world.login(token).await.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn people_log_in_to_the_console_by_way_of_their_issuer() {
    let issuer = Issuer::start(&[
        r#"{"sub":"4711","preferred_username":"ada","groups":["ops"]}"#,
        r#"{"sub":"0815","preferred_username":"eve","groups":["golf"]}"#,
    ]);
    let world = World::new().await;
    let console = format!("http://{}", world.region.address());
    let (client_id, client_secret) = issuer.register(&format!("{console}/ui/login"));
    let role = json!({"kind": "Role", "metadata": {"name": "looks"}, "spec": {"base": "viewer"}});
    let openid = json!({"issuer": issuer.url, "client_id": client_id, "client_secret": client_secret,
        "console": console, "groups": {"ops": {"roles": ["looks"]}}});
    let settings = json!({"kind": "Settings", "metadata": {"name": "default"}, "spec": {"openid": openid}});
    world.ok(true, &["apply", "--yes", "-f", "-"], format!("{role}\n{settings}\n")).await;

    let mut steps = Command::new(browser::program());
    browser::set_up(&mut steps);
    steps
        .args(["node", "--test", "--test-reporter=spec", "tests/browser/openid.mjs"])
        .env("REGION_URL", console)
        .env("ISSUER", &issuer.url);
    let ended = tokio::task::spawn_blocking(move || steps.status()).await.expect("it ends").expect("it runs");
    assert!(ended.success(), "the browser's steps failed: {ended}");
}
