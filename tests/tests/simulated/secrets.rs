//! Planted secrets appear nowhere: not in files, not in logs of the most detailed level, not in answers of the API.
//!
//! A rack's concern for BMCs contains their passwords and keys, which it needs, readable by its owner alone: [`KEPT`].

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::store;
use basalt_rack::link::join::JoinToken;
use basalt_sim::Firmware;
use basalt_tests::fleet::{Fleet, LIMIT, machine_spec};
use serde_json::{Value, json};
use tfplugin::Reattached;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::Command;

/// The planted secrets. The region makes the tokens itself.
const BMC: &str = "plant-bmc-7Qz1";
const BMC_KEY: &str = "plant-bmc-key-5Xn3mQ";
const USER: &str = "planted-user-password-4Vk9x";
const WEBHOOK: &str = "planted-webhook-key-8Ht2m";

/// A text in a description, which the search must find.
const OPEN: &str = "planted-in-the-open-3Wd6r";

/// Sensitive, but not a secret: a machine reads it, and Terraform's state contains it, because a change of it decides about a
/// new installation.
const USER_DATA: &str = "#cloud-config\n# planted-user-data-5Yb0n\n";

/// Files that may contain a secret, because it is used there: without the region, a rack controls BMCs with its stored concern.
const KEPT: [(&str, &str); 2] = [("BMC password", "concerns/power.pb"), ("BMC key", "concerns/power.pb")];

/// The forms of a text in a file: plain, hexadecimal, and base64 with the text at each of the three byte offsets.
fn forms(text: &str) -> Vec<Vec<u8>> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut forms = vec![text.as_bytes().to_vec()];
    forms.push(hex::encode(text).into_bytes());
    forms.push(hex::encode_upper(text).into_bytes());
    for (last, shift) in [(b"+/", 0), (b"+/", 1), (b"+/", 2), (b"-_", 0), (b"-_", 1), (b"-_", 2)] {
        let alphabet: Vec<u8> = DIGITS.iter().chain(last).copied().collect();
        let bits: Vec<bool> = std::iter::repeat_n(0u8, shift)
            .chain(text.bytes())
            .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1))
            .collect();
        let sextets =
            bits.chunks_exact(6).map(|six| six.iter().fold(0, |sum, bit| sum << 1 | usize::from(*bit)));
        // The first base64 digits also contain bits of the bytes before the text, so they are skipped.
        let own = (shift * 8).div_ceil(6);
        forms.push(sextets.skip(own).map(|sextet| alphabet[sextet]).collect());
    }
    forms
}

/// The files below a directory that contain the text in any form. Machines' disks are skipped: they are gigabytes without lines.
fn found_in(directory: &Path, text: &str) -> Vec<String> {
    let patterns: Vec<u8> = forms(text).join(&b'\n');
    let mut grep = std::process::Command::new("grep")
        .args(["-rlaF", "--exclude-dir=dev", "-f", "-", "."])
        .current_dir(directory)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("grep");
    let mut stdin = grep.stdin.take().expect("its input");
    std::io::Write::write_all(&mut stdin, &patterns).expect("it reads");
    drop(stdin);
    let output = grep.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // Exit code 1: nothing was found.
    assert!(
        matches!(output.status.code(), Some(0 | 1)) && said.is_empty(),
        "grep: {}: {said}",
        output.status
    );
    let paths = String::from_utf8_lossy(&output.stdout).into_owned();
    paths.lines().map(|path| path.trim_start_matches("./").to_owned()).collect()
}

fn bytes_below(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            if entry.path().is_dir() {
                bytes_below(&entry.path())
            } else {
                entry.metadata().map_or(0, |m| m.len())
            }
        })
        .sum()
}

/// The whole answer; of an endless answer, the part up to its first bookmark.
async fn asked(fleet: &Fleet, path: &str) -> Vec<u8> {
    let mut stream = UnixStream::connect(fleet.site.socket()).await.expect("the region listens");
    let request = format!("GET {path} HTTP/1.0\r\nhost: region\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut answer = Vec::new();
    let read = async {
        while stream.read_buf(&mut answer).await.expect("an answer") > 0 {
            if answer.windows(15).rev().take(400).any(|words| words == b"event: bookmark") {
                return;
            }
        }
    };
    tokio::time::timeout(LIMIT, read).await.expect("in time");
    let head = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
    assert!(head.contains(" 200 "), "{path}: {head}");
    answer
}

/// Posts JSON, and returns the answer's JSON.
async fn post(fleet: &Fleet, path: &str, body: &Value) -> Value {
    let mut stream = UnixStream::connect(fleet.site.socket()).await.expect("the region listens");
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.0\r\nhost: region\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.expect("it is sent");
    stream.write_all(body.as_bytes()).await.expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains(" 201 "), "{path}: {answer}");
    serde_json::from_str(body).expect("JSON")
}

