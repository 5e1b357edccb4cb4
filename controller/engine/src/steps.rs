//! The table of all steps that a machine's reconciliation can take.
//!
//! A step with an effect is recorded before its effect begins. The record's key depends only on the machine, the scope, and the
//! number of tries. A region that dies in between finds the record and repeats the same effect under the same key. A step without an
//! effect ([`EffectKind::Observe`]) waits for a fact that another party causes. A process may be killed at every row of this table:
//! crash tests do so.

use serde::{Deserialize, Serialize};

use crate::deadlines::DeadlineId;

/// How often a machine is powered on for one attempt before the attempt fails.
pub const BOOT_TRIES: u32 = 3;

/// How often an installed system that does not report is power-cycled.
pub const READY_TRIES: u32 = 1;

/// Names a row of [`STEPS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the table says what each one is")]
pub enum StepId {
    ReadPower,
    ArmInventory,
    NetbootInventory,
    AskInventory,
    ClaimInventory,
    RunInventory,
    PowerOffInventory,
    ArmInstall,
    NetbootInstall,
    AskInstall,
    ClaimInstall,
    RunInstall,
    BootLocal,
    ReadyInstall,
    RestartInstall,
    SoftOff,
    PowerOffRelease,
    ArmErase,
    NetbootErase,
    AskErase,
    ClaimErase,
    RunErase,
    PowerOffErase,
    LetGo,
    HoldOn,
    HoldOff,
    OperateOff,
    OperateOn,
    ResetBmc,
    ArmScript,
    NetbootScript,
    AskScript,
    ClaimScript,
    RunScript,
    ArmRescue,
    NetbootRescue,
    AskRescue,
    ClaimRescue,
    RunRescue,
    AbortOff,
    PowerOffRemove,
    Forget,
}

impl StepId {
    /// The row of the table.
    #[must_use]
    pub fn spec(self) -> &'static StepSpec {
        // The table is total; a test proves it.
        STEPS.iter().find(|row| row.id == self).unwrap_or(&MISSING)
    }

    /// The step's name in step keys.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.spec().name
    }
}

/// The type of a step's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectKind {
    /// A power command to the rack that is the BMC's arbiter.
    Power,
    /// A new attempt in the boot concern of the racks that serve the machine.
    Arm,
    /// A deployment's claim is dropped.
    LetGo,
    /// The machine's object is deleted.
    Forget,
    /// No effect: a fact is awaited.
    Observe,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct StepSpec {
    /// The step of this row.
    pub id: StepId,
    /// The step's name in step keys.
    pub name: &'static str,
    /// The step's name for people: "prepare the install".
    pub says: &'static str,
    /// The type of its effect.
    pub effect: EffectKind,
    /// The condition that must hold before it begins.
    pub precondition: &'static str,
    /// The fact that shows that it is done.
    pub postcondition: &'static str,
    /// The longest time until that fact.
    pub deadline: Option<DeadlineId>,
    /// The action at the deadline.
    pub remedy: &'static str,
    /// The reason for this step, and for this remedy.
    pub reason: &'static str,
}

impl StepSpec {
    /// True if it arms a task for the machine to boot, or boots the machine into one.
    #[must_use]
    pub const fn boots_task(&self) -> bool {
        use StepId as S;
        matches!(
            self.id,
            S::ArmInventory
                | S::NetbootInventory
                | S::AskInventory
                | S::ArmInstall
                | S::NetbootInstall
                | S::AskInstall
                | S::ArmErase
                | S::NetbootErase
                | S::AskErase
                | S::ArmScript
                | S::NetbootScript
                | S::AskScript
                | S::ArmRescue
                | S::NetbootRescue
                | S::AskRescue
        )
    }
}

const MISSING: StepSpec = StepSpec {
    id: StepId::ReadPower,
    name: "unlisted",
    says: "",
    effect: EffectKind::Observe,
    precondition: "",
    postcondition: "",
    deadline: None,
    remedy: "",
    reason: "",
};

/// A table row as one tuple: id, name, says, effect, (precondition, postcondition), deadline, remedy, reason.
type Row = (
    StepId,
    &'static str,
    &'static str,
    EffectKind,
    (&'static str, &'static str),
    Option<DeadlineId>,
    &'static str,
    &'static str,
);

