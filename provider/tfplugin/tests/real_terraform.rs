//! The real Terraform drives the example provider.
//!
//! Needs `terraform` on the PATH (`make test` brings it). Each test has a directory of its own for
//! the configuration, the state and the pets.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const COOKIE: &str = "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2";

/// Cargo's output directory for examples, beside the one for tests.
fn examples() -> PathBuf {
    let test = std::env::current_exe().expect("own path");
    let examples = test.ancestors().nth(2).expect("the target directory").join("examples");
    assert!(
        examples.join("terraform-provider-pets").exists(),
        "the example is not built; `cargo test -p tfplugin` does it, `--test real_terraform` alone does not"
    );
    examples
}

/// A directory with a configuration, its state and its pets.
struct Workspace {
    dir: TempDir,
}

impl Workspace {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let rc = format!(
            "provider_installation {{\n dev_overrides {{ \"example.com/test/pets\" = {:?} }}\n direct {{}}\n}}\n",
            examples()
        );
        fs::write(dir.path().join("terraformrc"), rc).expect("a CLI configuration");
        fs::create_dir(dir.path().join("home")).expect("a home");
        Self { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn pet(&self, name: &str) -> PathBuf {
        self.path().join(format!("home/{name}.json"))
    }

    fn config(&self, resources: &str) -> &Self {
        let home = self.path().join("home");
        let text = format!(
            "terraform {{\n required_providers {{\n pets = {{ source = \"example.com/test/pets\" }}\n }}\n}}\n\
             provider \"pets\" {{\n directory = {home:?}\n}}\n{resources}\n"
        );
        fs::write(self.path().join("main.tf"), text).expect("a configuration");
        self
    }

    fn terraform(&self) -> Command {
        let mut command = Command::new("terraform");
        command
            .current_dir(self.path())
            .env("TF_CLI_CONFIG_FILE", self.path().join("terraformrc"))
            .env("TF_IN_AUTOMATION", "1")
            .env("TMPDIR", self.path())
            .env("CHECKPOINT_DISABLE", "1")
            .env_remove("TF_LOG")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.terraform().args(args).arg("-no-color").output().expect("terraform on the PATH")
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let text = everything(&output);
        assert!(output.status.success(), "terraform {args:?}:\n{text}");
        text
    }

    fn apply(&self) -> String {
        self.ok(&["apply", "-auto-approve"])
    }

    /// Plans, and asserts that there is nothing to do.
    fn plans_nothing(&self) {
        let output = self.run(&["plan", "-detailed-exitcode"]);
        assert_eq!(output.status.code(), Some(0), "{}", everything(&output));
    }

    fn fails(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(1), "{}", everything(&output));
        everything(&output)
    }

    /// The attributes of the one resource in the state.
    fn state(&self) -> Value {
        let shown: Value = serde_json::from_slice(&self.run(&["show", "-json"]).stdout).expect("JSON");
        shown["values"]["root_module"]["resources"][0].clone()
    }

    /// The number of provider sockets that were not removed.
    fn left_behind(&self) -> usize {
        let entries = fs::read_dir(self.path()).expect("a directory").flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("plugin-")).count()
    }
}

fn everything(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    // Terraform wraps its messages to the terminal's width, inside a frame.
    text.replace("\n│ ", " ").replace("  ", " ")
}

/// Waits for something to become true, for a bounded time.
fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is() {
        assert!(Instant::now() < end, "not within 30 s: {what}");
        std::thread::yield_now();
    }
}

const REX: &str = r#"
resource "pets_pet" "rex" {
  name    = "rex"
  species = "dog"
  chip    = "AA-BB-CC-00-11-22"
  weight  = 12.1
  tags    = ["loyal", "brown"]
  toys    = { ball = { colour = "red" } }
}
"#;

#[test]
fn creates_plans_nothing_updates_replaces_and_destroys() {
    let workspace = Workspace::new();
    workspace.config(REX).apply();
    let values = workspace.state()["values"].clone();
    assert_eq!(values["uid"], "uid-of-rex");
    assert_eq!(values["legs"], 4, "the default");
    assert_eq!(values["chip"], "AA-BB-CC-00-11-22", "as it was written");
    assert_eq!(values["toys"]["ball"]["shelf"], 0);
    workspace.plans_nothing();

    let more = REX.replace("ball = {", "bone = { colour = \"white\" }\n ball = {").replace("12.1", "12.2");
    let said = workspace.config(&more).apply();
    assert!(said.contains("0 added, 1 changed, 0 destroyed"), "{said}");
    assert_eq!(workspace.state()["values"]["uid"], "uid-of-rex");
    workspace.plans_nothing();

    let said = workspace.config(&REX.replace("dog", "wolf")).apply();
    assert!(said.contains("1 added, 0 changed, 1 destroyed"), "{said}");
    workspace.plans_nothing();

    workspace.ok(&["destroy", "-auto-approve"]);
    assert!(!workspace.pet("rex").exists());
    assert_eq!(workspace.left_behind(), 0, "sockets");
}

