//! The object that the path of a request names.

use super::problem::{Answer, Refusal};
use super::{App, body};
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use basalt_api::routes::{Kinds, Route};
use basalt_api::values::Uid;
use basalt_api::{Kind, ProblemCode};
use basalt_db::{Key, Object};

/// The object of a request: its kind from `{plural}` or from the path itself, and its name or uid from `{name}`. The object need not
/// exist, but the route exists for its kind, and the name has the form of that kind.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The kind of the object.
    pub(super) kind: &'static Kind,
    name: String,
    uid: Option<Uid>,
}

impl Target {
    /// The key of the object.
    pub(super) fn key(&self) -> Key<'_> {
        self.uid.map_or(Key::Name(&self.name), Key::Uid)
    }

    /// The stored object.
    pub(super) async fn object(&self, app: &App) -> Answer<Object> {
        Ok(app.store().get(self.kind.name, self.key()).await?)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Target {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        let bug = || Refusal::new(ProblemCode::Internal, "the path of this route names no object");
        let path = RawPathParams::from_request_parts(parts, state).await.map_err(|_| bug())?;
        let part = |name: &str| path.iter().find(|(key, _)| *key == name).map(|(_, value)| value);
        let route = parts.extensions.get::<&'static Route>().ok_or_else(bug)?;
        let kind = match part("plural") {
            Some(plural) => body::kind(plural).and_then(|kind| served(route, kind))?,
            None => route.kind().ok_or_else(bug)?,
        };
        let name = part("name").ok_or_else(bug)?;
        let uid = match body::key(kind, name)? {
            Key::Uid(uid) => Some(uid),
            Key::Name(_) => None,
        };
        Ok(Self { kind, name: name.to_owned(), uid })
    }
}

/// The kind, if the route exists for it.
fn served(route: &Route, kind: &'static Kind) -> Answer<&'static Kind> {
    if route.kinds.has(kind) {
        return Ok(kind);
    }
    let detail = match route.kinds {
        Kinds::Planned => format!("no plan is made for {}: their status says all there is", kind.plural),
        _ => format!("operations are asked of machines, not of a {}", kind.name),
    };
    Err(Refusal::new(ProblemCode::NotFound, detail))
}
