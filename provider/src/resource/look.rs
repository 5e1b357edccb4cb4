//! A dry run at the region before a plan is shown: refusals of the region, and consequences for machines.

use basalt_api::client::{ClientError, Precondition};
use basalt_api::plan::{Advisory, Consequences, PlanReport};
use basalt_api::{Effect, FieldCode, Kind, ProblemCode};
use tfplugin::{Change, Cx, Diag, Diags, Path, Severity, Val};

use super::creation::{free_in_seconds, managed_by};
use super::{KindResource, is_replacement, key, request, would_hold};
use crate::MANAGER;
use crate::fresh;
use crate::map::{self, Declared, NAME, Place, UID};
use crate::region::{self, Region};

/// Causes for which a new deployment waits before it has a machine, as the region names them.
const WITHOUT_MACHINE: &[&str] = &["NoMachine", NOT_INSTALLABLE];

/// The image has no installable file. The deployment waits for the image, not for a machine.
const NOT_INSTALLABLE: &str = "NotInstallable";

/// Advice for an object that this plan destroys at one address and declares at another.
const IF_MOVED: &str = "the apply takes it over, or destroys it and creates another one, whichever Terraform comes to first. A `moved` block with both \
     addresses keeps it";

/// Advice for an object that is replaced only because its creation failed.
const IF_TAINTED: &str = " If it is to be replaced only because its creation failed, and it is as it should be by now, `terraform untaint` \
     with the address of this resource keeps it.";

