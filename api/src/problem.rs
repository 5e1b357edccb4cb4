//! Errors on the wire: RFC 9457 `application/problem+json`.

use crate::values::BadValue;
use basalt_api_derive::Shape;
use serde::{Deserialize, Serialize};

/// The media type of an error.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// A refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error, Shape)]
#[error("{title}{}{}", if detail.is_empty() { "" } else { ": " }, detail)]
pub struct Problem {
    /// A URI that names the code; always `urn:basalt:problem:CODE`.
    #[serde(rename = "type", default)]
    pub uri: String,
    /// The sort of refusal, for programs.
    pub code: ProblemCode,
    /// The HTTP status code.
    pub status: u16,
    /// The sort of refusal, in words.
    pub title: String,
    /// The error with its value, and a remedy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Errors in single fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// Id of the request. The region's log has more details under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Seconds to wait before the next try; also in the header `Retry-After`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

/// Declares the closed list of codes: word, HTTP status, title.
macro_rules! problem_codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $word:literal, $status:literal, $title:literal;)*) => {
        /// The sort of a refusal. New codes are added; existing codes never change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Shape)]
        #[serde(rename_all = "snake_case")]
        pub enum ProblemCode {
            $($(#[doc = $doc])+ $name,)*
            /// A code of a newer region.
            #[serde(other)]
            Other,
        }

        impl ProblemCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The word on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* Self::Other => "other" }
            }

            /// The HTTP status of an answer with this code.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* Self::Other => 500 }
            }

            /// The title for people.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* Self::Other => "Error" }
            }

            /// Its description, for people.
            #[must_use]
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+).trim_ascii(),)* Self::Other => "A code of a newer region." }
            }
        }
    };
}

problem_codes! {
    /// There is no such object.
    NotFound = "not_found", 404, "Not found";
    /// There is no such path: the request is not one of this region's API.
    NoSuchPath = "no_such_path", 404, "No such path";
    /// The path does not have this method; the header `Allow` says which it has.
    MethodNotAllowed = "method_not_allowed", 405, "Method not allowed";
    /// `If-None-Match: *`, and it is there.
    Exists = "exists", 412, "Already exists";
    /// It is being deleted, and takes no changes.
    Deleting = "deleting", 409, "Being deleted";
    /// `If-Match` names a generation that is no longer the present one, or what is asked for cannot be done as things are.
    Conflict = "conflict", 409, "Not as things are";
    /// The digest is not that of the plan as it would be now.
    StalePlan = "stale_plan", 409, "The plan is out of date";
    /// The spec names an object that is not there.
    ReferenceNotFound = "reference_not_found", 422, "Refers to something that does not exist";
    /// Addresses of the spec are taken by another object.
    Overlap = "overlap", 409, "Overlaps";
    /// The object is referred to by others, and stays.
    InUse = "in_use", 409, "In use";
    /// No token, or one that is not known.
    Unauthenticated = "unauthenticated", 401, "Who are you?";
    /// Too many tries: wait for as long as `Retry-After` says.
    RateLimited = "rate_limited", 429, "Too many tries";
    /// The token's role does not allow it.
    Forbidden = "forbidden", 403, "Not allowed";
    /// The object is locked or protected.
    Locked = "locked", 409, "Locked";
    /// The request breaks rules that concern it alone; `errors` says which.
    Invalid = "invalid", 422, "Invalid";
    /// It is larger than the region takes.
    TooLarge = "too_large", 413, "Too large";
    /// The body is of a media type that the endpoint does not take.
    UnsupportedMediaType = "unsupported_media_type", 415, "Unsupported media type";
    /// Its body did not come in time.
    TooSlow = "too_slow", 408, "Too slow";
    /// The watch position is too old: list again.
    Compacted = "compacted", 410, "Too far in the past";
    /// Not now: the database or a rack does not answer. Try again.
    Unavailable = "unavailable", 503, "Not available";
    /// A mistake of the region; its log has more.
    Internal = "internal", 500, "Internal error";
}

