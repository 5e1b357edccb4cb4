//! Checks that no text for people contains an internal term of the engine.

use std::collections::BTreeMap;

use basalt_api::kinds::DeploymentSpec;
use basalt_api::values::Timestamp;

use crate::deployment::{DeploymentInput, plan_deployment};
use crate::failures::{ATTEMPT_FAILURES, POWER_FAILURES, Rule};
use crate::select::{Choice, Miss, Misses};
use crate::steps::STEPS;

/// Internal terms that only programmers of the engine know.
const INNER: &[&str] = &[
    "arm", "armed", "concern", "effect", "claim", "claimed", "record", "lease", "epoch", "epochs", "fenced",
];

/// The first internal term in a text.
fn inner_word(text: &str) -> Option<&str> {
    text.split(|c: char| !c.is_ascii_alphabetic()).find(|word| INNER.contains(word))
}

/// All texts of waits of a deployment without a machine.
fn waits_of_deployments() -> Vec<(String, String)> {
    let spec = |text: &str| serde_json::from_str::<DeploymentSpec>(text).unwrap();
    let near = |lacks: &str, only_address| {
        vec![Miss { machine: "web1".to_owned(), lacks: vec![lacks.to_owned()], only_address }]
    };
    let (near, taken) =
        (near("16 cores", false), near("10.77.0.9 is the address of another Deployment", true));
    let missed =
        |nearest| Misses { nearest, failed_by: BTreeMap::new(), looked_at: 1, not_installable: false };
    let named = spec(r#"{"image": "debian", "machine": "web1"}"#);
    let any = spec(r#"{"image": "debian", "selector": {"pool": "web"}}"#);
    let mut found = Vec::new();
    for (spec, misses) in [
        (&named, missed(Vec::new())),
        (&named, missed(near.clone())),
        (&any, missed(Vec::new())),
        (&any, missed(near)),
        (&named, missed(taken.clone())),
        (&any, missed(taken)),
        (&any, Misses { not_installable: true, ..Misses::default() }),
    ] {
        let choice = Choice::None(misses);
        let input = DeploymentInput {
            name: "web".to_owned(),
            spec: spec.clone(),
            deletion_requested_at: None,
            claimed: None,
            choice: Some(&choice),
            since: Timestamp::UNIX_EPOCH,
        };
        let plan = plan_deployment(&input, Timestamp::UNIX_EPOCH);
        assert_eq!(plan.waits.len(), 1, "{plan:?}");
        for wait in plan.waits {
            let human = wait.human.unwrap_or_default();
            found.push((wait.code.to_owned(), format!("{} {human} {}", wait.message, wait.remedy)));
        }
    }
    found
}

/// All texts of the tables, with the names of their rows.
fn told() -> Vec<(String, String)> {
    let steps = STEPS.iter().map(|step| (step.name.to_owned(), format!("{} {}", step.says, step.remedy)));
    let rules =
        POWER_FAILURES.iter().map(|(_, rule)| rule).chain(ATTEMPT_FAILURES.iter().map(|(_, rule)| rule));
    let failures = rules.map(|Rule { code, says, fix, .. }| ((*code).to_owned(), format!("{says} {fix}")));
    steps.chain(failures).chain(waits_of_deployments()).collect()
}

#[test]
fn people_are_told_without_words_of_the_machinery() {
    let wrong: Vec<_> = told()
        .into_iter()
        .filter_map(|(row, text)| Some(format!("{row}: {:?}", inner_word(&text)?)))
        .collect();
    assert!(wrong.is_empty(), "no user knows these words: {wrong:?}");
}
