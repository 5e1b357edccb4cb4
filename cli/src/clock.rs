//! `basalt explain clock RACK`: the state of a rack's clock, and the NTP servers that it is compared with.

use basalt_api::Object;
use serde_json::Value;

use crate::output::line;

/// The rack's health entries for its clock, against NTP servers and against the region.
const CLOCKS: [(&str, &str); 2] = [("time", "NTP"), ("clock", "region")];
/// Prefix of the health entries for single NTP servers, before the server's name.
const SERVER: &str = "time ";

/// The table for people.
pub(crate) fn table(rack: &Object) -> String {
    let services = rack.status.get("services").and_then(Value::as_object);
    let services = || services.into_iter().flatten();
    let mut rows: Vec<(&str, String)> = Vec::new();
    for (service, name) in CLOCKS {
        if let Some((_, told)) = services().find(|(known, _)| *known == service) {
            rows.push((name, words(told, "the clock agrees with it")));
        }
    }
    for (service, told) in services() {
        if let Some(server) = service.strip_prefix(SERVER) {
            rows.push((server, words(told, "it is asked")));
        }
    }
    let name = &rack.metadata.name;
    if rows.is_empty() {
        return format!("{name} has not told of its clock\n");
    }
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let row = |(name, words): (&str, String)| format!("  {:width$}  {}\n", line(name), line(&words));
    format!("{name}:\n{}", rows.into_iter().map(row).collect::<String>())
}

/// The words of a service, or `silent` if there are none.
fn words(told: &Value, silent: &str) -> String {
    told.get("message").and_then(Value::as_str).unwrap_or(silent).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rack(services: Value) -> Object {
        let metadata = json!({
            "name": "r1",
            "uid": "00000000-0000-4000-8000-000000000001",
            "generation": 1,
            "resource_version": "1",
            "created_at": "2026-01-01T00:00:00Z",
            "updated_at": "2026-01-01T00:00:00Z"
        });
        let object =
            json!({"kind": "Rack", "metadata": metadata, "spec": {}, "status": {"services": services}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_clock_comes_first_and_each_server_after_it() {
        let services = json!({
            "clock": {"state": "running"},
            "ntp 10.77.0.2": {"state": "running"},
            "time": {"state": "stopped", "message": "clock is 3.2 s behind a.example"},
            "time a.example": {"state": "running", "message": "3.2 s ahead of this clock, 1.5 ms away, stratum 2"},
            "time 192.0.2.1": {"state": "running", "message": "does not answer"}
        });
        let expected = "r1:\n  \
            NTP        clock is 3.2 s behind a.example\n  \
            region     the clock agrees with it\n  \
            192.0.2.1  does not answer\n  \
            a.example  3.2 s ahead of this clock, 1.5 ms away, stratum 2\n";
        let told = table(&rack(services));
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(lines(&told), lines(expected), "{told}");
        assert!(told.starts_with("r1:\n  NTP "), "{told}");
        assert_eq!(table(&rack(json!({}))), "r1 has not told of its clock\n");
    }
}
