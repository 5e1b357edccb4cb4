//! Turns stored facts into the planner's facts: in one pass, without database and clock.

use std::collections::BTreeMap;

use basalt_api::agent::{FIRST_BOOT_DONE, FIRST_BOOT_FAILED, FailureCode, Outcome, TaskResult};
use basalt_api::kinds::PowerState;
use basalt_api::values::{Attempt, Timestamp};
use basalt_db::Fact;
use basalt_engine::facts::{
    Alarm, BootRequest, Checkpointed, Claimed, Ended, Facts, FirstBootEnded, InventorySeen, Leased, Level,
    PowerOutcome, PowerReading, PowerUnread, Progressed, Reported, StepKey, StepRecord,
};
use basalt_engine::failures::PowerFailure;
use serde_json::Value;

use crate::racks::observed::{self, Observed};

/// Folds facts, in any order, into the planner's facts. The caller adds the racks' boot instructions and connections.
/// The database's clock may go back. So the time of a fact is raised to that of the facts stored before it, and to that of the record
/// of the step that it answers.
#[must_use]
pub fn fold(mut facts: Vec<Fact>, records: &[StepRecord], tasks: &BTreeMap<Attempt, Value>) -> Facts {
    facts.sort_by_key(|fact| fact.id);
    let mut out = Facts::default();
    let mut latest = Timestamp::MIN;
    for mut fact in facts {
        latest = latest.max(fact.stored_at).max(begun(&fact, records).unwrap_or(Timestamp::MIN));
        fact.stored_at = latest;
        let Some(observed) = Observed::of(&fact) else {
            tracing::warn!(
                fact = fact.id,
                kind = fact.kind,
                "a stored fact cannot be read; another version wrote it"
            );
            continue;
        };
        let observed = match observed {
            Observed::Result(result) => Observed::Result(Box::new(with_its_scripts(*result, tasks))),
            other => other,
        };
        add(&mut out, &fact, observed);
    }
    out
}

/// The result with its scripts checked. An old agent that does not know scripts runs none, and reports success. The scripts of the first
/// boot have ends too, as skipped ones.
fn with_its_scripts(mut result: TaskResult, tasks: &BTreeMap<Attempt, Value>) -> TaskResult {
    let task = tasks.get(&Attempt::new(result.attempt));
    let listed = |path: &str| {
        let scripts = task.and_then(|task| task.pointer(path)?.as_array());
        scripts.map(Vec::as_slice).unwrap_or_default()
    };
    let wanted = listed("/scripts").iter().chain(listed("/action/first_boot/work/scripts"));
    // A script that runs for each device has several results.
    let has_end = |script: &&Value| {
        let name = script.get("name").and_then(Value::as_str);
        result.scripts.iter().any(|end| Some(end.name.as_str()) == name)
    };
    let (ran, wanted) = (wanted.clone().filter(has_end).count(), wanted.count());
    if result.outcome == Outcome::Succeeded && ran < wanted {
        let message = format!(
            "the agent ran {ran} of {wanted} scripts: upload an ephemeral image of this version, and run `basalt recommission`"
        );
        result.outcome = Outcome::Failed { code: FailureCode::Other, message, wrote: false };
    }
    result
}

/// When the step or attempt that a fact answers was begun.
fn begun(fact: &Fact, records: &[StepRecord]) -> Option<Timestamp> {
    let answers = |record: &&StepRecord| match (&fact.step_key, fact.attempt) {
        (Some(key), _) => record.key.as_str() == key,
        (None, attempt) => attempt.is_some() && record.attempt == attempt,
    };
    records.iter().find(answers).map(|record| record.started_at)
}