/// Terraform declares a user, whose password is only in its environment, and a zone.
async fn terraform(fleet: &Fleet) {
    let directory = fleet.site.directory().join("terraform");
    std::fs::create_dir(&directory).expect("a directory");
    let config = format!(
        r#"terraform {{
  required_providers {{ basalt = {{ source = "basalt-metal/basalt" }} }}
}}
variable "password" {{
  type      = string
  sensitive = true
  ephemeral = true
}}
provider "basalt" {{ endpoint = "{}" }}
resource "basalt_user" "carol" {{
  name                = "carol"
  password_wo         = var.password
  password_wo_version = 1
}}
resource "basalt_zone" "open" {{
  name        = "open-too"
  description = "{OPEN}"
}}
"#,
        fleet.site.endpoint()
    );
    std::fs::write(directory.join("main.tf"), config).expect("a configuration");
    let provider =
        Reattached::start(terraform_provider_basalt::provider(), terraform_provider_basalt::ADDRESS)
            .expect("a provider");
    let (name, value) = provider.env();
    for arguments in [
        &["apply", "-auto-approve", "-no-color"][..],
        &["plan", "-no-color", "-out=saved.plan"],
        // A plan is compressed; this command shows its whole content.
        &["show", "-json", "saved.plan"],
    ] {
        let mut command = Command::new("terraform");
        command.args(arguments).current_dir(&directory).env(name, &value);
        command
            .env("TF_VAR_password", USER)
            .env("TF_LOG", "TRACE")
            .env("TF_LOG_PATH", directory.join("terraform.log"));
        command.env("CHECKPOINT_DISABLE", "1").env("TF_CLI_CONFIG_FILE", "/dev/null").stdin(Stdio::null());
        let output =
            tokio::time::timeout(LIMIT, command.output()).await.expect("in time").expect("terraform");
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
        std::fs::write(directory.join(format!("{}.out", arguments[0])), said).expect("what it said");
    }
    provider.stop().await;
}

