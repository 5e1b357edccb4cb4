//! The secrets that were written, with the revisions that the region gave them.
//!
//! A read never shows a secret, only its revision, which rises when the plaintext changes. The revision after our own
//! write is kept in the private data. Another revision means that somebody else wrote the secret. The state then loses
//! the secret, and the next plan writes it again.

use std::collections::BTreeMap;

use basalt_api::pointer::steps;
use basalt_api::{Kind, secrets};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tfplugin::Val;

use super::version;

/// Revisions by pointer into the spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Revisions(BTreeMap<String, u64>);

impl Revisions {
    /// The revisions in a spec that was read.
    pub(crate) fn of(kind: &Kind, spec: &Value) -> Self {
        let found = secrets(kind, spec).into_iter().filter_map(|secret| {
            let revision = spec.pointer(&secret.pointer)?.get("revision")?.as_u64()?;
            Some((secret.pointer, revision))
        });
        Self(found.collect())
    }

    /// Removes each secret from the state whose revision is not the written one any more.
    pub(crate) fn forget_changed(&self, now: &Self, state: &mut Val) {
        for (pointer, revision) in &self.0 {
            if now.0.get(pointer) != Some(revision) {
                forget(state, pointer);
            }
        }
    }
}

fn forget(state: &mut Val, pointer: &str) {
    let mut path: Vec<String> = steps(pointer).collect();
    let Some(name) = path.pop() else { return };
    let mut at = state;
    for step in path {
        let Some(next) = at.as_map_mut().and_then(|map| map.get_mut(&step)) else { return };
        at = next;
    }
    at.set(&name, Val::Null);
    at.set(&version(&name), Val::Null);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn revisions(password: Option<u64>, key: u64) -> Revisions {
        let mut spec =
            json!({"serial": "s", "parts": {"lid": {"weight": 1, "key": {"set": true, "revision": key}}}});
        if let (Some(revision), Value::Object(spec)) = (password, &mut spec) {
            spec.insert("password".into(), json!({"set": true, "revision": revision}));
        }
        Revisions::of(Kind::find("Sample").expect("a kind"), &spec)
    }

    fn state() -> Val {
        let lid = Val::from([("weight", 1_i64.into()), ("key", Val::Null), ("key_wo_version", 7_i64.into())]);
        Val::from([("password", "x".into()), ("parts", Val::from([("lid", lid)]))])
    }

    #[test]
    fn a_secret_that_is_still_ours_stays() {
        let mut after = state();
        revisions(Some(1), 4).forget_changed(&revisions(Some(1), 4), &mut after);
        assert_eq!(after, state());
    }

    #[test]
    fn a_secret_that_somebody_changed_or_cleared_is_forgotten() {
        let mut after = state();
        revisions(Some(1), 4).forget_changed(&revisions(None, 5), &mut after);
        assert_eq!(after.get("password"), &Val::Null);
        assert_eq!(after.get("parts").get("lid").get("key_wo_version"), &Val::Null);
        assert_eq!(after.get("parts").get("lid").get("weight"), &Val::from(1_i64));
    }
}
