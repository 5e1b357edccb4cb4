//! The routes of the REST API, in one table: [`ROUTES`]. The region's router, guard and access tests read it, and so do the OpenAPI
//! document and the manual.

mod table;
#[cfg(test)]
mod tests;

pub use table::{ROUTES, RouteId};

use crate::kinds::RoleBase;
use crate::wire::MAX_ID_TOKEN_BYTES;
use crate::{KINDS, Kind, MAX_SPEC_BYTES};

/// Most bytes of a usual body: a spec, with room for metadata and spaces around it.
pub const BODY_BYTES: usize = 2 * MAX_SPEC_BYTES;

/// Most bytes of an apply: room for ten thousand documents of a few kilobytes.
const APPLY_BYTES: usize = 64 << 20;

/// Most bytes of a login: names and passwords, or an ID token with a person's groups. Callers without a token can send it.
const LOGIN_BYTES: usize = MAX_ID_TOKEN_BYTES + (8 << 10);

/// The kinds for which a route exists. Its path then has `{plural}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// The route is not for a kind, or its path names the kind itself.
    Itself,
    /// All kinds that the region knows.
    All,
    /// The [planned](Kind::planned) kinds.
    Planned,
    /// The kind with this name.
    Only(&'static str),
}

impl Kinds {
    /// True if the route exists for this kind.
    #[must_use]
    pub fn has(self, kind: &Kind) -> bool {
        match self {
            Self::Itself => false,
            Self::All => true,
            Self::Planned => kind.planned,
            Self::Only(name) => kind.name == name,
        }
    }
}

/// One successful answer: status, description, and the name of its schema. A name with `/` is a media type, for a body that is not JSON.
/// `None`: the answer has no body.
pub type Success = (u16, &'static str, Option<&'static str>);

/// One method of one path.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The route's name, by which the region finds its handler.
    pub id: RouteId,
    /// The HTTP method, in capitals.
    pub method: &'static str,
    /// The path, with `{…}` for variable parts.
    pub path: &'static str,
    /// The `operationId` in the OpenAPI document, with `{Kind}` for the kind's name.
    pub operation: &'static str,
    /// A summary for people, with `{Kind}` for the kind's name.
    pub words: &'static str,
    /// The kinds for which it exists.
    pub kinds: Kinds,
    /// The lowest role that may call it; `None`: anybody, without a token.
    pub role: Option<RoleBase>,
    /// The lowest role for `?dry_run=true`; `None`: it has no dry run, and refuses the parameter.
    pub dry_run: Option<RoleBase>,
    /// True if a role for some pools is enough to call it. The handler checks each object.
    pub judged: bool,
    /// True if it concerns only the caller: every known caller may call it, with any roles and scopes.
    pub own: bool,
    /// The word for scopes, if it is not the first word of the path.
    about: Option<&'static str>,
    /// The largest body in bytes; `None`: the handler does not keep the body in memory.
    pub body: Option<usize>,
    /// True if it answers without the database and without checks of the request: it never fails with 422, 500 or 503.
    pub constant: bool,
    /// Parameters, by their keys in the OpenAPI document's components.
    pub parameters: &'static [&'static str],
    /// The schema or the media type of the request's body, as in [`Success`].
    pub request: Option<&'static str>,
    /// The successful answers.
    pub answers: &'static [Success],
    /// Statuses of refusals, in addition to those that follow from the other members.
    pub refusals: &'static [u16],
    /// The schema of its server-sent events, if it also answers with these.
    pub events: Option<&'static str>,
}

impl Route {
    const fn new(
        id: RouteId,
        method: &'static str,
        path: &'static str,
        operation: &'static str,
        words: &'static str,
    ) -> Self {
        Self {
            id,
            method,
            path,
            operation,
            words,
            kinds: Kinds::Itself,
            role: None,
            dry_run: None,
            judged: false,
            own: false,
            about: None,
            body: Some(BODY_BYTES),
            constant: false,
            parameters: &[],
            request: None,
            answers: &[],
            refusals: &[],
            events: None,
        }
    }

    const fn of(self, kinds: Kinds) -> Self {
        Self { kinds, ..self }
    }

    const fn role(self, role: RoleBase) -> Self {
        Self { role: Some(role), ..self }
    }

    const fn dry_run(self, role: RoleBase) -> Self {
        Self { dry_run: Some(role), ..self }
    }

    const fn judged(self) -> Self {
        Self { judged: true, ..self }
    }

    const fn own(self) -> Self {
        Self { own: true, ..self }
    }

    const fn about(self, plural: &'static str) -> Self {
        Self { about: Some(plural), ..self }
    }

    const fn body(self, bytes: Option<usize>) -> Self {
        Self { body: bytes, ..self }
    }

    const fn constant(self) -> Self {
        Self { constant: true, ..self }
    }

    const fn takes(self, parameters: &'static [&'static str]) -> Self {
        Self { parameters, ..self }
    }

    const fn reads(self, request: &'static str) -> Self {
        Self { request: Some(request), ..self }
    }

    const fn answers(self, answers: &'static [Success]) -> Self {
        Self { answers, ..self }
    }

    const fn refuses(self, refusals: &'static [u16]) -> Self {
        Self { refusals, ..self }
    }

    const fn streams(self, events: &'static str) -> Self {
        Self { events: Some(events), ..self }
    }

    /// True if it only reads.
    #[must_use]
    pub fn is_read(&self) -> bool {
        matches!(self.method, "GET" | "HEAD")
    }

    /// The first word after `/api/v1/`, or the whole path. Scopes of tokens are such words.
    #[must_use]
    pub fn word(&self) -> &'static str {
        if let Some(word) = self.about {
            return word;
        }
        let rest = self.path.strip_prefix("/api/v1/").unwrap_or(self.path).trim_start_matches('/');
        rest.split('/').next().unwrap_or(rest)
    }

    /// The kind of a path that names a kind itself, without `{plural}`.
    #[must_use]
    pub fn kind(&self) -> Option<&'static Kind> {
        KINDS.iter().copied().find(|kind| kind.plural == self.word())
    }
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}