impl KindResource {
    /// Dry run of a creation or a change, before the plan is shown.
    pub(super) async fn dry_run(
        &self,
        cx: &Cx,
        region: &Region,
        change: Change<'_>,
        declared: &Declared,
    ) -> Result<(), Diags> {
        let Some(name) = change.planned.get(NAME).as_str() else { return Ok(()) };
        let (key, precondition) = match change.prior.get(UID).as_str() {
            Some(uid) => (format!("uid:{uid}"), Precondition::None),
            None => (name.to_owned(), Precondition::Absent),
        };
        let request = request(declared.spec.clone(), change);
        let tried = region.client.call().await.put_dry_run(self.kind, &key, &request, precondition).await;
        match tried {
            Ok(answer) => {
                let mut refusals = answer.advisories.iter().filter(|advisory| advisory.refuses());
                let can_be_written = refusals.all(|refusal| self.is_about_to_come(&declared.spec, refusal));
                self.advise(cx, region, change, declared, answer.advisories).await?;
                // For a creation, report only if it would wait for a machine. The plan shows the rest.
                let warning = match change.prior.is_null() {
                    true if can_be_written => self.for_its_start(&declared.spec, &answer.plan, name),
                    false
                        if answer.plan.effect != Effect::None
                            && self.adds(region, &key, &answer.plan).await =>
                    {
                        self.for_its_machine(&answer.plan, name)
                    }
                    _ => None,
                };
                if let Some(warning) = warning {
                    cx.warn(warning);
                }
                if !answer.plan.notes.is_empty() {
                    cx.warn(Diag::warning(self.of("Its installation", name), answer.plan.notes.join("\n")));
                }
                if let Some(warning) = self.for_others(&answer.consequences, name) {
                    cx.warn(warning);
                }
                Ok(())
            }
            Err(error) if error.code() == Some(ProblemCode::Deleting) && !change.prior.is_null() => {
                Err(self.is_going(region, &key, name).await)
            }
            // The same plan may destroy that object.
            Err(error) if matches!(error.code(), Some(ProblemCode::Exists | ProblemCode::Deleting)) => {
                self.look_at_existing(cx, region, change, name, &error).await
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(region.diags_of(self.kind, name, &error, change.config)),
        }
    }

    /// Reports the advisories of the region. An advisory is an error if nothing in this plan can change it; otherwise it is a warning.
    async fn advise(
        &self,
        cx: &Cx,
        region: &Region,
        change: Change<'_>,
        declared: &Declared,
        advisories: Vec<Advisory>,
    ) -> Result<(), Diags> {
        let name = change.planned.get(NAME).as_str().unwrap_or_default();
        let (mut refused, mut warnings) = (Diags::default(), Vec::new());
        for advisory in advisories {
            let Some(mut warning) = self.advice(&declared.spec, &advisory, name, change.config) else {
                continue;
            };
            if self.is_for_good(region, &declared.spec, &advisory).await {
                warning.detail.push_str(" Nothing of this plan changes that.");
                refused.push(Diag { severity: Severity::Error, ..warning });
                continue;
            }
            if advisory.code == FieldCode::ReferenceNotFound
                && let Some((kind, name)) = region::named(&advisory.message).next()
            {
                warning.detail.push_str(&region.near(kind, name).await);
            }
            if self.is_about_what_goes(&advisory) {
                continue;
            }
            if advisory.refuses() {
                let unless = self.unless_this_plan(&advisory);
                warning.detail.push_str(&format!(" As things are now, the apply would fail{unless}."));
            }
            warnings.push(warning);
        }
        if refused.has_errors() {
            return Err(refused);
        }
        together(warnings).into_iter().for_each(|warning| cx.warn(warning));
        Ok(())
    }

    /// Records that an object of the state is destroyed for a new one with the name `to`. Warns if an object that stays refers to it: the
    /// region then refuses the deletion, even if the reference would also fit the new object.
    pub(super) async fn gives_way(&self, cx: &Cx, state: &Val, to: &str) -> Result<(), Diags> {
        let name = state.get(NAME).as_str().unwrap_or_default();
        self.memory().replaces(self.kind.name, to);
        if let Some((kind, holder)) = self.memory().leaves(self.kind.name, name).first() {
            cx.warn(would_hold(self.kind.name, name, kind, holder).at(Path::root().attr(NAME)));
        }
        self.look_at_destruction(cx, state).await
    }

    /// Dry run of a deletion, before the plan is shown. Reports its consequences.
    pub(super) async fn look_at_destruction(&self, cx: &Cx, state: &Val) -> Result<(), Diags> {
        let Some(region) = self.session.region_if_known() else { return Ok(()) };
        let name = state.get(NAME).as_str().unwrap_or_default();
        let options = region::deletion(self.kind);
        // The statement ends the call, so its place is free for the calls of `for_its_users`.
        let tried = region.client.call().await.delete_dry_run(self.kind, &key(state), options).await;
        match tried {
            Ok(answer) => {
                if !is_of_its_deployment(self.kind, &answer.plan)
                    && let Some(warning) = self.for_its_machine(&answer.plan, name)
                {
                    cx.warn(warning);
                }
                Ok(())
            }
            Err(error) if error.code() == Some(ProblemCode::Locked) => {
                Err(region.diags(self.kind, name, &error))
            }
            Err(error) if error.code() == Some(ProblemCode::InUse) => {
                if let Some(warning) = self.for_its_users(&region, &error, name).await {
                    cx.warn(warning);
                }
                Ok(())
            }
            // Objects that refer to it may be deleted first, in this same plan. If the dry run failed, the apply reports the reason.
            Err(_) => Ok(()),
        }
    }

    /// A warning about users of the object outside of Terraform: no part of this plan deletes them.
    async fn for_its_users(&self, region: &Region, in_use: &ClientError, name: &str) -> Option<Diag> {
        let users = region.not_ours(in_use.problem()?).await;
        if users.is_empty() {
            return None;
        }
        let detail = format!(
            "{} {name:?} is referred to by {}, which Terraform does not manage. Unless they go or refer to something else before the apply, \
             it is not deleted, and the apply fails.",
            self.kind.name,
            users.join(", ")
        );
        Some(Diag::warning(self.of("It is in use", name), detail).at(Path::root().attr(NAME)))
    }

    /// The error for an object of the state that is being deleted, and takes no more changes.
    async fn is_going(&self, region: &Region, key: &str, name: &str) -> Diags {
        let why = match region.find(self.kind, key).await {
            Ok(Some(there)) => fresh::reason(&there),
            Ok(None) => "it is gone by now".to_owned(),
            Err(diags) => return diags,
        };
        let detail = format!(
            "{} {name:?} is being deleted, which cannot be taken back, and takes no changes: {}. Once it is gone, the next apply creates \
             it again. Until then it can be left as it is.",
            self.kind.name, why
        );
        Diag::error(self.of("It is being deleted", name), detail).at(Path::root().attr(NAME)).into()
    }

    /// Looks at the object that already has the name of a planned one.
    async fn look_at_existing(
        &self,
        cx: &Cx,
        region: &Region,
        change: Change<'_>,
        name: &str,
        error: &ClientError,
    ) -> Result<(), Diags> {
        let Some(there) = region.find(self.kind, name).await? else { return Ok(()) };
        let uid = there.metadata.uid.to_string();
        let is_kept = self.memory().is_kept(&uid);
        match there.metadata.manager.as_deref() {
            manager if manager != Some(MANAGER) => {
                let who = managed_by(&there);
                let detail = format!(
                    "There is a {} {name:?} already, managed by {who}. Unless it goes before the apply, the apply \
                     will fail. {}",
                    self.kind.name,
                    self.how_to_import(name)
                );
                cx.warn(
                    Diag::warning(self.of("It exists already", name), detail).at(Path::root().attr(NAME)),
                );
            }
            // The plan of its destruction has already looked at it.
            Some(_) if is_replacement(cx, change) && self.memory().is_replaced(self.kind.name, name) => {}
            // A replacement that the user asked for (`-replace`) shows the provider only this step. Terraform does not show warnings of it,
            // but it shows errors.
            Some(_) if is_replacement(cx, change) => {
                self.gives_way(cx, &Val::from([(UID, uid.into()), (NAME, name.into())]), name).await?;
            }
            Some(_) if change.prior.is_null() && self.memory().is_leaving(self.kind.name, name) => {
                let detail = format!(
                    "This plan destroys {} {name:?} at another address, and declares one of that name here: {IF_MOVED}.",
                    self.kind.name
                );
                let title = self.of("It may be destroyed and made anew", name);
                cx.warn(Diag::warning(title, detail).at(Path::root().attr(NAME)));
            }
            // A tainted object is planned like a new one, without prior state. A second resource with the same name is planned like that
            // too.
            Some(_) if is_kept && change.prior.is_null() => {
                let state = Val::from([(UID, uid.into()), (NAME, name.into())]);
                self.look_at_destruction(cx, &state).await.map_err(|refused| {
                    let each =
                        refused.into_iter().map(|diag| Diag { detail: diag.detail + IF_TAINTED, ..diag });
                    Diags(each.collect())
                })?;
            }
            Some(_) if change.prior.is_null() => {
                let detail = format!(
                    "There is a {} {name:?} already, which Terraform made, and which this resource does not have.{} If this plan destroys it at \
                     another address, {IF_MOVED}. Otherwise the apply fails, and leaves it as it is. If another configuration has it, give \
                     this one another name, or read it by a data source. {}",
                    self.kind.name,
                    if_cut_off(error),
                    self.how_to_import(name)
                );
                cx.warn(
                    Diag::warning(self.of("It exists already", name), detail).at(Path::root().attr(NAME)),
                );
            }
            _ => {}
        }
        Ok(())
    }

    /// An advisory as a warning. None if the advisory is about an object that this plan creates.
    fn advice(
        &self,
        spec: &serde_json::Value,
        advisory: &Advisory,
        name: &str,
        config: &Val,
    ) -> Option<Diag> {
        // An immutable field is changed by a replacement, and that is already planned.
        if self.is_about_to_come(spec, advisory) || advisory.code == FieldCode::Immutable {
            return None;
        }
        let hint = advisory.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
        let title =
            if advisory.refuses() { "It does not fit what is there now" } else { "Nothing acts on it" };
        let Place { path, origin } = map::place(self.kind, at(advisory), config);
        let origin = origin.map(|origin| format!(" {origin}")).unwrap_or_default();
        let detail = format!("{}{hint}.{origin}", advisory.message);
        Some(Diag::warning(self.of(title, name), detail).at(path))
    }

    /// True if the advisory is about a reference to an object that this plan creates.
    fn is_about_to_come(&self, spec: &serde_json::Value, advisory: &Advisory) -> bool {
        basalt_api::references(self.kind, spec).iter().any(|reference| {
            reference.pointer == at(advisory) && self.memory().is_coming(reference.kind, &reference.name)
        })
    }

    /// True if the refusal names an object that this plan replaces: the region judged by the old object, and the apply meets the new one.
    fn is_about_what_goes(&self, advisory: &Advisory) -> bool {
        matches!(advisory.code, FieldCode::Overlap | FieldCode::Rule)
            && region::named(&advisory.message).any(|(kind, name)| self.memory().is_replaced(kind.name, name))
    }

    /// A clause about an object of the refusal, if this plan changes it. Otherwise empty.
    fn unless_this_plan(&self, advisory: &Advisory) -> String {
        let moving =
            region::named(&advisory.message).find(|(kind, name)| self.memory().is_moving(kind.name, name));
        moving.map_or(String::new(), |(kind, name)| {
            format!(", unless what this plan does to {} {name:?} changes that", kind.name)
        })
    }

    /// True if the apply must fail because of this advisory: each object in it belongs to another manager, or does not change in this plan.
    /// An object that the plan has not reached yet may still change.
    async fn is_for_good(&self, region: &Region, spec: &serde_json::Value, advisory: &Advisory) -> bool {
        match advisory.code {
            FieldCode::Overlap => self.is_all_theirs(region, &advisory.message).await,
            FieldCode::Rule => {
                for reference in basalt_api::references(self.kind, spec) {
                    let (Some(kind), name) = (Kind::find(reference.kind), reference.name.as_str()) else {
                        return false;
                    };
                    let is_still = self.memory().is_the_same(kind.name, name)
                        || (!self.memory().is_moving(kind.name, name) && region.is_theirs(kind, name).await);
                    if !is_still {
                        return false;
                    }
                }
                true
            }
            _ => false,
        }
    }

    async fn is_all_theirs(&self, region: &Region, message: &str) -> bool {
        let mut is_any = false;
        for (kind, name) in region::named(message) {
            is_any = true;
            if self.memory().is_moving(kind.name, name) || !region.is_theirs(kind, name).await {
                return false;
            }
        }
        is_any
    }

    /// A title that names its object. Terraform shows only the first warning with a title, and the number of the others.
    pub(super) fn of(&self, title: &str, name: &str) -> String {
        format!("{title}: {} {name:?}", self.kind.name)
    }

    /// True if the change adds steps to those that are planned anyway. Also true if the region does not answer.
    async fn adds(&self, region: &Region, key: &str, plan: &PlanReport) -> bool {
        let is_about_power = plan.steps.iter().any(|step| step.power);
        if plan.steps.iter().any(|step| step.destructive) || !is_about_power {
            return true;
        }
        let steps = |plan: &PlanReport| plan.steps.iter().map(|step| step.key.clone()).collect::<Vec<_>>();
        let now = region.client.call().await.plan(self.kind, key).await;
        now.map_or(true, |now| steps(&now) != steps(plan))
    }

    /// A warning if the change erases disks of its own machine, or switches the machine off or restarts it.
    fn for_its_machine(&self, plan: &PlanReport, name: &str) -> Option<Diag> {
        let title = if plan.steps.iter().any(|step| step.destructive) {
            "What is on a machine's disks will be lost"
        } else if plan.steps.iter().any(|step| step.power) {
            "A machine will be switched off or restarted"
        } else {
            return None;
        };
        let steps: Vec<&str> = plan.steps.iter().map(|step| step.message.as_str()).collect();
        Some(Diag::warning(
            self.of(title, name),
            format!("{}. Steps: {}.", plan.summary.trim_end_matches('.'), steps.join(", ")),
        ))
    }

    /// A warning that a new deployment would get no machine now, unless this plan may bring one.
    fn for_its_start(&self, spec: &serde_json::Value, plan: &PlanReport, name: &str) -> Option<Diag> {
        let wait = plan.waits.iter().find(|wait| WITHOUT_MACHINE.contains(&wait.cause.as_str()))?;
        // A new image has no list of machines that can run it yet, so the region examined all machines. For a replaced image, it examined
        // the machines of the old image.
        let bears_on_it = |reference: &basalt_api::Reference| {
            let is_image = reference.kind == "Image";
            is_image == (wait.cause == NOT_INSTALLABLE)
                || (is_image && self.memory().is_replaced(reference.kind, &reference.name))
        };
        let is_moving =
            |reference: &basalt_api::Reference| self.memory().is_moving(reference.kind, &reference.name);
        let references = basalt_api::references(self.kind, spec);
        let asks =
            |of: &str| spec.pointer(of).and_then(|tags| tags.as_array()).is_some_and(|tags| !tags.is_empty());
        let minds_tags = ["/selector/tags", "/selector/not_tags"].into_iter().any(asks);
        if self.memory().may_free_machines(minds_tags)
            || references.iter().filter(|it| bears_on_it(it)).any(is_moving)
        {
            return None;
        }
        let human = wait.human.as_ref().map(|human| format!(" To do: {human}.")).unwrap_or_default();
        let detail =
            format!("As things are now, it would not be installed at once: {}.{human}", wait.message);
        Some(Diag::warning(self.of("It would wait for a machine", name), detail))
    }

    /// A warning about the effects of a change on machines that use the object.
    fn for_others(&self, consequences: &Consequences, name: &str) -> Option<Diag> {
        const NAMED: usize = 10;
        if consequences.machines.is_empty() && consequences.not_told == 0 {
            return None;
        }
        let named = consequences.machines.iter().take(NAMED).map(|it| it.summary.clone());
        let mut lines: Vec<String> = named.collect();
        let unnamed = consequences.machines.len().saturating_sub(NAMED);
        if unnamed > 0 {
            lines.push(format!("And {unnamed} more."));
        }
        if consequences.not_told > 0 {
            lines.push(format!("{} machines that are not ready were not looked at.", consequences.not_told));
        }
        let title = self.of("Machines that decide from this go on otherwise than now", name);
        Some(Diag::warning(title, lines.join("\n")))
    }
}

/// True if the plan of a machine's deletion only describes the deployment on it, which goes first. The plan of the deployment's own
/// deletion reports those steps.
fn is_of_its_deployment(kind: &Kind, plan: &PlanReport) -> bool {
    kind.name == "Machine" && region::named(&plan.summary).any(|(kind, _)| kind.name == "Deployment")
}

/// A sentence for an object that an interrupted run may have created: the apply then adopts it.
fn if_cut_off(error: &ClientError) -> String {
    free_in_seconds(error).map_or(String::new(), |seconds| {
        format!(
            " A run of the same user created it a moment ago: if that run was cut off, the apply waits {seconds} s, and takes it up."
        )
    })
}

/// The path in the spec that the advisory is about.
fn at(advisory: &Advisory) -> &str {
    advisory.pointer.strip_prefix("/spec").unwrap_or(&advisory.pointer)
}

/// Joins warnings with the same title into one: Terraform would show only the first, and the number of the others.
fn together(warnings: Vec<Diag>) -> Vec<Diag> {
    let mut all: Vec<(Diag, Vec<String>)> = Vec::new();
    for warning in warnings {
        let line = format!("{}: {}", warning.path, warning.detail);
        match all.iter_mut().find(|(first, _)| first.summary == warning.summary) {
            Some((_, lines)) => lines.push(line),
            None => all.push((warning, vec![line])),
        }
    }
    let as_one = |(first, lines): (Diag, Vec<String>)| match lines.len() {
        1 => first,
        _ => Diag { detail: lines.join("\n"), ..first },
    };
    all.into_iter().map(as_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_one_object_is_one_warning() {
        let of = |title: &str, at: &str, detail: &str| Diag::warning(title, detail).at(Path::root().attr(at));
        let same =
            together(vec![of("A", "zone", "No z."), of("B", "image", "No i."), of("A", "pool", "No p.")]);
        let told: Vec<_> = same.iter().map(|it| (it.path.to_string(), it.detail.as_str())).collect();
        assert_eq!(told, [("zone".to_owned(), "zone: No z.\npool: No p."), ("image".to_owned(), "No i.")]);
    }

    #[test]
    fn a_machine_that_goes_after_its_deployment_is_not_said_to_be_installed() {
        let goes = |kind: &str, summary: &str| {
            let plan = PlanReport { summary: summary.to_owned(), ..PlanReport::default() };
            is_of_its_deployment(Kind::find(kind).expect("a kind"), &plan)
        };
        assert!(goes("Machine", "Machine \"m\" goes after Deployment \"d\"."));
        assert!(!goes("Machine", "Machine \"m\" is erased, and goes."));
        assert!(!goes("Deployment", "Deployment \"d\" gives machine \"m\" back."));
    }
}
