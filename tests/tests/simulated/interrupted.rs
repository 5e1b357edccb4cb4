//! Applies that end while a machine is at work: the machine continues, and the next apply adopts the deployment.

use std::collections::BTreeMap;
use std::process::{Output, Stdio};

use basalt_sim::{Event, Firmware, SimMachine};
use rustix::process::{Pid, Signal, kill_process};

use crate::terraform::{User, said};
use basalt_tests::fleet::{Fleet, LIMIT, machine_spec};

/// The end of an apply: an interrupt by the user (SIGINT), or a kill without any last output (SIGKILL).
const ENDS: [(&str, Signal); 2] = [("SIGINT", Signal::INT), ("SIGKILL", Signal::KILL)];

/// Events in the middle of the machine's work. No result arrives then, so Terraform does not write its state while it is
/// killed.
const fn is_underway(event: &Event) -> bool {
    matches!(
        event,
        Event::TftpFetched { .. } | Event::Claimed { .. } | Event::Stage { .. } | Event::WroteDisk { .. }
    )
}

impl User {
    /// Runs the command until it ends by itself. Interrupts it at each next event of the machine, and counts the
    /// interruptions by signal.
    async fn persists(
        &self,
        args: &[&str],
        machine: &SimMachine,
        ended: &mut BTreeMap<&str, usize>,
    ) -> Output {
        let mut mark = machine.mark();
        for (name, signal) in ENDS.into_iter().cycle() {
            let child = self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let child = child.expect("terraform on the PATH");
            let pid = Pid::from_raw(child.id().expect("it runs").try_into().expect("a pid")).expect("a pid");
            let mut output = Box::pin(tokio::time::timeout(LIMIT, child.wait_with_output()));
            tokio::select! {
                biased;
                output = &mut output => return output.expect("it ends").expect("an end"),
                seen = machine.wait_for_after(mark, is_underway, LIMIT) => seen.expect("the machine works"),
            };
            kill_process(pid, signal).expect("it runs");
            let output = output.await.expect("it ends").expect("an end");
            // The apply was done before the signal. If it was not really complete, the next plan will not be empty.
            if output.status.success() {
                return output;
            }
            *ended.entry(name).or_default() += 1;
            mark = machine.mark();
        }
        unreachable!("it goes on until it is done")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_installed_once_however_often_the_apply_that_waits_for_it_is_ended() {
    let fleet = Fleet::start("interrupted", &[]).await;
    let machine = fleet.machine(1, Firmware::Uefi, |_| {});
    let user = User::new(&fleet);
    let installed = || machine.count(|event| matches!(event, Event::Installed { .. }));
    let apply = ["apply", "-auto-approve"];
    let mut all = Vec::new();

    user.declare(&machine, "");
    let mut ended = BTreeMap::new();
    let applied = user.persists(&apply, &machine, &mut ended).await;
    assert!(applied.status.success(), "{}", said(&applied));
    assert_eq!(installed(), 1, "{}", machine.log());
    user.has_nothing_to_do().await;
    all.push(("created", ended));

    user.declare(&machine, "hostname = \"other\"\nredeploy = \"in_place\"");
    let mut ended = BTreeMap::new();
    let applied = user.persists(&apply, &machine, &mut ended).await;
    assert!(applied.status.success(), "{}", said(&applied));
    assert_eq!(installed(), 2, "{}", machine.log());
    user.has_nothing_to_do().await;
    all.push(("installed anew", ended));

    let mut ended = BTreeMap::new();
    let destroyed = user.persists(&["destroy", "-auto-approve"], &machine, &mut ended).await;
    assert!(destroyed.status.success(), "{}", said(&destroyed));
    assert_eq!(machine.count(|event| matches!(event, Event::Erased { .. })), 1, "{}", machine.log());
    assert_eq!(installed(), 2, "{}", machine.log());
    assert!(!said(&user.run(&["state", "list"]).await).contains("basalt_"), "nothing is left");
    all.push(("given back", ended));

    eprintln!("applies were ended: {all:?}");
    for (what, ended) in &all {
        let each = ENDS.iter().all(|(name, _)| ended.contains_key(name));
        assert!(each, "while it was {what}: {ended:?}");
    }
    user.provider.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_of_another_machine_gives_the_first_back_and_installs_the_second() {
    let fleet = Fleet::start("moves", &[]).await;
    let (first, second) =
        (fleet.machine(1, Firmware::Uefi, |_| {}), fleet.machine(2, Firmware::Bios, |_| {}));
    fleet.declare("machines", "sim2", machine_spec(&second)).await;
    let user = User::new(&fleet);
    let installed = |machine: &SimMachine| machine.count(|event| matches!(event, Event::Installed { .. }));
    user.declare(&first, "");
    user.apply().await;

    user.edit("= basalt_machine.one.name", "= \"sim2\"");
    let applied = user.apply().await;
    assert!(applied.contains("1 added, 0 changed, 1 destroyed"), "{applied}");
    assert_eq!((installed(&first), installed(&second)), (1, 1));
    assert_eq!(first.count(|event| matches!(event, Event::Erased { .. })), 1, "{}", first.log());
    assert_eq!(first.power_state(), basalt_bmc::PowerState::Off);
    user.provider.stop().await;
}
