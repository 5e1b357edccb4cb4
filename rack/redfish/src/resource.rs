//! The properties that are read from resources and errors. A property that is missing, null or of another type counts
//! as absent, because BMCs differ.

use serde_json::Value;

use crate::error::told;

/// The most members of a collection that are read.
const MEMBERS: usize = 1024;
/// The most allowable values that are read.
const VALUES: usize = 64;
/// The most messages of an error that are shown.
const MESSAGES: usize = 3;

/// The properties read from a ComputerSystem (DSP2046).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct System {
    /// `PowerState`: On, Off, PoweringOn, PoweringOff, Paused.
    pub(crate) power: Option<String>,
    /// The target of the action `#ComputerSystem.Reset`.
    pub(crate) reset: Option<String>,
    /// `ResetType@Redfish.AllowableValues`.
    pub(crate) resets: Option<Vec<String>>,
    /// `@Redfish.ActionInfo`: the resource that lists the allowable values, if the action does not.
    pub(crate) info: Option<String>,
    pub(crate) boot: BootNow,
    /// `@odata.etag`.
    pub(crate) etag: Option<String>,
}

/// The properties read from its `Boot`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BootNow {
    /// `BootSourceOverrideTarget@Redfish.AllowableValues`.
    pub(crate) targets: Option<Vec<String>>,
    /// `BootSourceOverrideMode`: UEFI or Legacy.
    pub(crate) mode: Option<String>,
    /// `BootSourceOverrideMode@Redfish.AllowableValues`.
    pub(crate) modes: Option<Vec<String>>,
    /// `BootSourceOverrideEnabled`: Once, Continuous, Disabled.
    pub(crate) enabled: Option<String>,
    /// `BootSourceOverrideTarget`.
    pub(crate) target: Option<String>,
}

/// An action that takes a ResetType.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Action {
    /// `target`: the path to post to.
    pub(crate) target: Option<String>,
    /// `ResetType@Redfish.AllowableValues`.
    pub(crate) allowed: Option<Vec<String>>,
    /// `@Redfish.ActionInfo`: the resource that lists the allowable values, if the action does not.
    pub(crate) info: Option<String>,
}

impl Action {
    pub(crate) fn read(body: &Value, name: &str) -> Self {
        let action = body.get("Actions").and_then(|actions| actions.get(name));
        let of = |property: &str| action.and_then(|action| action.get(property));
        Self {
            target: text(of("target")),
            allowed: words(of("ResetType@Redfish.AllowableValues")),
            info: text(of("@Redfish.ActionInfo")),
        }
    }
}

/// The BMCs that manage a system: `Links.ManagedBy`.
pub(crate) fn managers(system: &Value) -> Vec<String> {
    let all = system.pointer("/Links/ManagedBy").and_then(Value::as_array).map(Vec::as_slice);
    let all = all.unwrap_or_default().iter().take(VALUES);
    all.filter_map(|manager| text(manager.get("@odata.id"))).collect()
}

impl System {
    pub(crate) fn read(body: &Value) -> Self {
        let Action { target: reset, allowed: resets, info } = Action::read(body, "#ComputerSystem.Reset");
        let boot = body.get("Boot");
        let of_boot = |property: &str| boot.and_then(|boot| boot.get(property));
        Self {
            power: text(body.get("PowerState")),
            reset,
            resets,
            info,
            boot: BootNow {
                targets: words(of_boot("BootSourceOverrideTarget@Redfish.AllowableValues")),
                mode: text(of_boot("BootSourceOverrideMode")),
                modes: words(of_boot("BootSourceOverrideMode@Redfish.AllowableValues")),
                enabled: text(of_boot("BootSourceOverrideEnabled")),
                target: text(of_boot("BootSourceOverrideTarget")),
            },
            etag: text(body.get("@odata.etag")),
        }
    }
}

/// A page of a collection (DSP0266 §7.2): its members, and the path of the next page.
pub(crate) fn members(body: &Value) -> Option<(Vec<String>, Option<String>)> {
    let members = body.get("Members")?.as_array()?;
    let members = members.iter().take(MEMBERS).filter_map(|member| text(member.get("@odata.id")));
    Some((members.collect(), text(body.get("Members@odata.nextLink"))))
}

/// The reference in a property of a resource.
pub(crate) fn link(body: &Value, property: &str) -> Option<String> {
    text(body.get(property)?.get("@odata.id"))
}

/// The allowable values of the parameter `ResetType` in an ActionInfo.
pub(crate) fn reset_types(info: &Value) -> Option<Vec<String>> {
    let parameters = info.get("Parameters")?.as_array()?;
    let named = |it: &&Value| it.get("Name").and_then(Value::as_str) == Some("ResetType");
    words(parameters.iter().find(named)?.get("AllowableValues"))
}

/// A BMC's reason for a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Objection {
    /// The message's name without its registry and version: `PropertyMissing`.
    pub(crate) id: String,
    /// The properties and values in question, and the message.
    pub(crate) text: String,
}

impl Objection {
    /// True if the message is about this property.
    pub(crate) fn names(&self, property: &str) -> bool {
        self.text.contains(property)
    }
}

/// Messages of the registry Base after which the same request is refused again.
const LASTING: [&str; 5] =
    ["Property", "ActionNotSupported", "ActionParameter", "InsufficientPrivilege", "MalformedJSON"];

