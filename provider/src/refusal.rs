//! Refusals of a region as diagnostics: the field, the reason, and the remedy.

use basalt_api::client::ClientError;
use basalt_api::{FieldCode, FieldError, Kind, Problem, ProblemCode};
use tfplugin::{Diag, Diags, Path, Val};

use crate::map::{self, Place};

/// A failed call as diagnostics, each wrong field at its attribute.
pub(crate) fn diags(kind: &Kind, name: &str, error: &ClientError) -> Diags {
    diags_of(kind, name, error, &Val::Null)
}

/// The same for a call about a configuration.
pub(crate) fn diags_of(kind: &Kind, name: &str, error: &ClientError, config: &Val) -> Diags {
    let what = format!("{} {name:?}", kind.name);
    let advice = advice(error);
    if let ClientError::Interrupted { may_be_done } = error {
        return Diag::error(format!("Interrupted: {what}"), interrupted(*may_be_done)).into();
    }
    let Some(problem) = error.problem() else {
        let detail = format!("{}{advice}", sentence(&error.to_string()));
        return Diag::error(format!("The region cannot be reached: {what}"), detail).into();
    };
    let suffix = problem.request_id.as_ref().map(|id| format!(" (Request {id}.)")).unwrap_or_default();
    if problem.errors.is_empty() {
        let title = format!("{}: {what}", problem.title);
        let detail = format!("{}{advice}{suffix}", sentence(said(problem)));
        return Diag::error(title, detail).into();
    }
    let each = problem.errors.iter().map(|error| {
        let wrong = field(kind, error, &suffix, config);
        Diag { summary: format!("{}: {what}", wrong.summary), ..wrong }
    });
    Diags(each.collect())
}

/// A sentence about an interrupted call: whether it may have been executed, and what to do.
fn interrupted(may_be_done: bool) -> &'static str {
    match may_be_done {
        true => {
            "A region had been sent it, and had not answered yet: it may be done. Plan and apply again: that begins with what is there \
             then, and takes over what this apply made."
        }
        false => "No region had answered until then, and nothing was done. Run this again once one does.",
    }
}

/// A sentence with the remedy, if the refusal itself does not contain one.
fn advice(error: &ClientError) -> &'static str {
    match (error, error.code()) {
        (_, Some(ProblemCode::Forbidden)) => {
            " `basalt whoami` says what a token is good for: to plan resources and to read, the role viewer is enough, with the kinds among its \
             scopes; applies, ephemeral tokens and actions need one that may do what they do."
        }
        (_, Some(ProblemCode::Unauthenticated)) => {
            " Give the provider a token that is good; `basalt token issue NAME` makes one for the ApiToken of that name."
        }
        (
            _,
            Some(ProblemCode::Exists | ProblemCode::Deleting | ProblemCode::Conflict | ProblemCode::NotFound),
        ) => " Plan and apply again: that begins with what is there then.",
        (_, Some(ProblemCode::Unavailable | ProblemCode::TooSlow)) => " Run this again in a while.",
        (_, Some(ProblemCode::RateLimited)) => {
            " Run this again in a while; max_parallel of the provider's block bounds how much is asked at once."
        }
        (
            _,
            Some(ProblemCode::NoSuchPath | ProblemCode::MethodNotAllowed | ProblemCode::UnsupportedMediaType),
        ) => {
            " The region may be of another version than this provider: `terraform init -upgrade` looks for the provider of its version."
        }
        (_, Some(ProblemCode::Internal)) => {
            " Run this again; if it stays so, the region's log says more of this request."
        }
        (_, Some(ProblemCode::TooLarge)) => " Have it be smaller, or several.",
        (ClientError::Broken { .. } | ClientError::Unexpected { .. }, _) => {
            " Run this again; if it stays so, look at what stands between here and the region."
        }
        _ => "",
    }
}

/// The text with a full stop. It gets a capital letter if it begins with a word, and not if it begins with
/// a name or a value.
pub(crate) fn sentence(text: &str) -> String {
    let text = text.trim_end_matches('.');
    let first = text.split(' ').next().unwrap_or_default();
    let mut rest = text.chars();
    match rest.next() {
        Some(letter) if first.chars().all(|c| c.is_ascii_lowercase()) => {
            format!("{}{}.", letter.to_uppercase(), rest.as_str())
        }
        _ => format!("{text}."),
    }
}

fn said(problem: &Problem) -> &str {
    if problem.detail.is_empty() { &problem.title } else { &problem.detail }
}

/// A wrong field as an error.
pub(crate) fn field(kind: &Kind, error: &FieldError, suffix: &str, config: &Val) -> Diag {
    let Place { path, origin } = map::place(kind, &error.pointer, config);
    // If the pointer leads to no attribute, the text must name the field.
    let lost = if path == Path::root() && !error.pointer.is_empty() {
        format!("{}: ", error.pointer.trim_start_matches('/'))
    } else {
        String::new()
    };
    if error.code == FieldCode::Redirected
        && let Some((path, version)) = map::version_of(&path)
    {
        let detail =
            format!("{}; raise {version}, which has the secret written again.{suffix}", error.message);
        return Diag::error(title(error.code), detail).at(path);
    }
    // A missing value has no origin.
    let origin = origin.filter(|_| error.code != FieldCode::Required);
    let origin = origin.map(|origin| format!(" {origin}")).unwrap_or_default();
    let title = match error.code {
        FieldCode::Rule if path == Path::root() => "It is refused",
        code => title(code),
    };
    Diag::error(title, format!("{lost}{error}.{origin}{suffix}")).at(path)
}