#[test]
fn a_text_is_found_in_every_form_and_at_every_place() {
    let directory = tempfile::tempdir().expect("a directory");
    // In base64 after "a", "ab" and "abc" and before "z"; in PostgreSQL's hexadecimal form; and plain.
    let written = [
        "key=YWh1bnRlcjItaHVudGVyMno=",
        "YWJodW50ZXIyLWh1bnRlcjJ6",
        "YWJjaHVudGVyMi1odW50ZXIyeg==",
        "\\x68756e746572322d68756e7465723200",
        "68756E746572322D68756E74657232",
        "x hunter2-hunter2 y",
    ];
    for (number, text) in written.into_iter().enumerate() {
        std::fs::write(directory.path().join(number.to_string()), text).expect("a file");
    }
    std::fs::write(directory.path().join("other"), "hunter2-hunter3").expect("a file");
    let mut found = found_in(directory.path(), "hunter2-hunter2");
    found.sort();
    assert_eq!(found, ["0", "1", "2", "3", "4", "5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_secrets_are_nowhere_but_where_they_are_named() {
    let mut fleet =
        Fleet::start("secrets", &[("BASALT_LOG", "trace"), ("BASALT_WATCH_BOOKMARK", "1s")]).await;
    fleet.restart_rack(&[("BASALT_RACK_LOG", "trace")]).await;
    let text = |value: &Value, name: &str| value[name].as_str().expect("a text").to_owned();

    let machine = fleet.machine(1, Firmware::Bios, |options| {
        options.bmc_password = BMC.to_owned();
        options.bmc_key = Some(BMC_KEY.to_owned());
    });
    fleet.declare("machines", "sim1", machine_spec(&machine)).await;
    fleet.declare("roles", "viewer", json!({"base": "viewer"})).await;
    fleet.declare("users", "alice", json!({"password": USER, "roles": ["viewer"]})).await;
    fleet.declare("webhooks", "hook", json!({"url": "http://127.0.0.1:9/", "secret": WEBHOOK})).await;
    fleet.declare("zones", "open", json!({"description": OPEN})).await;
    fleet.declare("api_tokens", "ci", json!({"role": "viewer"})).await;
    let token = text(&post(&fleet, "/api/v1/api_tokens/ci/issue", &json!({})).await, "token");
    let session =
        text(&post(&fleet, "/api/v1/login", &json!({"user": "alice", "password": USER})).await, "token");
    let join = text(&post(&fleet, "/api/v1/join_tokens", &json!({})).await, "token");
    let join_secret = JoinToken::parse(&join).expect("a join token").secret;
    let planted = [
        ("BMC password", BMC.to_owned()),
        ("BMC key", BMC_KEY.to_owned()),
        ("user password", USER.to_owned()),
        ("webhook secret", WEBHOOK.to_owned()),
        ("API token", token),
        ("session", session),
        ("join token", join_secret),
    ];

    // All secrets are used: a rack joins, the BMC is controlled, a system is installed, and Terraform applies.
    fleet.site.set_rack_variables(&[("BASALT_RACK_LOG", "trace"), ("BASALT_RACK_JOIN", &join)]);
    fleet.site.start_rack(2).await.expect("it joins");
    fleet.ready("machines", "sim1").await;
    let deployment = json!({"machine": "sim1", "image": "debian-12", "readiness": {"check": "cloud_init"}, "user_data": USER_DATA});
    fleet.declare("deployments", "web", deployment).await;
    fleet.ready("deployments", "web").await;
    terraform(&fleet).await;

    // Answers of the API, stored as files for the search.
    let directory = fleet.site.directory().to_owned();
    std::fs::create_dir(directory.join("told")).expect("a directory");
    let tell = |name: &str, bytes: Vec<u8>| {
        std::fs::write(directory.join("told").join(name.replace('/', "-")), bytes).expect("a file");
    };
    tell("pg_dump", store::ask(&fleet, "pg_dump", &[]).await);
    let version = String::from_utf8(asked(&fleet, "/version").await).expect("text");
    let version = version.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let life = text(&serde_json::from_str(version).expect("JSON"), "incarnation");
    tell("watch", asked(&fleet, &format!("/api/v1/watch?since={life}:0")).await);
    tell("metrics", asked(&fleet, "/metrics").await);
    tell("audit", asked(&fleet, "/api/v1/audit?limit=1000").await);
    for kind in basalt_api::KINDS.iter().filter(|kind| kind.name != "Sample") {
        tell(kind.plural, asked(&fleet, &format!("/api/v1/{}?limit=1000", kind.plural)).await);
    }
    for path in ["machines/sim1/plan", "machines/sim1/timeline", "deployments/web/timeline"] {
        tell(path, asked(&fleet, &format!("/api/v1/{path}")).await);
    }

    // Without the region, the rack's reports stay in its spool.
    fleet.site.kill_region();
    let end = Instant::now() + LIMIT;
    while bytes_below(&directory.join("rack-1/spool")) == 0 {
        assert!(Instant::now() < end, "the rack has nothing to say");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    // The search finds the open text.
    let open = found_in(&directory, OPEN);
    for place in ["told/pg_dump", "told/audit", "told/watch", "told/zones", "terraform/terraform.tfstate"] {
        assert!(open.iter().any(|found| found == place), "{place} was not searched: {open:?}");
    }
    assert!(open.iter().any(|found| found.starts_with("region/postgres/")), "{open:?}");
    for log in ["region.log", "rack-1.log", "rack-2.log"] {
        assert!(
            found_in(&directory, "TRACE").iter().any(|found| found == log),
            "{log} is not at its most talkative"
        );
    }
    assert!(
        bytes_below(&directory.join("region/blobs")) > 0
            && directory.join("terraform/terraform.log").exists()
    );

    let mut wrong = Vec::new();
    for (name, text) in &planted {
        for place in found_in(&directory, text) {
            let kept = KEPT.iter().any(|(kept, suffix)| kept == name && place.ends_with(suffix));
            let mode = std::fs::metadata(directory.join(&place)).map_or(0, |file| file.permissions().mode());
            if !kept || mode & 0o077 != 0 {
                wrong.push(format!("{name} in {place}, {mode:o}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for ((name, kept), text) in KEPT.into_iter().zip([BMC, BMC_KEY]) {
        let found = found_in(&directory, text);
        assert!(found.iter().any(|place| place.ends_with(kept)), "take {name} off the list");
    }
}