/// True if the BMC would refuse the same change in every state.
pub(crate) fn is_lasting(status: u16, objections: &[Objection]) -> bool {
    let lasting = |it: &Objection| LASTING.iter().any(|id| it.id.starts_with(id));
    matches!(status, 404 | 405 | 501) || (status == 400 && objections.iter().any(lasting))
}

/// The reasons in an error (DSP0266 §8.6).
pub(crate) fn objections(body: &[u8]) -> Vec<Objection> {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return Vec::new() };
    let strings = |value: Option<&Value>| -> Vec<String> {
        let all = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        all.iter().take(VALUES).filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let objection = |of: &Value| {
        let id = text(of.get("MessageId"))?;
        let mut words = strings(of.get("MessageArgs"));
        words.extend(strings(of.get("RelatedProperties")));
        words.extend(text(of.get("Message")));
        Some(Objection { id: id.rsplit('.').next().unwrap_or_default().to_owned(), text: words.join(" ") })
    };
    extended(&body).iter().take(VALUES).filter_map(objection).collect()
}

/// The messages of an error. Some BMCs send the one message without its array.
fn extended(body: &Value) -> &[Value] {
    match body.get("error").unwrap_or(body).get("@Message.ExtendedInfo") {
        Some(Value::Array(all)) => all.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    }
}

/// The text of an error (DSP0266 §8.6), after ": "; empty if the error has no text.
pub(crate) fn said(body: &[u8]) -> String {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return String::new() };
    let (error, all) = (body.get("error").unwrap_or(&body), extended(&body));
    let message = |of: &Value| {
        let message = text(of.get("Message")).or_else(|| text(of.get("MessageId")))?;
        let resolution = text(of.get("Resolution")).filter(|it| it != "None" && !it.is_empty());
        Some(match resolution {
            Some(resolution) => format!("{message} {resolution}"),
            None => message,
        })
    };
    let mut messages: Vec<String> = all.iter().filter_map(message).take(MESSAGES).collect();
    // If the messages only have a MessageId, the general message is more helpful.
    if !all.iter().any(|it| it.get("Message").is_some())
        && let Some(general) = text(error.get("message"))
    {
        messages = vec![general];
    }
    if messages.is_empty() { String::new() } else { format!(": {}", told(&messages.join("; "))) }
}

pub(crate) fn text(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_str).map(str::to_owned)
}

/// A list of texts fit for display; `None` for an empty list.
fn words(value: Option<&Value>) -> Option<Vec<String>> {
    let words = value?.as_array()?.iter().filter_map(Value::as_str).take(VALUES);
    Some(words.map(told).collect::<Vec<_>>()).filter(|words| !words.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_error_is_told_by_its_extended_messages_and_how_to_resolve_it() {
        let body = json!({"error": {"code": "Base.1.8.GeneralError", "message": "A general error has occurred.",
            "@Message.ExtendedInfo": [
                {"MessageId": "Base.1.8.ActionParameterNotSupported", "Message": "ResetType is not supported.", "Resolution": "Remove it."},
                {"Message": "Power is off.", "Resolution": "None"}]}});
        assert_eq!(
            said(body.to_string().as_bytes()),
            ": ResetType is not supported. Remove it.; Power is off."
        );
        let bare = json!({"error": {"message": "no such\u{7} thing", "@Message.ExtendedInfo": [{"MessageId": "Base.1.0.GeneralError"}]}});
        assert_eq!(said(bare.to_string().as_bytes()), ": no such thing");
        let one = json!({"@Message.ExtendedInfo": {"MessageId": "iLO.2.14.InvalidOperationForSystemState"}});
        assert_eq!(said(one.to_string().as_bytes()), ": iLO.2.14.InvalidOperationForSystemState");
        assert_eq!(
            (said(b"<html>"), said(b"{}"), said(b"[1]")),
            (String::new(), String::new(), String::new())
        );
        assert!(
            said(json!({"error": {"message": "x".repeat(9000)}}).to_string().as_bytes()).chars().count()
                < 500
        );
    }

    #[test]
    fn an_error_names_its_messages_and_the_properties_that_they_are_about() {
        let body = json!({"error": {"@Message.ExtendedInfo": [{"MessageId": "Base.1.8.1.PropertyMissing",
            "MessageArgs": ["BootSourceOverrideMode", 7], "RelatedProperties": ["#/Boot"], "Message": "It is missing."}, {"Message": "?"}]}});
        let found = objections(body.to_string().as_bytes());
        assert_eq!(
            found,
            [Objection {
                id: "PropertyMissing".into(),
                text: "BootSourceOverrideMode #/Boot It is missing.".into()
            }]
        );
        assert!(is_lasting(400, &found) && is_lasting(405, &[]));
        assert!(!is_lasting(400, &[]) && !is_lasting(409, &found) && !is_lasting(503, &found));
        assert_eq!(objections(b"<html>"), []);
    }

    #[test]
    fn what_is_null_or_of_another_type_is_absent() {
        let odd = json!({"PowerState": null, "Boot": [], "Actions": {"#ComputerSystem.Reset": {"target": 7,
            "ResetType@Redfish.AllowableValues": []}}, "@odata.etag": {}});
        assert_eq!(System::read(&odd), System::default());
        assert_eq!((members(&json!({"Members": {}})), members(&json!([]))), (None, None));
    }
}
