//! Errors in configurations and in the connection, and their messages.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::NETWORK;
use crate::deployments::deployment;
use crate::gate::{At, Gate};
use crate::world::{COMMAND, described, everything, flat, provider, provider_at, within};

/// A machine in a zone.
fn machine(zone: &str) -> String {
    format!(
        "resource \"basalt_machine\" \"m\" {{\n name = \"wrong\"\n zone = \"{zone}\"\n boot_macs = [\"52:54:00:00:00:07\"]\n}}\n"
    )
}

#[test]
fn what_is_wrong_is_told_at_its_attribute_and_nothing_is_stored() {
    within(async |world| {
        // One request at a time, so that the order of the errors is fixed.
        let provider = provider(&world).replace("{\n", "{\n  max_parallel = 1\n");
        let with = |resource: &str| format!("{provider}{NETWORK}{resource}");
        for (what, text, want) in [
            (
                "max_parallel",
                with("").replace("max_parallel = 1", "max_parallel = 0"),
                "0 is not a whole number",
            ),
            ("gateway", with("").replace("\"10.77.0.1\"", "\"10.99.0.1\""), "10.99.0.1"),
            ("vid", with("").replace("vid    = 7", "vid    = 5000"), "5000"),
            ("cidr", with("").replace("10.77.0.0/24", "10.77.0.0/99"), "10.77.0.0/99"),
            ("name", with("").replace("\"row-1\"", "\"Row_1\""), "Row_1"),
            ("colour", with("").replace("  description = \"the", "  colour = \"the"), "colour"),
            (
                "name = null",
                with("").replace("name        = \"row-1\"", "name = null"),
                "is required, and is null",
            ),
            (
                "uid = \"7\"",
                with("").replace("  description = \"the", "  uid = \"7\"\n  description = \"the"),
                "cannot be set",
            ),
            (
                "name = \"core.7\"",
                with("").replace("  vid    = 7", "  vid = 7\n  name = \"core.7\""),
                "cannot be set",
            ),
            (
                "password_wo = \"short\"",
                with(
                    "resource \"basalt_user\" \"ada\" {\n name = \"ada\"\n password_wo = \"short\"\n password_wo_version = 1\n}\n",
                ),
                "fewer than 10 characters",
            ),
            ("boot_macs", with(&machine("row-1").replace("00:07", "00:zz")), "52:54:00:00:00:zz"),
        ] {
            let said = flat(&world.config(&text).fails(&["plan"]).await);
            assert!(said.contains(want) && said.contains(what), "{what}: {said}");
        }
        // Only the region can find these errors. An error that other resources of the plan may remove is a warning; another one
        // fails the plan.
        world.config(&with("")).apply().await;
        let theirs = json!({"subnet": "lab", "start": "10.77.0.60", "end": "10.77.0.69"});
        world.put("cli", "IpRange", "theirs", theirs).await;
        let range = |subnet: &str, start: &str, end: &str| {
            with(&format!(
                "resource \"basalt_ip_range\" \"b\" {{\n name = \"b\"\n subnet = {subnet}\n start = {start:?}\n end = {end:?}\n}}\n"
            ))
        };
        let of_subnet = "basalt_subnet.lab.name";
        let text = range(of_subnet, "10.77.0.140", "10.77.0.160");
        let said = flat(&world.config(&text).ok(&["plan"]).await);
        let want = "overlaps 10.77.0.100-10.77.0.149 of IpRange \"lab-pool\"";
        assert!(said.contains("Warning: It does not fit") && said.contains(want), "{said}");
        for (start, end, want) in [
            ("10.77.0.65", "10.77.0.75", "overlaps 10.77.0.60-10.77.0.69 of IpRange \"theirs\""),
            ("10.78.0.1", "10.78.0.9", "10.78.0.1 is outside 10.77.0.0/24"),
        ] {
            let said = flat(&world.config(&range(of_subnet, start, end)).fails(&["plan"]).await);
            assert!(said.contains("Error: It does not fit what is there now: IpRange \"b\""), "{said}");
            assert!(said.contains(want) && said.contains("Nothing of this plan changes that."), "{said}");
            assert!(said.contains(&format!("start = {start:?}")), "at its attribute: {said}");
        }
        // The same plan changes the subnet, so the result for the range may change: a warning. If the plan replaces the
        // subnet, there is no warning.
        let text = range(of_subnet, "10.78.0.1", "10.78.0.9");
        let changed = text.replace("  gateway     = \"10.77.0.1\"", "  gateway     = \"10.77.0.9\"");
        let said = flat(&world.config(&changed).ok(&["plan"]).await);
        let judged = "the apply would fail, unless what this plan does to Subnet \"lab\" changes that.";
        assert!(said.contains("Warning: It does not fit") && said.contains(judged), "{said}");
        let renumbered =
            text.replace("10.77.0.0/24", "10.76.0.0/14").replace("\"10.77.0.100\"", "\"10.77.0.101\"");
        let said = flat(&world.config(&renumbered).ok(&["plan"]).await);
        assert!(!said.contains("It does not fit") && said.contains("must be replaced"), "{said}");
        let ignored = deployment(&world, "user_data = \"apt install nginx\"");
        let said = flat(&world.config(&ignored).ok(&["plan"]).await);
        let warns = "Warning: Nothing acts on it: Deployment \"web-1\"";
        assert!(said.contains(warns) && said.contains("cloud-init does nothing with"), "{said}");
        // Terraform shows one warning for each title.
        let two = machine("row-11").replace("boot_macs", "pool = \"wep\"\n boot_macs");
        let said = flat(&world.config(&with(&two)).ok(&["plan"]).await);
        for want in ["there is no Zone \"row-11\"", "\"row-1\"", "there is no Pool \"wep\"", "\"web\""] {
            assert!(said.contains(want), "{want}: {said}");
        }
        // All at the same time: an overlap is retried for a while.
        let range = |name: &str, start: &str, end: &str| {
            format!(
                "resource \"basalt_ip_range\" \"{name}\" {{\n name = \"{name}\"\n subnet = \"lab\"\n start = \"{start}\"\n end = \"{end}\"\n}}\n"
            )
        };
        let text = [
            range("overlapping", "10.77.0.140", "10.77.0.160"),
            machine("nowhere"),
            "resource \"basalt_subnet\" \"b\" {\n name = \"b\"\n vlan = \"core.8\"\n cidr = \"10.80.0.0/24\"\n}\n"
                .to_owned(),
        ];
        let said = flat(&world.config(&with(&text.concat())).fails(&["apply", "-auto-approve"]).await);
        for want in ["overlaps 10.77.0.100-10.77.0.149 of IpRange \"lab-pool\"", "nowhere", "core.8"] {
            assert!(said.contains(want), "{want}: {said}");
        }
        for (kind, name) in
            [("IpRange", "overlapping"), ("IpRange", "b"), ("Machine", "wrong"), ("Subnet", "b")]
        {
            let stored = world.client("test").find(described(kind), name).await.expect("an answer");
            assert!(stored.is_none(), "{kind} {name} is stored");
        }
        world.end().await;
    });
}

