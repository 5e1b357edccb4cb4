//! A machine and its system, managed with Terraform: imported, deployed, installed again, and released.

use std::process::{Output, Stdio};

use basalt_sim::{Event, Firmware, SimMachine};
use tempfile::TempDir;
use tfplugin::testing::MiniCore;
use tfplugin::{Reattached, Val};
use tokio::process::Command;

use basalt_tests::fleet::{Fleet, LIMIT, machine_spec};

/// A user's directory, with the provider.
pub(crate) struct User {
    directory: TempDir,
    pub(crate) provider: Reattached,
    endpoint: String,
}

impl User {
    pub(crate) fn new(fleet: &Fleet) -> Self {
        let provider =
            Reattached::start(terraform_provider_basalt::provider(), terraform_provider_basalt::ADDRESS);
        Self {
            directory: tempfile::tempdir().expect("a directory"),
            provider: provider.expect("a provider"),
            endpoint: fleet.site.endpoint(),
        }
    }

    /// Writes a configuration with these resources.
    pub(crate) fn write(&self, resources: &str) {
        let text = format!(
            r#"
            terraform {{
              required_providers {{
                basalt = {{ source = "basalt-metal/basalt" }}
              }}
            }}
            provider "basalt" {{
              endpoint = "{}"
            }}
            {resources}
            "#,
            self.endpoint
        );
        std::fs::write(self.directory.path().join("main.tf"), text).expect("a configuration");
    }

    /// Declares the machine, and a deployment with more fields.
    pub(crate) fn declare(&self, machine: &SimMachine, more: &str) {
        let options = machine.options();
        self.write(&format!(
            r#"
            resource "basalt_machine" "one" {{
              name      = "sim1"
              boot_macs = ["{mac}"]
              bmc = {{
                driver              = "ipmi"
                address             = "{address}"
                username            = "{user}"
                password_wo         = "{password}"
                password_wo_version = 1
                options             = {{ cipher_suite = 3 }}
              }}
            }}
            resource "basalt_deployment" "web" {{
              name      = "web"
              machine   = basalt_machine.one.name
              image     = "debian-12"
              readiness = {{ check = "cloud_init" }}
              {more}
            }}
            "#,
            mac = options.mac,
            address = options.bmc_address,
            user = options.bmc_user,
            password = options.bmc_password,
        ));
    }

