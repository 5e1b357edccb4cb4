//! Scripts of the first boot of an installed system. The deployment is Ready when all of them have ended well.
//!
//! The system runs them by itself, and reports once at their end. The rules and their reasons are in
//! docs/decisions/120-first-boot-scripts.md.

use std::time::Duration;

use basalt_api::values::Timestamp;

use super::boot::Success;
use super::walk::Walk;
use crate::input::{Claim, later};
use crate::steps::StepId;

/// The time in which the report of the last script arrives.
const REPORT: Duration = Duration::from_secs(60);

/// The runner in the installed system, for instructions to people.
const RUNNER: &str = "/var/lib/basalt-first-boot/run";

/// Most scripts that a sentence names.
const NAMED: usize = 5;

impl Walk<'_> {
    /// True if the scripts of the first boot ended well, or if the install had none. Otherwise it waits for them: for the time limits of
    /// all scripts and of cloud-init, then for a person.
    pub(super) fn first_boot_ended(&mut self, claim: &Claim, installed: &Success<'_>) -> bool {
        let Success { record, attempt, at: installed_at } = *installed;
        let scripts = &record.first_boot;
        if scripts.are_none() {
            return true;
        }
        let ended = self.input.facts.first_boot.get(&attempt);
        if ended.is_some_and(|it| it.failure.is_none()) {
            return true;
        }
        if self.is_mended(installed_at) {
            return false;
        }
        let (step, name) = (StepId::ReadyInstall, self.input.name.as_str());
        if let Some((at, failure)) = ended.and_then(|it| Some((it.at, it.failure.as_ref()?))) {
            let message = format!("scripts of the first boot failed on {name}: {failure}");
            let fix = format!(
                "read the log of {name}; correct the script, delete the deployment and declare it again; or mend the \
                 system, and run `{RUNNER} --again` there as root"
            );
            self.fail_first_boot("FirstBootFailed", message, at, fix);
            return false;
        }
        let link = self.input.facts.boot_racks.clone();
        if !self.racks_are_there(
            step,
            &link,
            "hears the reports of",
            "attach a rack to the VLAN of the machine",
        ) {
            return false;
        }
        let booted_at = self.input.facts.readiness.get(&attempt).map(|it| it.at);
        let from = booted_at.unwrap_or(installed_at);
        let limits = claim.spec.readiness.timeout.get().saturating_add(Duration::from_secs(scripts.seconds));
        let until = later(self.listening_since(from), self.policy.scaled(limits.saturating_add(REPORT)));
        let named = scripts.names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = scripts.names.len().saturating_sub(NAMED);
        let named = if more > 0 { format!("{named} and {more} more") } else { named };
        if self.now < until {
            let message = format!("waiting for {name} to run its scripts of the first boot: {named}");
            self.wait(step, "FirstBoot", message, from, until);
            if let Some(wait) = self.waits.last_mut() {
                wait.remedy = "a person is asked".to_owned();
            }
        } else if self.silence_is_told(step) {
            let limit = limits.as_secs().div_ceil(60);
            let message = format!(
                "{name} has not reported the end of its scripts of the first boot within {limit} minutes: {named}"
            );
            let fix = format!(
                "look at {name}: `journalctl -u basalt-first-boot` shows the scripts, `systemctl start basalt-first-boot` reports again"
            );
            self.fail_first_boot("FirstBootSilent", message, from, fix);
        }
        false
    }

    /// Waits for a person. The deployment has failed: there is no other try.
    fn fail_first_boot(&mut self, code: &'static str, message: String, since: Timestamp, fix: String) {
        self.wait_for_person(Some(StepId::ReadyInstall), code, message, since, fix);
        if let Some(wait) = self.waits.last_mut() {
            wait.tries = Some((1, 1));
        }
    }
}
