//! Functions of the provider, called by configurations.

use serde_json::json;

use crate::world::{flat, within};

#[test]
fn functions_answer_without_a_region() {
    within(async |world| {
        let text = r##"
output "mac" {
  value = provider::basalt::mac_normalize("52-54-00-AA-00-01")
}
output "inside" {
  value = [for a in ["10.77.0.9", "10.78.0.9"] : provider::basalt::cidr_contains("10.77.0.0/24", a)]
}
output "overlap" {
  value = provider::basalt::cidr_overlaps("10.77.0.0/24", "10.0.0.0/8")
}
output "user_data" {
  value = yamldecode(provider::basalt::cloud_init_merge("#cloud-config\npackages: [curl]\n", yamlencode({ packages = ["jq"] })))
}
"##;
        world.config(text).ok(&["apply", "-auto-approve"]).await;
        let shown: serde_json::Value =
            serde_json::from_slice(&world.run(&["output", "-json"]).await.stdout).expect("JSON");
        assert_eq!(shown["mac"]["value"], "52:54:00:aa:00:01");
        assert_eq!(shown["inside"]["value"], json!([true, false]));
        assert_eq!(shown["overlap"]["value"], true);
        assert_eq!(shown["user_data"]["value"], json!({"packages": ["curl", "jq"]}));

        let wrong = text.replace("\"10.77.0.9\"", "\"10.77.0.900\"");
        let said = flat(&world.config(&wrong).fails(&["plan"]).await);
        assert!(said.contains("10.77.0.900") && said.contains("like 10.77.0.1"), "{said}");
        world.end().await;
    });
}
