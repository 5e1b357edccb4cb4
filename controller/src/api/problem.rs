//! Maps every error to problem+json (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use basalt_api::problem::PROBLEM_JSON;
use basalt_api::{FieldCode, FieldError, Problem, ProblemCode};
use basalt_db::StoreError;

/// The value of Retry-After, in seconds, when the database does not answer.
const RETRY_AFTER: u64 = 1;

tokio::task_local! {
    /// The id of the request that is being answered.
    pub(super) static REQUEST: String;
}

/// The largest length of a message or a pointer, in bytes: long values are not sent back whole.
const LONGEST: usize = 900;

/// A refused request, with its problem.
#[derive(Debug)]
pub(super) struct Refusal(Box<Problem>);

/// The result of a handler.
pub(super) type Answer<T> = Result<T, Refusal>;

impl Refusal {
    pub(super) fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self::from(Problem::new(code, detail))
    }

    pub(super) fn field(
        pointer: &str,
        code: FieldCode,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::invalid(vec![FieldError::new(pointer, code, message, hint)])
    }

    /// The problem of one item, as a part of an answer about many.
    pub(super) fn into_problem(mut self) -> Problem {
        self.shorten();
        *self.0
    }

    /// Cuts texts that repeat a long value.
    fn shorten(&mut self) {
        shorten(&mut self.0.detail);
        for error in &mut self.0.errors {
            shorten_pointer(&mut error.pointer);
            shorten(&mut error.message);
            error.hint.as_mut().map(shorten);
        }
    }

    pub(super) fn code(&self) -> ProblemCode {
        self.0.code
    }

    #[cfg(test)]
    pub(super) fn errors(&self) -> &[FieldError] {
        &self.0.errors
    }

    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self::from(Problem {
            retry_after: Some(RETRY_AFTER),
            ..Problem::new(ProblemCode::Unavailable, detail)
        })
    }

    /// A refusal with the code of the first error.
    pub(super) fn refused(errors: Vec<FieldError>) -> Self {
        of_errors(errors).into()
    }

    pub(super) fn invalid(errors: Vec<FieldError>) -> Self {
        Self::from(Problem::invalid(errors))
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        if error.is_unavailable() {
            tracing::warn!(%error, source = %source(&error), "the database does not answer");
            return Self::unavailable("the database does not answer; try again");
        }
        let detail = error.to_string();
        let code = match error {
            StoreError::NotFound { .. } => ProblemCode::NotFound,
            StoreError::Exists { manager, kind, name, free_in } => {
                let who = manager.map_or_else(|| "nobody in particular".to_owned(), |m| format!("{m:?}"));
                let detail = format!(
                    "{kind} {name:?} exists already, and is managed by {who}; import it, or choose another name"
                );
                return Self::from(exists(detail, free_in));
            }
            StoreError::Conflict { .. } | StoreError::LayerConflict { .. } => ProblemCode::Conflict,
            StoreError::StalePlan => ProblemCode::StalePlan,
            StoreError::Deleting { .. } => ProblemCode::Deleting,
            StoreError::Refused { errors } => return Self::refused(errors),
            StoreError::Overtaken => return Self::unavailable(detail),
            StoreError::SealReplaced => {
                tracing::error!("{detail}");
                return Self::unavailable(detail);
            }
            StoreError::Fenced { .. }
            | StoreError::Seal { .. }
            | StoreError::Corrupt(_)
            | StoreError::Before { .. }
            | StoreError::Database(_) => {
                tracing::error!(%error, source = %source(&error), "a request failed");
                return Self::new(ProblemCode::Internal, "the region made a mistake; its log has more");
            }
        };
        Self::new(code, detail)
    }
}

/// Cuts a text that is too long.
fn shorten(text: &mut String) {
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push('…');
    }
}

/// Replaces a pointer that is too long by one to the value around it.
fn shorten_pointer(pointer: &mut String) {
    while pointer.len() > LONGEST {
        pointer.truncate(pointer.rfind('/').unwrap_or(0));
    }
}

fn source(error: &StoreError) -> String {
    std::error::Error::source(error).map(ToString::to_string).unwrap_or_default()
}

/// The problem of several errors; its code comes from the first one.
fn of_errors(errors: Vec<FieldError>) -> Problem {
    let code = match errors.first().map(|e| e.code) {
        Some(FieldCode::ReferenceNotFound) => ProblemCode::ReferenceNotFound,
        Some(FieldCode::Overlap) => ProblemCode::Overlap,
        Some(FieldCode::NotFound) => ProblemCode::NotFound,
        Some(FieldCode::Forbidden) => ProblemCode::Forbidden,
        _ => ProblemCode::Invalid,
    };
    let problem = Problem::invalid(errors);
    Problem { errors: problem.errors, ..Problem::new(code, problem.detail) }
}

/// The problem of an existing object. If an earlier run created the object and has not confirmed it, the client can try again later.
fn exists(detail: String, free_in: Option<u32>) -> Problem {
    let Some(seconds) = free_in else { return Problem::new(ProblemCode::Exists, detail) };
    let detail = format!(
        "{detail}; an earlier run of the same user created it and has not confirmed it: if that run was cut off, this one takes it up in \
         {seconds} s"
    );
    Problem { retry_after: Some(seconds.into()), ..Problem::new(ProblemCode::Exists, detail) }
}

impl IntoResponse for Refusal {
    fn into_response(mut self) -> Response {
        self.0.request_id = REQUEST.try_with(Clone::clone).ok();
        self.shorten();
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        // The code, for the counters.
        response.extensions_mut().insert(self.0.code);
        let headers = response.headers_mut();
        if let Some(seconds) = self.0.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