fn title(code: FieldCode) -> &'static str {
    match code {
        FieldCode::UnknownField => "No such field",
        FieldCode::Required => "Something is missing",
        FieldCode::Immutable => "It cannot be changed",
        FieldCode::Redirected => "The secret has to be given anew",
        FieldCode::Installed => "It needs a new installation",
        FieldCode::ReferenceNotFound => "It refers to something that does not exist",
        FieldCode::Overlap => "It overlaps with something else",
        _ => "The value is wrong",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_once_and_begins_with_a_capital_letter_unless_with_a_name() {
        for (text, want) in [
            ("no region answered", "No region answered."),
            ("it is so.", "It is so."),
            ("client_key: it is none", "client_key: it is none."),
            ("10.0.0.1 is taken", "10.0.0.1 is taken."),
            ("http://a is none", "http://a is none."),
            ("row-1 is locked", "row-1 is locked."),
        ] {
            assert_eq!(sentence(text), want);
        }
    }

    #[test]
    fn a_refusal_is_told_at_its_attributes() {
        let kind = Kind::find("Subnet").expect("a kind");
        let wrong = FieldError::new(
            "/spec/gateway",
            FieldCode::Rule,
            "10.0.0.1 is not in 10.1.0.0/24",
            "like 10.1.0.1",
        );
        let error = ClientError::from(Problem::invalid(vec![wrong]));
        let diags = diags(kind, "lab", &error);
        assert_eq!(diags.0[0].path.to_string(), "gateway");
        assert_eq!(diags.0[0].summary, "The value is wrong: Subnet \"lab\"");
        assert_eq!(diags.0[0].detail, "10.0.0.1 is not in 10.1.0.0/24; like 10.1.0.1.");

        let problem = Problem {
            request_id: Some("r-1".to_owned()),
            ..Problem::new(ProblemCode::Locked, "it is locked by ada")
        };
        let told = &super::diags(kind, "lab", &ClientError::from(problem)).0[0];
        assert_eq!(told.summary, "Locked: Subnet \"lab\"");
        assert_eq!(told.detail, "It is locked by ada. (Request r-1.)");
    }

    #[test]
    fn every_refusal_names_its_object_and_says_what_to_do() {
        // The details of these already tell the cause and the remedy.
        let own = [
            ProblemCode::StalePlan,
            ProblemCode::ReferenceNotFound,
            ProblemCode::Overlap,
            ProblemCode::InUse,
            ProblemCode::Locked,
            ProblemCode::Invalid,
            ProblemCode::Compacted,
        ];
        let kind = Kind::find("Zone").expect("a kind");
        for code in ProblemCode::ALL.iter().copied().filter(|code| !own.contains(code)) {
            let problem = Problem::new(code, "PUT /api/v1/zones/row-1 is not to be");
            let told = diags(kind, "row-1", &problem.into()).0.remove(0);
            assert!(told.summary.ends_with(": Zone \"row-1\""), "{code:?}: {}", told.summary);
            let advice = told.detail.strip_prefix("PUT /api/v1/zones/row-1 is not to be. ");
            assert!(advice.is_some_and(|advice| advice.ends_with('.')), "{code:?}: {}", told.detail);
        }
    }

    #[test]
    fn a_secret_that_would_be_sent_elsewhere_is_asked_for_where_the_configuration_gives_it() {
        let kind = Kind::find("Sample").expect("a kind");
        let why = "mac changes, which decides where this secret is sent";
        let wrong = FieldError::new("/spec/password", FieldCode::Redirected, why, "write the secret itself");
        let told = |name: &str| {
            let told = field(kind, &wrong, "", &Val::from([(name, "x".into())]));
            (told.path.to_string(), told.detail)
        };
        let raise = format!("{why}; raise password_wo_version, which has the secret written again.");
        assert_eq!(told("password_wo"), ("password_wo_version".to_owned(), raise));
        assert_eq!(told("mac"), ("password".to_owned(), format!("{why}; write the secret itself.")));
    }

    #[test]
    fn an_interruption_says_whether_it_may_be_done() {
        let kind = Kind::find("Zone").expect("a kind");
        for (may_be_done, said) in [(true, "takes over what this apply made"), (false, "nothing was done")] {
            let told = diags(kind, "row-1", &ClientError::Interrupted { may_be_done }).0.remove(0);
            assert_eq!(told.summary, "Interrupted: Zone \"row-1\"");
            assert!(told.detail.contains(said), "{}", told.detail);
        }
    }
}
