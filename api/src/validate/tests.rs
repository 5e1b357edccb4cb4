//! What is refused, where the error points, and what it says.

use super::*;
use crate::Kind;
use serde_json::json;

fn errors(kind: &str, spec: &Value) -> Vec<String> {
    let kind = Kind::find(kind).expect("a kind");
    validate(kind, spec).into_iter().map(|e| format!("{}: {e}", e.pointer)).collect()
}

#[test]
fn a_misspelt_field_is_named_with_what_was_meant() {
    let found = errors("Subnet", &json!({"vlan": "default.0", "cidr": "10.77.0.0/24", "gatway": "10.77.0.1"}));
    assert_eq!(found, [r#"/gatway: there is no field "gatway" here; did you mean "gateway"?"#]);
}