fn add(out: &mut Facts, fact: &Fact, observed: Observed) {
    let at = fact.stored_at;
    match (observed, fact.attempt) {
        (Observed::Power(power), _) => add_power(out, fact, &power),
        (Observed::Reading(reading), _) => add_reading(out, at, &reading),
        (Observed::BootRequest(it), Some(attempt)) => {
            out.boot_requests.insert(
                attempt,
                BootRequest { last_at: at, service: it.service.into(), what: it.what.into() },
            );
        }
        (Observed::Claim(it), Some(attempt)) => {
            out.claims.entry(attempt).or_insert(Claimed { at, boot_id: it.boot_id.into() });
        }
        (Observed::Progress(it), Some(attempt)) => {
            let seen =
                Progressed { at, stage: it.stage.into(), percent: it.percent, message: it.message.into() };
            out.progress.insert(attempt, seen);
        }
        (Observed::Checkpoint(it), Some(attempt)) => {
            out.checkpoints.insert(attempt, Checkpointed { at, seq: it.seq, away: it.is_away() });
        }
        (Observed::Result(result), _) => {
            let attempt = Attempt::new(result.attempt);
            if let (Outcome::Succeeded, Some(inventory)) = (&result.outcome, result.inventory) {
                out.inventory = Some(InventorySeen { at, attempt, inventory });
            }
            out.results.entry(attempt).or_insert(Ended {
                at,
                outcome: result.outcome,
                output: result.output,
                logs: result.logs,
            });
        }
        (Observed::Readiness(it), Some(attempt)) => {
            let failure = match it.level.as_str() {
                FIRST_BOOT_DONE => Some(None),
                FIRST_BOOT_FAILED => Some(Some(it.message.into())),
                _ => None,
            };
            // A person who mended the system ran the scripts again. A report of the failure before may come later than that of the success.
            let went_well = out.first_boot.get(&attempt).is_some_and(|it| it.failure.is_none());
            if let Some(failure) = failure.filter(|_| !went_well) {
                out.first_boot.insert(attempt, FirstBootEnded { at, failure });
            }
            let level = match it.level.as_str() {
                "cloud_init" => Level::CloudInit,
                "tcp" => Level::Tcp,
                _ => Level::Booted,
            };
            let known = out.readiness.get(&attempt).map(|r| r.level);
            if known.is_none_or(|known| known < level) {
                out.readiness.insert(attempt, Reported { at, level, address: it.address.into() });
            }
        }
        // If a machine has both, its IPv4 address is shown.
        (Observed::Lease(it), _)
            if !it.released
                && (it.address.contains('.')
                    || out.lease.as_ref().is_none_or(|lease| lease.address.contains(':'))) =>
        {
            out.lease = Some(Leased { at, address: it.address.into() });
        }
        (Observed::Alarm(it), _) => {
            out.alarm = Some(Alarm { at, code: it.code.into(), message: it.message.into() })
        }
        _ => {}
    }
}

fn state_of(word: &str) -> Option<PowerState> {
    match word {
        "on" => Some(PowerState::On),
        "off" => Some(PowerState::Off),
        _ => None,
    }
}

fn add_reading(out: &mut Facts, at: Timestamp, reading: &observed::Reading) {
    if let Ok(certificate) = reading.certificate.parse() {
        out.bmc_certificate = Some(certificate);
    }
    match state_of(&reading.power) {
        Some(state) => (out.power, out.unread) = (Some(PowerReading { state, at }), None),
        None => {
            let failure = PowerFailure::from_code(&reading.error_code);
            out.unread = Some(PowerUnread { at, failure, message: reading.message.to_string() });
        }
    }
}

/// The verb of a rack's result for a reset of a BMC.
const RESET_BMC: &str = "reset_bmc";

fn add_power(out: &mut Facts, fact: &Fact, power: &observed::Power) {
    let state = state_of(&power.power);
    if let Some(state) = state {
        let reading = Some(PowerReading { state, at: fact.stored_at });
        (out.power, out.answered, out.unread) = (reading.clone(), reading, None);
    }
    if let Ok(certificate) = power.certificate.parse() {
        out.bmc_certificate = Some(certificate);
    }
    let Some(key) = &fact.step_key else { return };
    let result = match (power.ok, state) {
        (true, Some(state)) => Ok(state),
        // A BMC that restarts cannot say it.
        (true, None) if &*power.verb == RESET_BMC => Ok(PowerState::Unknown),
        (true, None) => {
            Err((PowerFailure::NotMoved, "the BMC did not say whether the machine is on".to_owned()))
        }
        (false, _) => Err((PowerFailure::from_code(&power.error_code), power.message.to_string())),
    };
    out.power_results.insert(StepKey::from(key.clone()), PowerOutcome { at: fact.stored_at, result });
}

#[cfg(test)]
mod tests {
    use basalt_api::agent::ScriptEnd;
    use basalt_api::values::{Sha256, UntrustedMessage, UntrustedName};
    use serde_json::json;

    use super::*;

