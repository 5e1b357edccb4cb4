//! Objects that existed before: imports, objects of other tools, and changes whose answer was lost.

use basalt_api::client::Precondition;
use basalt_api::wire::PutRequest;
use basalt_api::{Kind, Object};
use tfplugin::{Cx, Diag, Diags, Path, Val};

use super::KindResource;
use crate::MANAGER;
use crate::map::{NAME, UID};
use crate::region::Region;

impl KindResource {
    /// Error: the object to import does not exist.
    pub(super) async fn not_there(&self, region: &Region, state: &Val) -> Diags {
        if let Some(name) = state.get(NAME).as_str() {
            let mut absent = region.absent(self.kind, name, Path::root()).await;
            absent.detail.push_str(" To have it created, leave the import out.");
            return absent.into();
        }
        let detail = format!(
            "There is no {} of this uid. One that was deleted and made again has another: import it by its name, or leave the import out.",
            self.kind.name
        );
        Diag::error(self.of("Not found", state.get(UID).as_str().unwrap_or_default()), detail).into()
    }

    /// A warning that another tool also manages an unchanged object: after an import, or after a takeover by the tool.
    pub(super) fn is_shared(&self, name: &str, manager: &str) -> Diag {
        let detail = format!(
            "{} {name:?} is managed by {manager:?} until Terraform changes it. It needs no change now. While it is so, do \
             not take it out of what {manager:?} declares: `basalt apply --prune` deletes what its files no longer name.",
            self.kind.name
        );
        Diag::warning(self.of("Another tool manages it as well", name), detail).at(Path::root().attr(NAME))
    }

    /// A warning that a change takes an object over from another tool.
    pub(super) fn is_taken_over(&self, name: &str, manager: &str) -> Diag {
        let detail = format!(
            "{} {name:?} is managed by {manager:?} now. This change makes it Terraform's, and {manager:?} may undo it. Have one of both \
             declare it: take it out of what {manager:?} declares after the apply, or out of this configuration with a removed block \
             (lifecycle {{ destroy = false }}).",
            self.kind.name
        );
        Diag::warning(self.of("Another tool manages it", name), detail).at(Path::root().attr(NAME))
    }

    /// Instructions for the import of an existing object. Terraform does not wrap lines that begin with a space.
    pub(super) fn how_to_import(&self, name: &str) -> String {
        let of = self.kind.terraform_name;
        format!(
            "To manage it here, import it, with NAME being what this resource is called:\n\n    import {{\n      to = {of}.NAME\n      \
             id = {name:?}\n    }}\n\nor: terraform import {of}.NAME {name}"
        )
    }

    /// True if the object is ours and as declared. Secrets are not compared, because they cannot be read.
    pub(super) fn is_as_declared(&self, there: &Object, request: &PutRequest) -> bool {
        there.metadata.manager.as_deref() == Some(MANAGER)
            && basalt_api::equal(self.kind, &there.spec, &without_secrets(self.kind, &request.spec))
    }

    /// Writes again if the region already has exactly the planned object: the answer to the first request was lost, and the request
    /// was sent again.
    pub(super) async fn catch_up(
        &self,
        cx: &Cx,
        region: &Region,
        key: &str,
        request: &PutRequest,
    ) -> Result<Option<Object>, Diags> {
        match region.find(self.kind, key).await? {
            Some(there) if self.is_as_declared(&there, request) => {
                let precondition = Precondition::Generation(there.metadata.generation);
                let written = region.put(cx, self.kind, key, request, precondition).await;
                written.map(Some).map_err(|error| region.diags(self.kind, key, &error))
            }
            _ => Ok(None),
        }
    }
}

/// A spec without its secrets, so that the comparison ignores them.
fn without_secrets(kind: &Kind, spec: &serde_json::Value) -> serde_json::Value {
    let mut spec = spec.clone();
    for secret in basalt_api::secrets(kind, &spec) {
        let (parent, name) = secret.pointer.rsplit_once('/').unwrap_or_default();
        if let Some(parent) = spec.pointer_mut(parent).and_then(serde_json::Value::as_object_mut) {
            parent.remove(name);
        }
    }
    spec
}