#[test]
fn a_region_that_does_not_answer_is_named() {
    within(async |world| {
        let text = "provider \"basalt\" {\n endpoint = \"http://127.0.0.1:1\"\n}\n\
                    data \"basalt_zone\" \"found\" {\n name = \"row-5\"\n}\n";
        let said = flat(&world.config(text).fails(&["plan"]).await);
        assert!(said.contains("http://127.0.0.1:1"), "{said}");
        world.end().await;
    });
}

#[test]
fn what_is_wrong_with_the_way_to_the_region_is_told_once_and_not_for_each_resource() {
    within(async |world| {
        let zones = "resource \"basalt_zone\" \"row\" {\n  count = 50\n  name  = \"row-${count.index}\"\n}\n";
        world.config(&format!("{}{zones}", provider(&world))).apply().await;

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let other = listener.local_addr().expect("an address");
        let server = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let nothing = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                // The client may close the connection early.
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(nothing).await;
            }
        });
        let region = world.endpoint.as_str();
        let block = |endpoint: &str, token: &str| {
            format!(
                "provider \"basalt\" {{\n  endpoint = {endpoint:?}\n  {token}\n  retry_timeout = \"1s\"\n}}\n"
            )
        };
        let token = format!("token = {:?}", world.token);
        for (head, title, want) in [
            (
                block(region, "token = \"not-to-be-shown\""),
                "The token is not accepted",
                "the token that the attribute token gives",
            ),
            (block(region, ""), "There is no token", "BASALT_TOKEN_FILE of the environment"),
            (block("http://127.0.0.1:1", &token), "No region can be reached", "nothing listens there"),
            (
                block(&format!("http://{other}"), &token),
                "No region can be reached",
                "that is no region's answer",
            ),
            (
                block(&format!("https://{other}"), &token),
                "No region can be reached",
                "asked for with http://",
            ),
            (block("https://region.invalid:5240", &token), "No region can be reached", "can resolve names"),
            (block(&format!("{region}/api/v1"), &token), "The provider's block is wrong", "leave that out"),
            (
                block(region.trim_start_matches("http://"), &token),
                "The provider's block is wrong",
                "it does not say how it is spoken to; http://127.0.0.1",
            ),
            (
                block(&region.replace("http://", "https://"), &token),
                "No region can be reached",
                "whether it speaks TLS (https://) or not (http://)",
            ),
        ] {
            world.config(&format!("{head}{zones}")).ok(&["validate"]).await;
            let said = flat(&world.fails(&["plan"]).await);
            assert!(said.contains(&format!("Error: {title}")) && said.contains(want), "{said}");
            assert_eq!(said.matches("Error: ").count(), 1, "{said}");
            assert!(!said.contains("not-to-be-shown"), "{said}");
        }
        server.abort();
        world.end().await;
    });
}