    /// Replaces a text in the configuration.
    pub(crate) fn edit(&self, before: &str, after: &str) {
        let main = self.directory.path().join("main.tf");
        let text = std::fs::read_to_string(&main).expect("a configuration");
        assert!(text.contains(before), "{text}");
        std::fs::write(&main, text.replace(before, after)).expect("a configuration");
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let (name, value) = self.provider.env();
        let mut command = Command::new("terraform");
        command.args(args).arg("-no-color").current_dir(self.directory.path()).env(name, value);
        for (name, value) in [("CHECKPOINT_DISABLE", "1"), ("TF_CLI_CONFIG_FILE", "/dev/null")] {
            command.env(name, value);
        }
        command.env_remove("TF_LOG").stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    pub(crate) async fn run(&self, args: &[&str]) -> Output {
        let output = tokio::time::timeout(LIMIT, self.command(args).output()).await;
        output.unwrap_or_else(|_| panic!("terraform {args:?} hangs")).expect("terraform on the PATH")
    }

    pub(crate) async fn apply(&self) -> String {
        let applied = self.run(&["apply", "-auto-approve"]).await;
        assert!(applied.status.success(), "{}", said(&applied));
        self.has_nothing_to_do().await;
        said(&applied)
    }

    pub(crate) async fn has_nothing_to_do(&self) {
        let again = self.run(&["plan", "-detailed-exitcode"]).await;
        assert_eq!(again.status.code(), Some(0), "the second plan is not empty:\n{}", said(&again));
    }
}

/// The text on one line, because Terraform wraps sentences.
pub(crate) fn flat(said: &str) -> String {
    said.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
}

pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn terraform_takes_a_machine_in_deploys_it_twice_and_gives_it_back() {
    let fleet = Fleet::start("terraform", &[]).await;
    let machine = fleet.machine(1, Firmware::Uefi, |_| {});
    let installed = || machine.count(|event| matches!(event, Event::Installed { .. }));
    let user = User::new(&fleet);

    user.declare(&machine, "");
    let applied = user.apply().await;
    assert!(applied.contains("2 added, 0 changed, 0 destroyed"), "{applied}");
    assert_eq!(installed(), 1, "it waited until it was so");

    user.declare(&machine, "hostname = \"other\"");
    let refused = user.run(&["apply", "-auto-approve"]).await;
    let refusal = flat(&said(&refused));
    assert_eq!(refused.status.code(), Some(1), "not unasked: {refusal}");
    for told in
        ["It needs a new installation", "could change this to \"other\"", "set redeploy = \"in_place\""]
    {
        assert!(refusal.contains(told), "{told}: {refusal}");
    }
    assert_eq!(installed(), 1);
    user.declare(&machine, "hostname = \"other\"\nredeploy = \"in_place\"");
    let applied = user.apply().await;
    assert!(applied.contains("0 added, 1 changed, 0 destroyed"), "{applied}");
    assert!(applied.contains("Warning: What is on a machine's disks will be lost"), "{applied}");
    assert_eq!(installed(), 2);
    user.declare(&machine, "hostname = \"other\"\nredeploy = \"in_place\"\ndescription = \"the web\"");
    let applied = user.apply().await;
    assert!(!applied.contains("Warning: "), "a description is no more than that: {applied}");

    user.edit("= basalt_machine.one.name", "= \"sim9\"");
    let planned = said(&user.run(&["plan"]).await);
    assert!(planned.contains("must be replaced"), "{planned}");
    assert!(planned.contains("Warning: What is on a machine's disks will be lost"), "{planned}");
    user.edit("= \"sim9\"", "= basalt_machine.one.name");

    let destroyed = user.run(&["destroy", "-auto-approve"]).await;
    assert!(destroyed.status.success(), "{}", said(&destroyed));
    let destroyed = said(&destroyed);
    assert!(destroyed.contains("Warning: What is on a machine's disks will be lost"), "{destroyed}");
    assert_eq!(machine.count(|event| matches!(event, Event::Erased { .. })), 1);
    assert_eq!(machine.power_state(), basalt_bmc::PowerState::Off);
    user.provider.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_gives_back_or_takes_away_is_planned_and_made_again() {
    let fleet = Fleet::start("taken", &[]).await;
    let machine = fleet.machine(1, Firmware::Uefi, |_| {});
    let user = User::new(&fleet);
    user.declare(&machine, "");
    user.apply().await;

    fleet.gone("deployments", "web").await;
    let planned = said(&user.run(&["plan"]).await);
    assert!(planned.contains("# basalt_deployment.web will be created"), "{planned}");
    assert!(planned.contains("Plan: 1 to add, 0 to change, 0 to destroy."), "{planned}");
    fleet.gone("machines", "sim1").await;
    let planned = said(&user.run(&["plan"]).await);
    assert!(planned.contains("Plan: 2 to add, 0 to change, 0 to destroy."), "{planned}");

    let applied = user.apply().await;
    assert!(applied.contains("2 added, 0 changed, 0 destroyed"), "{applied}");
    assert_eq!(machine.count(|event| matches!(event, Event::Installed { .. })), 2);
    user.provider.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_cycles_the_power_of_a_machine_and_one_has_its_hardware_read_again() {
    let fleet = Fleet::start("actions", &[]).await;
    let machine = fleet.machine(1, Firmware::Uefi, |_| {});
    fleet.declare("machines", "sim1", machine_spec(&machine)).await;
    fleet.ready("machines", "sim1").await;
    fleet.settled("sim1").await;
    let block = Val::from([("endpoint", fleet.site.endpoint().into())]);
    let mut core = MiniCore::start(terraform_provider_basalt::provider(), &block).await.expect("it starts");
    let powered_on = || machine.count(|event| matches!(event, Event::PoweredOn));
    let looked_at = || machine.count(|event| matches!(event, Event::Claimed { .. }));
    let config = Val::from([("machine", "sim1".into())]);

    let before = powered_on();
    let cycled = core.act("basalt_power_cycle", &config, async || powered_on()).await.expect("it ends");
    assert_eq!(cycled.errors, Vec::<String>::new(), "{cycled:?}");
    assert!(
        !cycled.said.is_empty() && cycled.said.iter().all(|said| said.starts_with("sim1: ")),
        "{cycled:?}"
    );
    assert_eq!((powered_on() - before, machine.power_state()), (1, basalt_bmc::PowerState::On));
    for (action, state) in [
        ("basalt_power_off", basalt_bmc::PowerState::Off),
        ("basalt_power_off", basalt_bmc::PowerState::Off),
        ("basalt_power_on", basalt_bmc::PowerState::On),
    ] {
        let switched = core.act(action, &config, async || ()).await.expect("it ends");
        assert_eq!(switched.errors, Vec::<String>::new(), "{switched:?}");
        assert_eq!(machine.power_state(), state, "{action}: {switched:?}");
    }

    let before = looked_at();
    let read = core.act("basalt_recommission", &config, async || looked_at()).await.expect("it ends");
    assert_eq!(read.errors, Vec::<String>::new(), "{read:?}");
    assert_eq!(looked_at() - before, 1);

    fleet.declare("machines", "bare", serde_json::json!({"boot_macs": ["52:54:00:12:34:01"]})).await;
    let bare = Val::from([("machine", "bare".into())]);
    let refused = core.act("basalt_power_cycle", &bare, async || ()).await.expect("it ends");
    assert!(refused.errors[0].contains("bare has no BMC"), "{refused:?}");
    core.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_runs_a_script_once_and_tells_what_it_said() {
    let fleet = Fleet::start("scripts", &[]).await;
    let machine = fleet.machine(1, Firmware::Bios, |_| {});
    fleet.declare("machines", "sim1", machine_spec(&machine)).await;
    let script = serde_json::json!({
        "type": "testing", "content": "#!/bin/sh\n", "parameters": {"mode": {"required": true}},
    });
    fleet.declare("scripts", "probe", script).await;
    fleet.ready("machines", "sim1").await;
    fleet.settled("sim1").await;
    let block = Val::from([("endpoint", fleet.site.endpoint().into())]);
    let mut core = MiniCore::start(terraform_provider_basalt::provider(), &block).await.expect("it starts");
    let claims = || machine.count(|event| matches!(event, Event::Claimed { .. }));
    let asks = |machine: &str, script: &str, parameters: Val| {
        Val::from([("machine", machine.into()), ("script", script.into()), ("parameters", parameters)])
    };
    let fast = || Val::from([("mode", "fast".into())]);

    let before = claims();
    let ran = core.act("basalt_run_script", &asks("sim1", "probe", fast()), async || claims()).await;
    let ran = ran.expect("it ends");
    assert_eq!(ran.errors, Vec::<String>::new(), "{ran:?}");
    assert!(ran.said.iter().any(|said| said == "probe --mode=fast\n"), "{ran:?}");
    assert_eq!(claims() - before, 1);
    fleet.settled("sim1").await;
    assert_eq!(machine.power_state(), basalt_bmc::PowerState::Off);

    for (script, parameters, says) in [
        ("nobody", fast(), "there is no Script"),
        ("probe", Val::Null, "cannot be run without mode"),
        ("probe", Val::from([("mode", "a".into()), ("speed", "9".into())]), "no parameter \"speed\""),
    ] {
        let refused = core.act("basalt_run_script", &asks("sim1", script, parameters), async || ()).await;
        let refused = refused.expect("it ends");
        assert!(refused.errors[0].contains(says), "{refused:?}");
    }
    core.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_lets_people_mend_a_machine_and_does_not_wait_for_them() {
    let fleet = Fleet::start("rescue", &[]).await;
    let machine = fleet.machine(1, Firmware::Bios, |_| {});
    fleet.declare("machines", "sim1", machine_spec(&machine)).await;
    fleet.ready("machines", "sim1").await;
    fleet.settled("sim1").await;
    let block = Val::from([("endpoint", fleet.site.endpoint().into())]);
    let mut core = MiniCore::start(terraform_provider_basalt::provider(), &block).await.expect("it starts");
    let asks = |duration: Val| {
        let keys = Val::List(vec![basalt_api::Semantic::SshPublicKey.example().into()]);
        Val::from([("machine", "sim1".into()), ("ssh_keys", keys), ("duration", duration)])
    };

    let open = core.act("basalt_rescue", &asks("30m".into()), async || ()).await.expect("it ends");
    assert_eq!(open.errors, Vec::<String>::new(), "{open:?}");
    let last = open.said.last().expect("it says where");
    assert_eq!(last, "sim1: people can come in: ssh root@sim1, host key SHA256:none");
    assert_eq!(machine.power_state(), basalt_bmc::PowerState::On, "it goes on");
    let again = core.act("basalt_rescue", &asks(Val::Null), async || ()).await.expect("it ends");
    assert!(again.errors[0].contains("rescue runs on it"), "{again:?}");
    machine.leave();
    fleet.settled("sim1").await;
    assert_eq!(machine.power_state(), basalt_bmc::PowerState::Off);

    let refused =
        core.act("basalt_rescue", &asks("8d".into()), async || ()).await.expect_err("it is not valid");
    assert!(format!("{refused:?}").contains("from `1m` to `7d`"), "{refused:?}");

    let open = core.act("basalt_rescue", &asks(Val::Null), async || ()).await.expect("it ends");
    assert_eq!(open.errors, Vec::<String>::new(), "{open:?}");
    assert_eq!(machine.power_state(), basalt_bmc::PowerState::On);
    let sim1 = Val::from([("machine", "sim1".into())]);
    let ended = core.act("basalt_abort", &sim1, async || ()).await.expect("it ends");
    assert_eq!(ended.errors, Vec::<String>::new(), "{ended:?}");
    assert_eq!(machine.power_state(), basalt_bmc::PowerState::Off, "at once");
    let nothing = core.act("basalt_abort", &sim1, async || ()).await.expect("it ends");
    let why =
        "It is refused: Machine \"sim1\": no commissioning, install, script or rescue of sim1 is under way";
    assert!(nothing.errors[0].starts_with(why), "{nothing:?}");
    core.stop().await;
}