    fn fact(id: i64, attempt: u64, observed: &Observed) -> Fact {
        let (kind, body) = observed.stored();
        let at = Timestamp::from_second(id).unwrap();
        let attempt = Some(attempt).filter(|a| *a > 0).map(Attempt::new);
        Fact {
            id,
            kind,
            source: "rack".into(),
            step_key: Some("k".into()),
            attempt,
            body,
            observed_at: at,
            stored_at: at,
        }
    }

    fn readiness(level: &str) -> Observed {
        Observed::Readiness(observed::Readiness {
            level: level.into(),
            message: UntrustedMessage::default(),
            address: "10.0.0.9".into(),
        })
    }

    #[test]
    fn a_reboot_does_not_take_back_that_cloud_init_had_finished() {
        let facts = fold(
            vec![fact(3, 7, &readiness("booted")), fact(2, 7, &readiness("cloud_init"))],
            &[],
            &BTreeMap::new(),
        );
        assert_eq!(facts.readiness[&Attempt::new(7)].level, Level::CloudInit);
    }

    #[test]
    fn the_latest_report_about_the_first_boot_counts_and_its_system_has_booted() {
        let report = |level: &str, message: &str| {
            let (level, message) = (level.into(), message.into());
            Observed::Readiness(observed::Readiness { level, message, address: "10.0.0.9".into() })
        };
        let of = |reports: &[Observed]| {
            let facts = (1..).zip(reports).map(|(id, it)| fact(id, 7, it)).collect();
            let mut facts = fold(facts, &[], &BTreeMap::new());
            let booted = facts.readiness.remove(&Attempt::new(7)).map(|it| it.level);
            (booted, facts.first_boot.remove(&Attempt::new(7)).map(|it| it.failure))
        };
        let failed = report("first_boot_failed", "script tune ended with exit status: 3");
        let failure = Some("script tune ended with exit status: 3".to_owned());
        assert_eq!(of(&[report("booted", "")]), (Some(Level::Booted), None));
        assert_eq!(of(std::slice::from_ref(&failed)), (Some(Level::Booted), Some(failure)));
        let mended = (Some(Level::Booted), Some(None));
        assert_eq!(of(&[failed.clone(), report("first_boot", "")]), mended);
        assert_eq!(of(&[report("first_boot", ""), failed]), mended, "the report of the failure came late");
    }

    #[test]
    fn a_failed_power_command_answers_its_step_and_reads_nothing() {
        let power = Observed::Power(observed::Power {
            verb: "on".into(),
            ok: false,
            power: "unknown".into(),
            error_code: "bad_password".into(),
            message: "the BMC refuses the password".into(),
            epoch: 1,
            certificate: UntrustedName::default(),
        });
        let facts = fold(vec![fact(1, 0, &power)], &[], &BTreeMap::new());
        assert_eq!(facts.power, None);
        let answer = &facts.power_results[&StepKey::from("k".to_owned())];
        assert!(matches!(answer.result, Err((PowerFailure::BadPassword, _))));
    }

    #[test]
    fn the_planner_knows_if_the_machine_may_be_restarting() {
        let of = |leaves: bool| {
            let checkpoint = basalt_api::agent::Checkpoint { seq: 3, leaves, ..Default::default() };
            let facts = vec![fact(4, 7, &Observed::Checkpoint(Box::new(checkpoint)))];
            let seen = fold(facts, &[], &BTreeMap::new()).checkpoints.remove(&Attempt::new(7)).unwrap();
            (seen.seq, seen.away)
        };
        assert_eq!((of(true), of(false)), ((3, true), (3, false)));
    }

    #[test]
    fn a_fact_is_not_earlier_than_those_before_it() {
        let power = |power: &str| {
            let (verb, power) = ("status".into(), power.into());
            let (error_code, message, certificate) =
                (UntrustedName::default(), UntrustedMessage::default(), "0a".repeat(32).into());
            Observed::Power(observed::Power {
                verb,
                ok: true,
                power,
                error_code,
                message,
                epoch: 1,
                certificate,
            })
        };
        let mut late = fact(9, 0, &power("off"));
        late.stored_at = Timestamp::UNIX_EPOCH;
        let facts = fold(vec![late, fact(8, 0, &power("on"))], &[], &BTreeMap::new());
        assert_eq!(facts.bmc_certificate, Some(Sha256::new([10; 32])));
        let reading = facts.power.unwrap();
        assert_eq!((reading.state, reading.at), (PowerState::Off, Timestamp::from_second(8).unwrap()));
    }