const fn row(
    (id, name, says, effect, (precondition, postcondition), deadline, remedy, reason): Row,
) -> StepSpec {
    StepSpec { id, name, says, effect, precondition, postcondition, deadline, remedy, reason }
}

const ARMED: &str = "every connected rack that serves the machine holds the attempt";
const ASKED: &str = "a boot request of this attempt, later than the power command";
const CLAIMED: &str = "the agent's claim of this attempt";
const OFF: &str = "the BMC answered this step's command and reads off";
const MAY_ARM: &str =
    "no attempt of this machine runs; the ephemeral image and a rack for the machine's network exist";
const MAY_POWER: &str = "no other power command is unanswered; no disk of the machine is being written";
const ARM_WHY: &str = "a fresh attempt outranks whatever an older instruction left on racks and disks";
const ON_WHY: &str =
    "network boot is asked of the BMC for this boot only, so that the disk stays first afterwards";
const ASK_WHY: &str =
    "firmware hangs, links that come up late and lost packets are cured by another power cycle";
const CLAIM_WHY: &str =
    "the ephemeral environment has no state: starting it again costs a minute and repairs a lost download";

/// Every step, in the order of a machine's life.
#[rustfmt::skip]
pub const STEPS: &[StepSpec] = &[
    row((StepId::ReadPower, "read-power", "ask the BMC whether the machine is on", EffectKind::Power,
        (MAY_POWER, "a power reading"), Some(DeadlineId::PowerAnswer), "ask again",
        "an unreachable BMC or a wrong password shows before anything else is begun")),

    row((StepId::ArmInventory, "arm-inventory", "prepare the reading of its hardware", EffectKind::Arm,
        (MAY_ARM, ARMED), Some(DeadlineId::RackApplies), "tell a person which rack does not apply it", ARM_WHY)),
    row((StepId::NetbootInventory, "netboot-inventory", "power on to have its hardware read", EffectKind::Power,
        (MAY_POWER, "the BMC answered on"), Some(DeadlineId::PowerAnswer), "send it again", ON_WHY)),
    row((StepId::AskInventory, "ask-inventory", "ask for DHCP", EffectKind::Observe,
        ("powered on for this attempt", ASKED), Some(DeadlineId::BootRequest), "power cycle again", ASK_WHY)),
    row((StepId::ClaimInventory, "claim-inventory", "start the agent", EffectKind::Observe,
        ("asked for DHCP", CLAIMED), Some(DeadlineId::Claim), "power cycle again", CLAIM_WHY)),
    row((StepId::RunInventory, "run-inventory", "report its hardware", EffectKind::Observe,
        ("claimed", "a result of this attempt, with an inventory"), Some(DeadlineId::InventoryQuiet), "prepare the reading of its hardware again",
        "an inventory writes nothing: a second one harms nobody")),
    row((StepId::PowerOffInventory, "power-off-inventory", "power off", EffectKind::Power,
        (MAY_POWER, OFF), Some(DeadlineId::PowerAnswer), "send it again",
        "a machine that waits for work uses no power and cannot be reached by anybody")),

    row((StepId::ArmInstall, "arm-install", "prepare the install", EffectKind::Arm,
        (MAY_ARM, ARMED), Some(DeadlineId::RackApplies), "tell a person which rack does not apply it", ARM_WHY)),
    row((StepId::NetbootInstall, "netboot-install", "power on into the install", EffectKind::Power,
        (MAY_POWER, "the BMC answered on"), Some(DeadlineId::PowerAnswer), "send it again", ON_WHY)),
    row((StepId::AskInstall, "ask-install", "ask for DHCP", EffectKind::Observe,
        ("powered on for this attempt", ASKED), Some(DeadlineId::BootRequest), "power cycle again", ASK_WHY)),
    row((StepId::ClaimInstall, "claim-install", "start the agent", EffectKind::Observe,
        ("asked for DHCP", CLAIMED), Some(DeadlineId::Claim), "power cycle again", CLAIM_WHY)),
    row((StepId::RunInstall, "run-install", "install", EffectKind::Observe,
        ("claimed", "a result of this attempt"), Some(DeadlineId::InstallQuiet), "prepare the install again, with a new attempt",
        "an agent that is silent for so long is dead; the new attempt outranks it should it wake")),
    row((StepId::BootLocal, "boot-local", "point the machine at its disk", EffectKind::Observe,
        ("installed", "every connected rack that serves the machine says local disk"), Some(DeadlineId::RackApplies),
        "tell a person which rack does not apply it",
        "a deployed machine must find no installer, whatever its firmware boots first")),
    row((StepId::ReadyInstall, "ready-install", "report itself as its deployment's readiness asks", EffectKind::Observe,
        ("installed", "a readiness report of this attempt at the level asked for"), Some(DeadlineId::Readiness), "power cycle once",
        "a reboot that hung is cured by one cycle; more of them could harm a system that works but cannot report")),
    row((StepId::RestartInstall, "restart-install", "power cycle the installed system", EffectKind::Power,
        ("installed, and silent past its deadline", "the BMC answered on"), Some(DeadlineId::PowerAnswer), "send it again",
        "the remedy of a system that does not report")),

    row((StepId::SoftOff, "soft-off", "shut its system down", EffectKind::Power,
        ("its system runs, and is to be off", "a power reading that says off"), Some(DeadlineId::SoftOff), "power off without asking the system",
        "a system that shuts down writes what it holds in memory; one that hangs must not hold the machine")),
    row((StepId::PowerOffRelease, "power-off-release", "power off", EffectKind::Power,
        (MAY_POWER, OFF), Some(DeadlineId::PowerAnswer), "send it again",
        "nobody uses a machine that was given back")),
    row((StepId::ArmErase, "arm-erase", "prepare the erase", EffectKind::Arm,
        (MAY_ARM, ARMED), Some(DeadlineId::RackApplies), "tell a person which rack does not apply it", ARM_WHY)),
    row((StepId::NetbootErase, "netboot-erase", "power on into the erase", EffectKind::Power,
        (MAY_POWER, "the BMC answered on"), Some(DeadlineId::PowerAnswer), "send it again", ON_WHY)),
    row((StepId::AskErase, "ask-erase", "ask for DHCP", EffectKind::Observe,
        ("powered on for this attempt", ASKED), Some(DeadlineId::BootRequest), "power cycle again", ASK_WHY)),
    row((StepId::ClaimErase, "claim-erase", "start the agent", EffectKind::Observe,
        ("asked for DHCP", CLAIMED), Some(DeadlineId::Claim), "power cycle again", CLAIM_WHY)),
    row((StepId::RunErase, "run-erase", "erase its disks", EffectKind::Observe,
        ("claimed", "a result of this attempt"), Some(DeadlineId::EraseQuiet), "prepare the erase again, with a new attempt",
        "an erase can be begun again at any point")),
    row((StepId::PowerOffErase, "power-off-erase", "power off", EffectKind::Power,
        (MAY_POWER, OFF), Some(DeadlineId::PowerAnswer), "send it again",
        "nothing of the ephemeral environment outlives the release")),
    row((StepId::LetGo, "let-go", "let the machine go", EffectKind::LetGo,
        ("off, and erased as the deployment asks", "the claim is gone"), None, "", "wipe before reuse")),

    row((StepId::HoldOn, "hold-on", "power on", EffectKind::Power,
        (MAY_POWER, "the latest power reading is on"), Some(DeadlineId::PowerAnswer), "send it again",
        "the machine's spec says power = on")),
    row((StepId::HoldOff, "hold-off", "power off", EffectKind::Power,
        (MAY_POWER, "the latest power reading is off"), Some(DeadlineId::PowerAnswer), "send it again",
        "the machine's spec says power = off")),
    row((StepId::OperateOff, "operate-off", "power off, as was asked for", EffectKind::Power,
        (MAY_POWER, OFF), Some(DeadlineId::PowerAnswer), "send it again",
        "a person asked for it, and nothing else is done to the machine")),
    row((StepId::OperateOn, "operate-on", "power on, as was asked for", EffectKind::Power,
        (MAY_POWER, "the BMC answered on"), Some(DeadlineId::PowerAnswer), "send it again",
        "a person asked for it, and nothing else is done to the machine")),
    row((StepId::ResetBmc, "reset-bmc", "reset its BMC, as was asked for", EffectKind::Power,
        ("no other power command is unanswered", "the BMC accepted it"), Some(DeadlineId::PowerAnswer), "send it again",
        "a person asked for it; the machine goes on running, so a disk that is being written is no obstacle")),
    row((StepId::ArmScript, "arm-script", "prepare the script", EffectKind::Arm,
        (MAY_ARM, ARMED), Some(DeadlineId::RackApplies), "tell a person which rack does not apply it", ARM_WHY)),
    row((StepId::NetbootScript, "netboot-script", "power on into the script", EffectKind::Power,
        (MAY_POWER, "the BMC answered on"), Some(DeadlineId::PowerAnswer), "send it again", ON_WHY)),
    row((StepId::AskScript, "ask-script", "ask for DHCP", EffectKind::Observe,
        ("powered on for this attempt", ASKED), Some(DeadlineId::BootRequest), "power cycle again", ASK_WHY)),
    row((StepId::ClaimScript, "claim-script", "start the agent", EffectKind::Observe,
        ("asked for DHCP", CLAIMED), Some(DeadlineId::Claim), "power cycle again", CLAIM_WHY)),
    row((StepId::RunScript, "run-script", "run the script", EffectKind::Observe,
        ("claimed", "a result of this attempt"), Some(DeadlineId::InstallQuiet), "end the operation as failed",
        "an agent that is silent for so long is dead; a script is run once, so nobody else runs it")),
    row((StepId::ArmRescue, "arm-rescue", "prepare the rescue environment", EffectKind::Arm,
        (MAY_ARM, ARMED), Some(DeadlineId::RackApplies), "tell a person which rack does not apply it", ARM_WHY)),
    row((StepId::NetbootRescue, "netboot-rescue", "power on into the rescue environment", EffectKind::Power,
        (MAY_POWER, "the BMC answered on"), Some(DeadlineId::PowerAnswer), "send it again", ON_WHY)),
    row((StepId::AskRescue, "ask-rescue", "ask for DHCP", EffectKind::Observe,
        ("powered on for this attempt", ASKED), Some(DeadlineId::BootRequest), "power cycle again", ASK_WHY)),
    row((StepId::ClaimRescue, "claim-rescue", "start the agent", EffectKind::Observe,
        ("asked for DHCP", CLAIMED), Some(DeadlineId::Claim), "power cycle again", CLAIM_WHY)),
    row((StepId::RunRescue, "run-rescue", "run the rescue environment", EffectKind::Observe,
        ("claimed", "a result of this attempt"), Some(DeadlineId::InstallQuiet), "end the operation as failed",
        "an agent that is silent for so long is dead; whoever has more to mend asks again")),
    row((StepId::AbortOff, "abort-off", "power off what was aborted", EffectKind::Power,
        ("a person aborted the attempt that it was booted for", OFF), Some(DeadlineId::PowerAnswer), "send it again",
        "the agent of an aborted attempt would go on to write")),
    row((StepId::PowerOffRemove, "power-off-remove", "power off", EffectKind::Power,
        (MAY_POWER, OFF), Some(DeadlineId::PowerAnswer), "send it again",
        "a machine that nobody looks after any more is left off")),
    row((StepId::Forget, "forget", "forget the machine", EffectKind::Forget,
        ("unclaimed and off", "the object is gone"), None, "", "deletion is converged like everything else")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_one_row_with_a_reason_and_a_remedy() {
        for step in STEPS {
            assert_eq!(
                STEPS.iter().filter(|s| s.id == step.id || s.name == step.name).count(),
                1,
                "{}",
                step.name
            );
            assert!(
                !step.reason.is_empty() && !step.precondition.is_empty() && !step.postcondition.is_empty()
            );
            assert_eq!(
                step.deadline.is_some(),
                !step.remedy.is_empty(),
                "{}: a deadline has a remedy",
                step.name
            );
            assert_eq!(step.id.spec().name, step.name);
            let spelled = serde_json::to_value(step.id).unwrap();
            assert_eq!(spelled.as_str().map(|s| s.replace('_', "-")).as_deref(), Some(step.name));
        }
        assert_eq!(STEPS.len(), StepId::Forget as usize + 1, "a step without a row would have no kill point");
    }
}
