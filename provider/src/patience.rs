//! How long things may take, by kind.

use std::time::Duration;

use basalt_api::{FieldCode, Kind};
use tfplugin::{Attribute, Diag, Diags, Mode, Nesting, Path, Type, Val};

const MINUTE: Duration = Duration::from_secs(60);

/// How long the changes of a kind may take before the provider gives up waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until it is Ready after a change; none where nobody waits for that.
    pub(crate) ready: Option<Duration>,
    /// Until it is gone.
    pub(crate) gone: Duration,
}

/// Kinds whose changes take long enough to be configurable. Whatever follows from a deployment needs the machine to be
/// up: so it is waited for. A release may erase every disk of a machine, sector by sector.
const PATIENT: &[(&str, Patience)] = &[
    (
        "Deployment",
        Patience { ready: Some(Duration::from_secs(60 * 60)), gone: Duration::from_secs(12 * 60 * 60) },
    ),
    ("Machine", Patience { ready: None, gone: Duration::from_secs(10 * 60) }),
];

/// Everything else is gone as soon as nothing refers to it.
const BRISK: Patience = Patience { ready: None, gone: Duration::from_secs(2 * 60) };

impl Patience {
    /// That of a kind.
    pub(crate) fn of(kind: &Kind) -> Self {
        PATIENT.iter().find(|(name, _)| *name == kind.name).map_or(BRISK, |(_, patience)| *patience)
    }

    /// The attribute in which a configuration can say something else, for kinds that need it.
    pub(crate) fn attribute(kind: &Kind) -> Option<Attribute> {
        let (_, patience) = PATIENT.iter().find(|(name, _)| *name == kind.name)?;
        let one = |name: &str, of: &str, default: Duration| {
            let minutes = default.as_secs() / MINUTE.as_secs();
            let shown =
                if minutes.is_multiple_of(60) { format!("{}h", minutes / 60) } else { format!("{minutes}m") };
            Attribute::optional(name, Type::String)
                .doc(format!("How long to wait for {of}, like `90m`. Default: `{shown}`."))
        };
        let mut attributes = Vec::new();
        if let Some(ready) = patience.ready {
            attributes.push(one("create", "it to be ready after its creation", ready));
            attributes.push(one("update", "it to be ready after a change", ready));
        }
        attributes.push(one("delete", "it to be gone", patience.gone));
        let nested = Attribute::nested("timeouts", Mode::Optional, Nesting::Single, attributes);
        Some(nested.doc("How long to wait. When the time is up the region goes on by itself."))
    }

    /// What the configuration says for `operation`, or `default`.
    pub(crate) fn given(state: &Val, operation: &str, default: Duration) -> Duration {
        let given = state.get("timeouts").get(operation).as_str().and_then(parse);
        given.unwrap_or(default)
    }
}

fn parse(text: &str) -> Option<Duration> {
    let parsed: basalt_api::values::Duration = text.parse().ok()?;
    Some(parsed.get())
}

/// What is wrong with the timeouts of a configuration.
pub(crate) fn check(config: &Val) -> Diags {
    let mut diags = Diags::default();
    for (name, value) in config.get("timeouts").as_map().into_iter().flatten() {
        let Some(text) = value.as_str() else { continue };
        if let Err(bad) = text.parse::<basalt_api::values::Duration>() {
            let error = basalt_api::problem::FieldError::new("", FieldCode::Format, bad.message, bad.hint);
            let path = Path::root().attr("timeouts").attr(name);
            diags.push(Diag::error("Not a duration", error.to_string()).at(path));
        }
    }
    diags
}