    fn reading(power: &str, error_code: &str) -> Observed {
        let message = if error_code.is_empty() { "" } else { "no answer" }.into();
        let (power, error_code, certificate) = (power.into(), error_code.into(), UntrustedName::default());
        Observed::Reading(observed::Reading { power, error_code, message, certificate, unchanged: false })
    }

    #[test]
    fn a_reading_that_failed_says_why_and_the_last_state_is_kept() {
        let of = |facts: &[Observed]| {
            let facts = (1..).zip(facts).map(|(id, it)| fact(id, 0, it)).collect();
            let facts = fold(facts, &[], &BTreeMap::new());
            assert!(facts.power_results.is_empty(), "it answers no step");
            (facts.power.map(|it| it.state), facts.unread.map(|it| it.failure), facts.answered)
        };
        let (on, failed) = (reading("on", ""), reading("", "unreachable"));
        assert_ne!(on.stored().0, failed.stored().0, "the store keeps the latest of each");
        let unreachable = Some(PowerFailure::Unreachable);
        assert_eq!(of(&[on.clone(), failed.clone()]), (Some(PowerState::On), unreachable, None));
        assert_eq!(of(&[failed, on]), (Some(PowerState::On), None, None), "it answers again");
    }

    #[test]
    fn the_first_claim_of_an_attempt_counts() {
        let claim = |boot: &str| {
            Observed::Claim(observed::Claim { address: UntrustedName::default(), boot_id: boot.into() })
        };
        let facts =
            fold(vec![fact(2, 5, &claim("second")), fact(1, 5, &claim("first"))], &[], &BTreeMap::new());
        assert_eq!(facts.claims[&Attempt::new(5)].boot_id, "first");
    }

    #[test]
    fn an_agent_that_ran_no_script_of_its_task_has_not_succeeded() {
        let ended = |ran: &[&str]| {
            let scripts = ran.iter().map(|name| ScriptEnd { name: (*name).into(), ..ScriptEnd::default() });
            let scripts = scripts.collect();
            let result = TaskResult {
                attempt: 5,
                outcome: Outcome::Succeeded,
                inventory: Some(basalt_api::agent::Inventory::default()),
                markers: BTreeMap::new(),
                timings: BTreeMap::new(),
                output: None,
                scripts,
                bmc: None,
                logs: None,
            };
            let task =
                json!({"scripts": [{"name": "burn-in"}, {"name": "scan"}], "action": {"type": "inventory"}});
            let tasks = BTreeMap::from([(Attempt::new(5), task)]);
            let facts = fold(vec![fact(1, 5, &Observed::Result(Box::new(result)))], &[], &tasks);
            (facts.results[&Attempt::new(5)].outcome == Outcome::Succeeded, facts.inventory.is_some())
        };
        let (good, bad) = ((true, true), (false, false));
        assert_eq!((ended(&[]), ended(&["burn-in"]), ended(&["burn-in", "scan"])), (bad, bad, good));
        assert_eq!(ended(&["scan", "scan"]), bad, "one script, for two devices");
        assert_eq!(ended(&["scan", "scan", "burn-in"]), good);
    }

    #[test]
    fn an_agent_that_did_not_prepare_the_first_boot_has_not_succeeded() {
        let first_boot = json!({"work": {"scripts": [{"name": "tune"}]}});
        let task =
            json!({"scripts": [{"name": "seed"}], "action": {"type": "install", "first_boot": first_boot}});
        let tasks = BTreeMap::from([(Attempt::new(5), task)]);
        let ended = |names: &[&str]| {
            let scripts = names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
            let result = json!({"attempt": 5, "outcome": {"type": "succeeded"}, "scripts": scripts,
                "markers": {}, "timings": {}});
            let result: TaskResult = serde_json::from_value(result).unwrap();
            let facts = fold(vec![fact(1, 5, &Observed::Result(Box::new(result)))], &[], &tasks);
            facts.results[&Attempt::new(5)].outcome.clone()
        };
        assert_eq!(ended(&["tune", "seed"]), Outcome::Succeeded);
        let Outcome::Failed { message, .. } = ended(&["seed"]) else { panic!("an old image") };
        assert!(message.contains("the agent ran 1 of 2 scripts: upload an ephemeral image"), "{message}");
    }
}
