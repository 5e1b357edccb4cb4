//! Creations, and conflicts with existing objects.
//!
//! An existing object belongs to another state. A creation does not take it, even if it is equal. There are two
//! exceptions:
//!
//! | the object | how that is known |
//! | --- | --- |
//! | is a creation that was interrupted before Terraform stored it | the region tells: see [`run`](crate::run) |
//! | is destroyed by this very run, at another address | its destruction arrives while the creation waits |

use std::time::Duration;

use basalt_api::client::{ClientError, Precondition};
use basalt_api::values::Uid;
use basalt_api::wire::PutRequest;
use basalt_api::{Object, ProblemCode};
use tfplugin::{Cx, Diag, Diags, Path, Val};

use super::{Beside, KindResource};
use crate::MANAGER;
use crate::map::{NAME, UID};
use crate::memory::{Asks, Wanted};
use crate::region::{Region, Turn};

/// Pause before a creation is tried again while another run's equal creation is unconfirmed.
const PAUSE: Duration = Duration::from_secs(1);

impl KindResource {
    /// Creates the object, or adopts an interrupted creation of it.
    pub(super) async fn make(
        &self,
        cx: &Cx,
        region: &Region,
        name: &str,
        request: &PutRequest,
        config: &Val,
    ) -> Result<Object, Diags> {
        let (mut turn, mut free_in) = (Turn::default(), None);
        region.run.creates();
        loop {
            let error = match region.put(cx, self.kind, name, request, Precondition::Absent).await {
                Ok(object) if self.memory().makes(&object.metadata.uid.to_string()) => return Ok(object),
                Ok(_) => return Err(self.is_declared_twice(name)),
                Err(error) if error.code() == Some(ProblemCode::Exists) => error,
                Err(error) => return Err(region.diags_of(self.kind, name, &error, config)),
            };
            if let Some(seconds) = free_in_seconds(&error) {
                // The time until the run expires has grown: the run was renewed, so it is still at work.
                if free_in.is_some_and(|before| seconds > before) {
                    return Err(self.is_being_made(name));
                }
                free_in = Some(seconds);
                tracing::info!(kind = self.kind.name, name, seconds, "waiting for the run that created it");
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => continue,
                    () = cx.cancelled() => return Err(self.is_there(region, name, request).await),
                }
            }
            for asks in [Asks::On, Asks::ForTheLastTime] {
                if let Some(given) = self.take_from_another_address(cx, region, name, request, asks).await? {
                    return Ok(given);
                }
                if asks == Asks::ForTheLastTime {
                    return Err(self.is_there(region, name, request).await);
                }
                if self.may_be_given_up(cx, region, name, &mut turn).await {
                    break;
                }
            }
        }
    }

    /// Records that Terraform is about to receive this creation. No read has seen it in a state yet.
    pub(super) fn hand_over(&self, cx: &Cx, region: &Region, uid: Uid) {
        Beside { unconfirmed: true, ..Beside::read(cx) }.write(cx);
        region.run.answers(uid);
    }

    /// Tells the region that this state contains a creation, if that was not confirmed yet.
    pub(super) async fn confirm(&self, cx: &Cx, state: &Val) {
        let beside = Beside::read(cx);
        let uid = state.get(UID).as_str().and_then(|uid| uid.parse::<Uid>().ok());
        if let (true, Some(uid), Some(region)) = (beside.unconfirmed, uid, self.session.region_if_known())
            && region.run.confirm(uid).await
        {
            Beside { unconfirmed: false, ..beside }.write(cx);
        }
    }

    /// Takes over the object of this name if this run destroys it at another address. Asks for it until then.
    async fn take_from_another_address(
        &self,
        cx: &Cx,
        region: &Region,
        name: &str,
        request: &PutRequest,
        asks: Asks,
    ) -> Result<Option<Object>, Diags> {
        let Some(there) = region.find(self.kind, name).await? else { return Ok(None) };
        let uid = there.metadata.uid.to_string();
        if !self.is_as_declared(&there, request) || !self.memory().asks_for(&uid, asks) {
            return Ok(None);
        }
        if !self.memory().makes(&uid) {
            return Err(self.is_declared_twice(name));
        }
        let precondition = Precondition::Generation(there.metadata.generation);
        let written = region.put(cx, self.kind, name, request, precondition).await;
        Ok(Some(written.map_err(|error| region.diags(self.kind, name, &error))?))
    }

    /// Keeps an object that was to be destroyed, because another resource of this run asks for it. An error if that
    /// resource failed without it.
    pub(super) fn is_wanted(&self, cx: &Cx, name: &str, wanted: Wanted) -> Result<(), Diags> {
        let title = self.of("It is kept", name);
        if wanted == Wanted::InVain {
            let detail = format!(
                "{} {name:?} is not destroyed: another resource of this configuration declares it as it is, and could not have it. If it only \
                 moves to another address, a moved block with both addresses says so; then plan and apply again.",
                self.kind.name
            );
            return Err(Diag::error(title, detail).into());
        }
        let detail = format!(
            "{} {name:?} is as another resource of this configuration declares it. That one took it over, and it is not destroyed. A moved \
             block says so beforehand.",
            self.kind.name
        );
        cx.warn(Diag::warning(title, detail));
        Ok(())
    }

    fn is_declared_twice(&self, name: &str) -> Diags {
        let detail = format!(
            "Another {} of this configuration is {} {name:?} already. Give this one another name, or leave one of them out.",
            self.kind.terraform_name, self.kind.name
        );
        Diag::error(self.of("It is declared twice", name), detail).at(Path::root().attr(NAME)).into()
    }

    /// Error: another run of the same user is creating the object.
    fn is_being_made(&self, name: &str) -> Diags {
        let detail = format!(
            "Another run of the same user has created {} {name:?} and is still at work. Nothing was changed. Wait until that run has ended. \
             {}",
            self.kind.name,
            self.how_to_import(name)
        );
        Diag::error(self.of("Another run creates it", name), detail).at(Path::root().attr(NAME)).into()
    }

    async fn is_there(&self, region: &Region, name: &str, request: &PutRequest) -> Diags {
        let there = match region.find(self.kind, name).await {
            Ok(Some(there)) => there,
            Ok(None) => {
                let detail = format!("{} {name:?} was there and is gone again. Apply again.", self.kind.name);
                return Diag::error(self.of("Changed by somebody else", name), detail).into();
            }
            Err(diags) => return diags,
        };
        if self.memory().is_made(&there.metadata.uid.to_string()) {
            return self.is_declared_twice(name);
        }
        let is_ours = there.metadata.manager.as_deref() == Some(MANAGER);
        let detail = format!(
            "There is a {} {name:?} already, managed by {}{}. Nothing was changed. {}{}",
            self.kind.name,
            managed_by(&there),
            match (is_ours, self.is_as_declared(&there, request)) {
                (true, true) =>
                    ", and as it is declared here: another configuration or another resource has it",
                (true, false) => ", and declared differently",
                (false, _) => "",
            },
            if is_ours { self.if_it_is_the_one_before() } else { String::new() },
            self.how_to_import(name),
        );
        Diag::error(self.of("It exists already", name), detail).at(Path::root().attr(NAME)).into()
    }

    /// Advice for a resource that replaces the object in its way. Terraform does not tell a provider about a
    /// replacement.
    fn if_it_is_the_one_before(&self) -> String {
        format!(
            "If this resource is to replace it, create_before_destroy keeps it until the new one is there, and no two of a kind have one \
             name: take create_before_destroy out of the lifecycle of this {} and of what refers to it, or give the new one another name. If \
             it only moves to another address, a moved block says so. Otherwise: ",
            self.kind.terraform_name
        )
    }
}

/// The manager of an object, in words.
pub(super) fn managed_by(object: &Object) -> String {
    let manager = object.metadata.manager.as_deref();
    manager.map_or("nobody in particular".to_owned(), |manager| format!("{manager:?}"))
}

/// Seconds until this run may take up the object that refused a creation, if the object's run is not renewed.
pub(super) fn free_in_seconds(error: &ClientError) -> Option<u64> {
    error.problem().filter(|problem| problem.code == ProblemCode::Exists)?.retry_after
}