#[test]
fn another_spelling_of_the_same_is_no_change() {
    let workspace = Workspace::new();
    workspace.config(REX).apply();
    let respelled = REX
        .replace("AA-BB-CC-00-11-22", "aa:bb:cc:00:11:22")
        .replace(r#"["loyal", "brown"]"#, r#"["brown", "loyal"]"#);
    workspace.config(&respelled).plans_nothing();
}

#[test]
fn a_change_made_elsewhere_is_put_right() {
    let workspace = Workspace::new();
    workspace.config(REX).apply();
    let pet = workspace.pet("rex");
    let text = fs::read_to_string(&pet).expect("a pet");
    fs::write(&pet, text.replace("loyal", "savage")).expect("a change");
    let said = workspace.apply();
    assert!(said.contains("1 changed"), "{said}");
    fs::remove_file(&pet).expect("a pet");
    let said = workspace.apply();
    assert!(said.contains("1 added, 0 changed, 0 destroyed"), "{said}");
    workspace.plans_nothing();
}

#[test]
fn a_write_only_value_is_used_and_never_stored() {
    let workspace = Workspace::new();
    let with = |version: u8| {
        REX.replace(
            "weight  = 12.1",
            &format!("password_wo = \"sesame-{version}\"\n password_wo_version = {version}"),
        )
    };
    workspace.config(&with(1)).apply();
    assert_eq!(workspace.state()["values"]["mood"], "rex knows a password of 8 letters");
    workspace.plans_nothing();
    workspace.config(&with(2)).apply();
    workspace.plans_nothing();
    let state = fs::read_to_string(workspace.path().join("terraform.tfstate")).expect("a state");
    assert!(!state.contains("sesame"), "{state}");
}

#[test]
fn reads_a_data_source_and_imports() {
    let workspace = Workspace::new();
    workspace.config(REX).apply();
    let other = Workspace::new();
    fs::copy(workspace.pet("rex"), other.pet("rex")).expect("a pet");
    let found = format!(
        "{REX}\ndata \"pets_pet\" \"found\" {{ name = \"rex\" }}\n\
         output \"species\" {{ value = data.pets_pet.found.species }}\n\
         import {{\n to = pets_pet.rex\n id = \"rex\"\n}}\n"
    );
    let said = other.config(&found).apply();
    assert!(said.contains("1 imported, 0 added, 0 changed, 0 destroyed"), "{said}");
    assert!(said.contains("species = \"dog\""), "{said}");
    other.plans_nothing();

    let said = other.config("data \"pets_pet\" \"lost\" { name = \"lassie\" }").fails(&["plan"]);
    assert!(said.contains("There is no pet called \"lassie\""), "{said}");
}

#[test]
fn an_object_of_another_providers_type_becomes_one_of_this() {
    let workspace = Workspace::new();
    workspace.config(REX).apply();
    let other = Workspace::new();
    fs::copy(workspace.pet("rex"), other.pet("rex")).expect("a pet");
    let noted = |name: &str| format!("resource \"terraform_data\" \"rex\" {{\n input = {name}\n}}\n");
    let moved = format!("{REX}\nmoved {{\n from = terraform_data.rex\n to = pets_pet.rex\n}}\n");

    other.config(&noted("[]")).apply();
    let said = other.config(&moved).fails(&["plan"]);
    assert!(said.contains("whose input is a name becomes a pet"), "{said}");

    other.config(&noted("\"rex\"")).apply();
    let said = other.config(&moved).apply();
    assert!(said.contains("0 added, 0 changed, 0 destroyed"), "{said}");
    assert_eq!(other.state()["values"]["uid"], "uid-of-rex");
    other.plans_nothing();
}

#[test]
fn calls_functions_and_points_at_a_wrong_argument() {
    let workspace = Workspace::new();
    let shout = |names: &str| format!("output \"shout\" {{ value = provider::pets::call({names}) }}\n");
    let said = workspace.config(&shout("\"rex\", \"bella\"")).apply();
    assert!(said.contains("shout = \"rex! bella!\""), "{said}");
    let said = workspace.config(&shout("\"rex\", \"tom\"")).fails(&["plan"]);
    assert!(said.contains("Cats like \"tom\" do not come."), "{said}");
}

#[test]
fn errors_point_at_their_attribute_and_warnings_at_theirs() {
    let workspace = Workspace::new();
    let bad = REX.replace("\"red\"", "\"invisible\"");
    let said = workspace.config(&bad).fails(&["validate"]);
    let why = "toys[\"ball\"].colour: `colour` is \"invisible\", and must be what can be seen.";
    assert!(said.contains(why), "{said}");
    assert!(said.contains("{ ball = { colour = \"invisible\" } }"), "the line in question: {said}");

    let many = REX.replace("weight  = 12.1", "legs = 1000");
    let said = workspace.config(&many).ok(&["plan"]);
    assert!(said.contains("Warning: Many legs"), "{said}");
}

#[test]
fn a_state_of_any_older_version_is_brought_up_to_date_version_by_version() {
    for version in [0, 1] {
        let workspace = Workspace::new();
        workspace.config(REX).apply();
        let path = workspace.path().join("terraform.tfstate");
        let mut state: Value = serde_json::from_slice(&fs::read(&path).expect("a state")).expect("JSON");
        let pet = &mut state["resources"][0]["instances"][0];
        assert_eq!(pet["schema_version"], 2);
        pet["schema_version"] = version.into();
        let attributes = pet["attributes"].as_object_mut().expect("attributes");
        for (is, was) in [("species", "kind"), ("legs", "feet")].iter().take(2 - version) {
            let value = attributes.remove(*is).expect("it is there");
            attributes.insert((*was).to_owned(), value);
        }
        fs::write(&path, state.to_string()).expect("a state");
        workspace.plans_nothing();
        workspace.ok(&["apply", "-refresh-only", "-auto-approve"]);
        assert_eq!(workspace.state()["values"]["species"], "dog", "from version {version}");
    }
}

#[test]
fn a_value_may_be_of_any_type_and_change_it() {
    let workspace = Workspace::new();
    let none = "variable \"none\" {\n  type    = string\n  default = null\n}\n";
    let likes = |what: &str| format!("{none}{}", REX.replace("weight  = 12.1", &format!("likes = {what}")));
    for (what, kept) in [
        ("\"bones\"", serde_json::json!("bones")),
        ("[1, \"two\", null]", serde_json::json!([1, "two", null])),
        ("{ bones = 2, more = { cats = false } }", serde_json::json!({"bones": 2, "more": {"cats": false}})),
        ("toset([\"b\", \"a\"])", serde_json::json!(["a", "b"])),
        ("{ tags = toset([\"b\", \"a\"]) }", serde_json::json!({"tags": ["a", "b"]})),
        ("var.none", Value::Null),
        ("null", Value::Null),
    ] {
        workspace.config(&likes(what)).apply();
        assert_eq!(workspace.state()["values"]["likes"], kept, "{what}");
        workspace.plans_nothing();
    }
    let unknown = "terraform_data.dog.output";
    let data = "resource \"terraform_data\" \"dog\" {\n  input = { sleep = [\"long\"] }\n}\n";
    workspace.config(&format!("{data}{}", likes(unknown))).apply();
    assert_eq!(workspace.state()["values"]["likes"], serde_json::json!({"sleep": ["long"]}));
    workspace.plans_nothing();
}

#[test]
fn a_creation_is_waited_for_as_long_as_its_configuration_says() {
    let workspace = Workspace::new();
    let slow = |time: &str| {
        let timeouts = format!("timeouts = {{ create = {time:?} }}");
        REX.replace("\"rex\"\n", "\"slow\"\n").replace("weight  = 12.1", &timeouts)
    };
    let said = workspace.config(&slow("soon")).fails(&["validate"]);
    assert!(said.contains("timeouts.create: `create` is \"soon\", and must be a duration"), "{said}");
    let said = workspace.config(&slow("50ms")).fails(&["apply", "-auto-approve"]);
    assert!(said.contains("It takes too long"), "{said}");
}

#[test]
fn what_fails_halfway_is_tainted_and_what_panics_is_explained() {
    let workspace = Workspace::new();
    let said =
        workspace.config(&REX.replace("\"rex\"\n", "\"fragile\"\n")).fails(&["apply", "-auto-approve"]);
    assert!(said.contains("The pet arrived in two parts."), "{said}");
    assert!(!said.contains("invalid result object"), "{said}");
    assert_eq!(workspace.state()["tainted"], true);
    assert_eq!(workspace.state()["values"]["uid"], "uid-of-fragile");

    let workspace = Workspace::new();
    let said = workspace.config(&REX.replace("\"rex\"\n", "\"buggy\"\n")).fails(&["apply", "-auto-approve"]);
    assert!(said.contains("ApplyResourceChange pets_pet panicked"), "{said}");
}

#[test]
fn what_is_ephemeral_is_renewed_while_it_is_used_closed_whatever_happens_and_kept_nowhere() {
    let workspace = Workspace::new();
    let leash = "ephemeral \"pets_leash\" \"of\" { name = \"rex\" }\n";
    let bound = REX.replace("weight  = 12.1", "password_wo = ephemeral.pets_leash.of.knot");
    workspace.config(&format!("{leash}{bound}")).apply();
    let mood = workspace.state()["values"]["mood"].clone();
    assert_eq!(mood, "rex knows a password of 15 letters");
    assert!(!workspace.pet("leash-of-rex").exists(), "closed");
    workspace.plans_nothing();

    let slow = bound.replace("\"rex\" {", "\"slow\" {").replace("\"rex\"\n", "\"slow\"\n");
    workspace.config(&format!("{leash}{bound}{slow}"));
    let mut terraform = workspace
        .terraform()
        .args(["apply", "-auto-approve", "-no-color"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("terraform");
    eventually("the creation is under way", || workspace.pet("slow").exists());
    let is = |text: &str| fs::read_to_string(workspace.pet("leash-of-rex")).is_ok_and(|is| is == text);
    eventually("the leash is renewed", || is("renewed"));
    interrupt(&terraform);
    assert!(!terraform.wait().expect("an end").success());
    // Terraform itself does not close an ephemeral resource if an operation that used it failed.
    eventually("it is closed", || !workspace.pet("leash-of-rex").exists());
    let kept = fs::read_to_string(workspace.path().join("terraform.tfstate")).expect("a state");
    assert!(!kept.contains("the knot"), "{kept}");
}

#[test]
fn an_interrupted_creation_keeps_what_was_reached() {
    let workspace = Workspace::new();
    workspace.config(&REX.replace("\"rex\"\n", "\"slow\"\n"));
    let mut terraform = workspace
        .terraform()
        .args(["apply", "-auto-approve", "-no-color"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("terraform");
    eventually("the creation is under way", || workspace.pet("slow").exists());
    interrupt(&terraform);
    let status = terraform.wait().expect("an end");
    let mut said = String::new();
    terraform.stderr.take().expect("stderr").read_to_string(&mut said).expect("text");
    assert!(!status.success());
    assert!(said.contains("The pet is still on its way."), "{said}");
    assert_eq!(workspace.state()["tainted"], true);
    assert_eq!(workspace.left_behind(), 0, "sockets");
}

fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a signal");
}

/// A provider started the way Terraform starts it.
fn start_provider(dir: &Path) -> Command {
    let mut command = Command::new(examples().join("terraform-provider-pets"));
    command
        .env("TF_PLUGIN_MAGIC_COOKIE", COOKIE)
        .env("PLUGIN_PROTOCOL_VERSIONS", "5,6")
        .env("TMPDIR", dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn by_hand_it_says_what_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = start_provider(dir.path()).env_remove("TF_PLUGIN_MAGIC_COOKIE").output().expect("a run");
    assert_eq!(output.status.code(), Some(1));
    assert!(everything(&output).contains("This program is a Terraform provider"));
}

#[test]
fn survives_ctrl_c_and_ends_when_terraform_is_gone() {
    let dir = tempfile::tempdir().expect("a directory");
    // The shell stands for Terraform. It passes the handshake line on, and lives until its own
    // stdin closes.
    let mut shell = Command::new("sh")
        .args([
            "-c",
            "\"$0\" & echo $!; read end",
            &examples().join("terraform-provider-pets").to_string_lossy(),
        ])
        .env("TF_PLUGIN_MAGIC_COOKIE", COOKIE)
        .env("TMPDIR", dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell");
    let stdout = shell.stdout.take().expect("stdout");
    let (send, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    let next = || lines.recv_timeout(Duration::from_secs(30)).expect("a line");
    let mut two = [next(), next()];
    two.sort_by_key(String::len);
    let [pid, line] = two;
    assert!(line.starts_with("1|6|unix|"), "{line}");
    let pid: i32 = pid.parse().expect("a process id");
    let provider = rustix::process::Pid::from_raw(pid).expect("a process id");

    rustix::process::kill_process(provider, rustix::process::Signal::INT).expect("a signal");
    let socket = PathBuf::from(line.split('|').nth(3).expect("an address"));
    std::os::unix::net::UnixStream::connect(&socket).expect("still there after an interrupt");

    drop(shell.stdin.take());
    shell.wait().expect("the shell ends");
    eventually("the orphan ends and removes its socket", || !socket.exists());
    assert_eq!(lines.iter().count(), 0, "nothing but the line on stdout");
}

#[test]
fn terraform_connects_by_tcp_where_a_provider_says_so() {
    let workspace = Workspace::new();
    workspace.config(REX);
    let mut terraform = workspace.terraform();
    terraform.args(["apply", "-auto-approve", "-no-color"]).env("PETS_OVER_TCP", "1");
    let output = terraform.output().expect("terraform on the PATH");
    let text = everything(&output);
    assert!(output.status.success() && text.contains("1 added"), "{text}");
    workspace.plans_nothing();

    let pem = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate").cert.pem();
    let mut provider = start_provider(workspace.path());
    provider.env("PETS_OVER_TCP", "1").env("PLUGIN_CLIENT_CERT", pem);
    provider.env("PLUGIN_MIN_PORT", "10000").env("PLUGIN_MAX_PORT", "25000");
    let mut provider = provider.spawn().expect("a provider");
    let line = BufReader::new(provider.stdout.take().expect("stdout")).lines().next().expect("a line");
    provider.kill().and_then(|()| provider.wait()).expect("its end");
    assert!(line.expect("text").starts_with("1|6|tcp|127.0.0.1:1"));

    let refused = start_provider(workspace.path()).env("PETS_OVER_TCP", "1").output().expect("a run");
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && why.contains("PLUGIN_CLIENT_CERT"), "{why}");
}

#[test]
fn one_process_in_debug_mode_serves_many_commands() {
    let workspace = Workspace::new();
    let mut provider = start_provider(workspace.path()).arg("--debug").spawn().expect("a provider");
    let lines = BufReader::new(provider.stdout.take().expect("stdout")).lines();
    let reattach = lines
        .map_while(Result::ok)
        .find_map(|line| {
            Some(line.trim().strip_prefix("TF_REATTACH_PROVIDERS='")?.trim_end_matches('\'').to_owned())
        })
        .expect("the variable");
    workspace.config(REX);
    for args in
        [&["apply", "-auto-approve"][..], &["plan", "-detailed-exitcode"], &["destroy", "-auto-approve"]]
    {
        let mut command = workspace.terraform();
        let output = command.args(args).env("TF_REATTACH_PROVIDERS", &reattach).output().expect("terraform");
        assert!(output.status.success(), "{}", everything(&output));
    }
    interrupt(&provider);
    assert!(provider.wait().expect("an end").success());
    assert_eq!(workspace.left_behind(), 0, "sockets");
}

#[test]
fn terraform_shows_what_the_provider_logs_at_its_levels() {
    let space = Workspace::new();
    space.config("resource \"pets_pet\" \"it\" {\n  name = \"buggy\"\n  species = \"cat\"\n}");
    let said = |variable: &str, value: &str| {
        let mut command = space.terraform();
        let output = command.args(["apply", "-auto-approve", "-no-color"]).env(variable, value).output();
        String::from_utf8_lossy(&output.expect("terraform on the PATH").stderr).into_owned()
    };
    let lines: Vec<Value> =
        said("TF_LOG", "json").lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let level = |message: &str, rpc: &str| {
        let line = lines.iter().find(|line| line["@message"] == message && line["tf_rpc"] == rpc);
        line.unwrap_or_else(|| panic!("{message} {rpc}: {lines:#?}"))["@level"].clone()
    };
    assert_eq!(level("answered", "PlanResourceChange"), "debug");
    assert_eq!(level("the provider panicked", "ApplyResourceChange"), "error");

    let errors = said("TF_LOG_PROVIDER", "error");
    assert!(errors.contains("[ERROR]") && errors.contains("the provider panicked"), "{errors}");
    assert!(!errors.contains("answered"), "{errors}");
}