impl Problem {
    /// A refusal with its detail: the error with its value, and a remedy.
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self {
            uri: format!("urn:basalt:problem:{}", code.as_str()),
            code,
            status: code.status(),
            title: code.title().to_owned(),
            detail: detail.into(),
            errors: Vec::new(),
            request_id: None,
            retry_after: None,
        }
    }

    /// A refusal because of invalid fields.
    #[must_use]
    pub fn invalid(errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [only] => only.to_string(),
            many => format!("{} fields are wrong", many.len()),
        };
        Self { errors, ..Self::new(ProblemCode::Invalid, detail) }
    }

    /// Adds the errors of single fields.
    #[must_use]
    pub fn with_errors(self, errors: Vec<FieldError>) -> Self {
        Self { errors, ..self }
    }
}

/// An error in one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct FieldError {
    /// JSON pointer to the field. From [`crate::validate()`] it points into the spec, in a [`Problem`] into the request.
    pub pointer: String,
    /// The sort of error, for programs.
    pub code: FieldCode,
    /// The error with its value.
    pub message: String,
    /// A valid value, or a remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

impl FieldError {
    /// An error in a field, with a remedy.
    pub fn new(
        pointer: impl Into<String>,
        code: FieldCode,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        let hint = hint.into();
        Self {
            pointer: pointer.into(),
            code,
            message: message.into(),
            hint: (!hint.is_empty()).then_some(hint),
        }
    }

    /// The error of a text that does not have the form of its field.
    #[must_use]
    pub fn format(pointer: &str, bad: BadValue) -> Self {
        Self::new(pointer, FieldCode::Format, bad.message, bad.hint)
    }

    /// The same error for a document with the spec at the pointer `base`.
    #[must_use]
    pub fn below(mut self, base: &str) -> Self {
        self.pointer.insert_str(0, base);
        self
    }
}

/// Declares the closed list of the sorts of field errors.
macro_rules! field_codes {
    ($($(#[doc = $doc:literal])+ $name:ident;)*) => {
        /// The sort of an error in a field. New codes are added; existing codes never change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Shape)]
        #[serde(rename_all = "snake_case")]
        pub enum FieldCode {
            $($(#[doc = $doc])+ $name,)*
            /// A code of a newer region.
            #[serde(other)]
            Other,
        }

        impl FieldCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

field_codes! {
    /// The kind has no such field.
    UnknownField;
    /// It must be there.
    Required;
    /// A value of another type.
    Type;
    /// A number or length beyond its bounds.
    Range;
    /// A text that has not its form.
    Format;
    /// Twice in a set.
    Duplicate;
    /// Larger than the region takes.
    TooLarge;
    /// A rule between fields.
    Rule;
    /// It cannot be changed after creation.
    Immutable;
    /// A stored secret would be sent elsewhere: the write has to say it anew.
    Redirected;
    /// The system is installed, and only a new installation could change it.
    Installed;
    /// It names an object that is not there.
    ReferenceNotFound;
    /// It takes addresses of another object.
    Overlap;
    /// There is no such object, for whoever asks.
    NotFound;
    /// The token's role does not allow it.
    Forbidden;
    /// It is stored, and nothing acts on it yet. Only ever an advisory.
    Dormant;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_on_the_wire_are_their_words() {
        for code in ProblemCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
        let future: ProblemCode = serde_json::from_str(r#""from_the_future""#).unwrap();
        assert_eq!(future, ProblemCode::Other);
    }

    #[test]
    fn one_wrong_field_is_told_in_the_detail() {
        let problem =
            Problem::invalid(vec![FieldError::new("/spec/vid", FieldCode::Range, "vid 5000", "0 to 4094")]);
        assert_eq!(problem.to_string(), "Invalid: vid 5000; 0 to 4094");
    }
}
