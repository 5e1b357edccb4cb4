//! Renames, also to a name that another object of the same apply still has.
//!
//! Terraform changes independent objects in any order, so a rename waits for a name that another of our objects has. If that object in
//! turn waits for our name, as when two objects swap their names, our object first takes a temporary name.

use std::collections::BTreeSet;

use basalt_api::ProblemCode;
use basalt_api::values::{Mac, Name};
use basalt_api::{BadValue, Object};
use tfplugin::{Change, Cx, Diag, Diags, Path, Val};

use super::{KindResource, key};
use crate::map::{NAME, UID};
use crate::region::{self, Region, Turn};

impl KindResource {
    /// A warning if a machine would get another name and none of its MAC addresses any more, for example because the instances of `count`
    /// have shifted.
    pub(super) fn is_other_hardware(&self, change: Change<'_>) -> Option<Diag> {
        let macs = |of: &Val| -> BTreeSet<Mac> {
            let all = of.get("boot_macs").as_list().unwrap_or_default().iter();
            all.filter_map(|mac| mac.as_str()?.parse().ok()).collect()
        };
        let (before, after) = (macs(change.prior), macs(change.planned));
        let (from, to) = (change.prior.get(NAME).as_str()?, change.planned.get(NAME).as_str()?);
        let are_known = !before.is_empty() && !after.is_empty();
        if self.kind.name != "Machine" || from == to || !are_known || !before.is_disjoint(&after) {
            return None;
        }
        let detail = format!(
            "{} {from:?} would be called {to:?}, and would boot from other cards only: other hardware takes the place of this one, with what is \
             deployed on it and its history. Where the instances of `count` have shifted, `for_each` by name and a `moved` block for each keep \
             every machine what it is.",
            self.kind.name
        );
        Some(
            Diag::warning(self.of("It would be other hardware", to), detail)
                .at(Path::root().attr("boot_macs")),
        )
    }

    /// Renames an object, once no other object of ours has the name.
    pub(super) async fn rename(
        &self,
        cx: &Cx,
        region: &Region,
        prior: &Val,
        to: &str,
    ) -> Result<Object, Diags> {
        let before = prior.get(NAME).as_str().unwrap_or_default();
        let mut aside = None;
        let mut turn = Turn::default();
        let renamed = loop {
            match self.name(cx, region, prior, to).await {
                Ok(object) => break object,
                Err(Unnamed::Taken) => {}
                Err(Unnamed::Other(diags)) => return Err(diags),
            }
            // Take the temporary name without waiting for the other object: otherwise each could wait for the other.
            if aside.is_none() && self.memory().waits_for(self.kind.name, to, before) {
                let name = name_of_its_own(prior);
                tracing::info!(kind = self.kind.name, before, to, aside = name, "stepping aside");
                self.name(cx, region, prior, &name).await.map_err(|it| it.diags(self, to))?;
                aside = Some(name);
                continue;
            }
            if region.has_ours(self.kind, to).await && turn.wait(cx, region, region::IN_THE_WAY).await {
                continue;
            }
            if aside.is_some() {
                // If this fails, the next apply still finds the object by its uid.
                let _ = self.take_back(cx, region, prior, before).await;
            }
            return Err(self.name_is_taken(to));
        };
        self.memory().renames(self.kind.name, before, to);
        Ok(renamed)
    }

    /// Waits a little for a name of another object of ours, which may be deleted or renamed. False at the time limit.
    pub(super) async fn may_be_given_up(
        &self,
        cx: &Cx,
        region: &Region,
        name: &str,
        turn: &mut Turn,
    ) -> bool {
        let limit = match self.memory().is_given_up(self.kind.name, name) {
            true => region::IN_THE_WAY,
            false => region::ON_ITS_WAY,
        };
        region.has_ours(self.kind, name).await && turn.wait(cx, region, limit).await
    }

    /// Renames the object now, and commits the new name.
    async fn name(&self, cx: &Cx, region: &Region, prior: &Val, to: &str) -> Result<Object, Unnamed> {
        let name: Name = to.parse().map_err(|bad: BadValue| {
            let detail = format!("{}; {}.", bad.message, bad.hint);
            Unnamed::Other(Diag::error("Not a name", detail).at(Path::root().attr(NAME)).into())
        })?;
        match region.rename(self.kind, &key(prior), &name).await {
            Ok(object) => {
                let mut state = prior.clone();
                state.set(NAME, to);
                cx.commit(state);
                Ok(object)
            }
            Err(error) if error.code() == Some(ProblemCode::Exists) => Err(Unnamed::Taken),
            Err(error) => {
                let before = prior.get(NAME).as_str().unwrap_or_default();
                Err(Unnamed::Other(region.diags(self.kind, before, &error)))
            }
        }
    }

    /// Gives the object its old name back, also after an interruption.
    async fn take_back(&self, cx: &Cx, region: &Region, prior: &Val, name: &str) -> Result<(), Unnamed> {
        if !cx.is_cancelled() {
            return self.name(cx, region, prior, name).await.map(drop);
        }
        let (client, parsed) = (region.client.for_the_last(), name.parse::<Name>());
        if let Ok(name) = parsed
            && client.rename(self.kind, &key(prior), &name, true).await.is_ok()
        {
            cx.commit(prior.clone());
        }
        Ok(())
    }

    fn name_is_taken(&self, name: &str) -> Diags {
        let detail = format!(
            "Another {} is called {name:?}, and keeps that name. Nothing was changed. Give this one another name; or, if that one is to get \
             another name too, let Terraform change both at once, with -parallelism=2 or more, or apply that one first, with -target.",
            self.kind.name
        );
        Diag::error(self.of("The name is taken", name), detail).at(Path::root().attr(NAME)).into()
    }
}

/// Why an object did not get a name.
enum Unnamed {
    /// Another object has the name.
    Taken,
    Other(Diags),
}

impl Unnamed {
    fn diags(self, resource: &KindResource, name: &str) -> Diags {
        match self {
            Self::Taken => resource.name_is_taken(name),
            Self::Other(diags) => diags,
        }
    }
}

/// A temporary name that no other object has.
fn name_of_its_own(prior: &Val) -> String {
    format!("renamed-{}", prior.get(UID).as_str().unwrap_or_default())
}