#[test]
fn a_region_that_goes_in_the_middle_of_an_apply_is_told_of_in_full_once() {
    within(async |world| {
        const ZONES: usize = 40;
        let gate = Gate::before(world.region.address()).await;
        let through = provider_at(&format!("http://{}", gate.address), &world);
        let zones = format!(
            "resource \"basalt_zone\" \"row\" {{\n  count = {ZONES}\n  name  = \"row-${{count.index}}\"\n}}\n"
        );
        world.config(&format!("{}{zones}", through.replace("{\n", "{\n  retry_timeout = \"1s\"\n")));
        let held = gate.hold(5, At::Request);
        let mut apply = world.terraform(&["apply", "-auto-approve"]);
        let gone = async {
            let _lost = held.await.expect("a write");
            drop(gate);
        };
        let both = async { tokio::join!(apply.output(), gone) };
        let (output, ()) = tokio::time::timeout(COMMAND, both).await.expect("it ends");
        let said = everything(&output.expect("terraform on the PATH"));
        crate::errors::hold_to_rules(&said);
        let said = flat(&said);
        let failed = said.matches("Error: The region cannot be reached: Zone \"row-").count();
        assert!(failed > 20, "{said}");
        assert_eq!(said.matches("nothing listens there").count(), 1, "{said}");
        assert_eq!(said.matches("another error of this run says in full why").count(), failed - 1, "{said}");

        // Objects of the interrupted apply exist, and are in the state or adopted.
        let said = world.config(&format!("{}{zones}", provider(&world))).apply().await;
        assert!(said.contains(" added, 0 changed, 0 destroyed"), "{said}");
        assert_eq!(world.ok(&["state", "list"]).await.lines().count(), ZONES);
        world.end().await;
    });
}

#[test]
fn who_may_only_look_is_told_what_that_allows() {
    within(async |world| {
        world.put("cli", "Role", "looker", json!({"base": "viewer"})).await;
        world.put("cli", "ApiToken", "looker", json!({"role": "looker"})).await;
        let token = world.client("cli").issue_token("looker").await.expect("a token");
        let text =
            format!("{}resource \"basalt_zone\" \"row\" {{\n  name = \"row-1\"\n}}\n", provider(&world));
        world.config(&text.replace(&world.token, &token)).ok(&["plan"]).await;
        let said = flat(&world.fails(&["apply", "-auto-approve"]).await);
        for want in [
            "Error: Not allowed: Zone \"row-1\"",
            "PUT /api/v1/zones/row-1 needs the role operator",
            "the role viewer is enough, with the kinds among its scopes; applies, ephemeral tokens and actions need one",
        ] {
            assert!(said.contains(want), "{want}: {said}");
        }
        world.end().await;
    });
}

#[test]
fn a_plan_without_a_region_fails_and_forgets_nothing() {
    within(async |world| {
        world.config(&format!("{}{NETWORK}", provider(&world))).apply().await;
        let listed = world.ok(&["state", "list"]).await;
        let away = provider_at("http://127.0.0.1:1", &world).replace("{\n", "{\n  retry_timeout = \"1s\"\n");
        world.config(&format!("{away}{NETWORK}"));
        for command in ["plan", "apply", "destroy"] {
            let args = if command == "plan" { vec![command] } else { vec![command, "-auto-approve"] };
            let said = flat(&world.fails(&args).await);
            assert!(said.contains("http://127.0.0.1:1"), "{command}: {said}");
            assert_eq!(world.ok(&["state", "list"]).await, listed, "{command}");
        }
        let again = world.config(&format!("{}{NETWORK}", provider(&world)));
        assert!(again.ok(&["plan"]).await.contains("No changes."));
        world.end().await;
    });
}

#[test]
fn what_is_not_known_yet_is_not_given_twice() {
    within(async |world| {
        let bmc = "bmc = {\n driver = \"ipmi\"\n address = \"10.0.0.1\"\n username = \"u\"\n password = var.plain\n \
                   password_wo = var.hidden\n password_wo_version = 1\n}";
        let variable = |name: &str| format!("variable {name:?} {{\n  type = string\n  default = null\n}}\n");
        let variables: String =
            ["token", "file", "plain", "hidden"].iter().map(|name| variable(name)).collect();
        let provider = provider(&world).replace("}\n", "  token_file = var.file\n}\n");
        let text = format!(
            "{provider}{variables}resource \"basalt_machine\" \"one\" {{\n  name = \"m-1\"\n  {bmc}\n}}\n"
        );
        let text = text.replace(&format!("{:?}", world.token), "var.token");
        world.config(&text).ok(&["validate"]).await;
        let twice = ["-var=plain=a", "-var=hidden=b"];
        let token = format!("-var=token={}", world.token);
        let said = flat(&world.fails(&[&["plan", token.as_str()], &twice[..]].concat()).await);
        assert!(said.contains("A secret is given twice"), "{said}");

        let unversioned = text.replace("password_wo_version = 1", "");
        let said = flat(&world.config(&unversioned).fails(&["plan", token.as_str(), "-var=hidden=b"]).await);
        assert!(said.contains("A write-only secret has no version"), "{said}");
        world.end().await;
    });
}
