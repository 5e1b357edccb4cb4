//! The objects that a deletion waits for, as the caller may know them. Objects in pools that the caller does not see are only
//! counted.

use super::App;
use super::rights::{POOLED, Rights};
use basalt_api::values::Uid;
use basalt_db::{Referrer, StoreError};
use std::collections::BTreeSet;

/// The objects that still refer to an object.
#[derive(Debug, Default)]
pub(super) struct WaitsFor {
    named: Vec<Referrer>,
    others: usize,
}

impl WaitsFor {
    /// The referrers, as a caller with these rights may know them.
    pub(super) async fn seen(
        app: &App,
        rights: &Rights,
        referrers: Vec<Referrer>,
    ) -> Result<Self, StoreError> {
        if rights.unlimited().is_some() {
            return Ok(Self::all(referrers));
        }
        let pooled = referrers.iter().filter(|it| POOLED.contains(&it.kind.as_str())).map(|it| it.uid);
        let pools = app.store().pools_of(&pooled.collect::<Vec<Uid>>()).await?;
        let pool = |it: &Referrer| pools.get(&it.uid).and_then(Option::as_deref);
        Ok(Self::only(referrers, |it| rights.may_see(&it.kind, pool(it))))
    }

    /// The referrers, as a caller without any pool may know them.
    pub(super) fn of_no_pool(referrers: Vec<Referrer>) -> Self {
        Self::only(referrers, |it| !POOLED.contains(&it.kind.as_str()))
    }

    fn only(referrers: Vec<Referrer>, may_be_named: impl Fn(&Referrer) -> bool) -> Self {
        let (named, others): (Vec<_>, Vec<_>) = referrers.into_iter().partition(may_be_named);
        let others: BTreeSet<Uid> = others.into_iter().map(|it| it.uid).collect();
        Self { named, others: others.len() }
    }

    /// All referrers, with their names.
    pub(super) fn all(named: Vec<Referrer>) -> Self {
        Self { named, others: 0 }
    }

    /// True if there are no referrers.
    pub(super) fn is_nobody(&self) -> bool {
        self.named.is_empty() && self.others == 0
    }

    /// The referrers with a known name, as `name` writes them, and the number of the others. `None` if there are none.
    pub(super) fn in_words(&self, name: impl Fn(&Referrer) -> String) -> Option<String> {
        let mut named: Vec<String> = self.named.iter().map(name).collect();
        // An object may refer to it in several places.
        named.dedup();
        let named = named.join(", ");
        match (self.named.is_empty(), self.others) {
            (true, 0) => None,
            (false, 0) => Some(named),
            (true, others) => Some(format!("{others} that you do not see")),
            (false, others) => Some(format!("{named} and {others} that you do not see")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn referrer(kind: &str, name: &str) -> Referrer {
        Referrer {
            uid: Uid::generate(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            pointer: "/zone".to_owned(),
        }
    }

    #[test]
    fn who_may_not_be_named_is_counted() {
        let words = |waits: WaitsFor| waits.in_words(|it| format!("{} {}", it.kind, it.name));
        let both = vec![referrer("Machine", "m"), referrer("Vlan", "default.0")];
        assert_eq!(words(WaitsFor::default()), None);
        assert_eq!(words(WaitsFor::all(both.clone())).unwrap(), "Machine m, Vlan default.0");
        assert_eq!(words(WaitsFor::of_no_pool(both)).unwrap(), "Vlan default.0 and 1 that you do not see");
        assert_eq!(
            words(WaitsFor::of_no_pool(vec![referrer("Machine", "m")])).unwrap(),
            "1 that you do not see"
        );
    }
}
