//! Encodes server-sent events.

use axum::body::Bytes;
use basalt_api::values::Incarnation;
use basalt_api::watch::{Cut, CutReason};
use basalt_db::{Changed, Object};
use serde_json::json;

/// Encodes frames. Their ids contain the incarnation of the database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frames(pub(super) Incarnation);

impl Frames {
    /// A `put` frame with an object, as JSON.
    pub(super) fn put(self, position: i64, object: &str) -> Bytes {
        self.frame("put", position, object)
    }

    /// A `delete` frame with a [`basalt_api::watch::Gone`].
    pub(super) fn delete(self, changed: &Changed, object: Option<&Object>) -> Bytes {
        let name = object.map_or(&changed.name, |object| &object.name);
        let data = json!({"kind": changed.kind, "metadata": {"name": name, "uid": changed.uid}});
        self.frame("delete", changed.position, &data.to_string())
    }

    pub(super) fn bookmark(self, position: i64) -> Bytes {
        self.frame("bookmark", position, "{}")
    }

    pub(super) fn cut(self, position: i64, reason: CutReason) -> Bytes {
        let message = match reason {
            CutReason::Slow => "this client reads more slowly than objects change; go on from here",
            CutReason::Compacted => "the log does not reach back to here any more; list again",
            CutReason::Unavailable => "the database does not answer; go on from here",
            CutReason::Stopping => "the region stops; go on from here, at another one",
            CutReason::Rights => "what this token may see has changed; list again",
            CutReason::Renew | CutReason::Other => "no watch lasts for ever; go on from here",
        };
        let cut = Cut { reason, message: message.to_owned() };
        self.frame("cut", position, &serde_json::to_string(&cut).unwrap_or_default())
    }

    /// A spec is stored as it was declared, with its line breaks. Each of its lines becomes a `data` line; JSON strings have no raw line
    /// breaks.
    fn frame(self, event: &str, position: i64, data: &str) -> Bytes {
        let mut text = format!("id: {}:{position}\nevent: {event}\n", self.0);
        text.reserve(data.len().saturating_add(16));
        for line in data.split(['\r', '\n']) {
            text.push_str("data: ");
            text.push_str(line);
            text.push('\n');
        }
        text.push('\n');
        Bytes::from(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_between_a_spec_s_words_stay_inside_their_event() {
        let frames = Frames(Incarnation::from(uuid::Uuid::nil()));
        let frame = frames.frame("put", 7, "{\"a\":\r\n1}");
        let text =
            "id: 00000000-0000-0000-0000-000000000000:7\nevent: put\ndata: {\"a\":\ndata: \ndata: 1}\n\n";
        assert_eq!(frame, text);
    }
}
