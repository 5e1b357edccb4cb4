//! Receivers of forwarded logs, in the status of Settings.

use super::App;
use super::problem::Answer;
use super::utilisation::with;
use basalt_api::KindOf;
use basalt_api::kinds::Settings;
use basalt_db::{LogTarget, Object};
use serde_json::{Map, Value, json};

/// Adds the state of the receivers to the status of Settings.
pub(super) async fn fill(app: &App, objects: &mut [Object]) -> Answer<()> {
    for object in objects.iter_mut().filter(|object| object.kind == Settings::KIND.name) {
        let targets = app.store().log_targets().await?;
        let spec: Value = serde_json::from_str(object.spec.get()).unwrap_or_default();
        let declared = |target: &LogTarget| {
            spec.get("remote_syslog").and_then(|it| it.get(&target.name)).is_some_and(|it| !it.is_null())
        };
        let receivers: Map<String, Value> = targets.into_iter().filter(declared).map(told).collect();
        object.status = with(&object.status, [("remote_syslog", Value::Object(receivers))])?;
    }
    Ok(())
}

fn told(target: LogTarget) -> (String, Value) {
    let told = json!({
        "connected": target.connected,
        "message": (!target.message.is_empty()).then_some(target.message),
        "forwarded": target.forwarded,
        "lost": target.lost,
        "waiting_bytes": target.waiting,
    });
    (target.name, told)
}
