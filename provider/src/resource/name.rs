//! Names that change hands: an object gets a name that another one of the same apply still has.
//!
//! Terraform changes objects that do not depend on each other in any order. A name that one of ours has is therefore waited for. Where the
//! one that has it waits in turn for ours, as when two swap their names, ours steps aside under a name of its own.

use std::collections::BTreeSet;

use basalt_api::ProblemCode;
use basalt_api::values::{Mac, Name};
use basalt_api::{BadValue, Object};
use tfplugin::{Change, Cx, Diag, Diags, Path, Val};

use super::{KindResource, key};
use crate::map::{NAME, UID};
use crate::region::{self, Region, Turn};

impl KindResource {
    /// That a machine would have another name and none of its MAC addresses any more, as where `count` has shifted.
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

    /// Gives an object its new name, as soon as no other object of ours has it.
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
            // Whoever comes to this place steps aside, so that nobody waits for anybody else to do so.
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
                // Another try finds the state either way.
                let _ = self.take_back(cx, region, prior, before).await;
            }
            return Err(self.name_is_taken(to));
        };
        self.memory().renames(self.kind.name, before, to);
        Ok(renamed)
    }

    /// Waits a little for a name that one of ours has, which may be about to go or to be renamed; false when that took long enough.
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

    /// Gives it this name now, and keeps that.
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

    /// Gives it the name that it had, also after an interruption.
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
    /// Another one has it.
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

/// A name that no other object is given.
fn name_of_its_own(prior: &Val) -> String {
    format!("renamed-{}", prior.get(UID).as_str().unwrap_or_default())
}
