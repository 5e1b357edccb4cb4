use super::*;
use proptest::prelude::*;

const SYSTEM: &str = "/redfish/v1/Systems/1";

fn client(system: Option<&str>) -> ClientCore {
    ClientCore::new("10.0.0.1", 443, "admin", system)
}

fn system(power: &str, extra: Value) -> Value {
    let mut system = json!({"@odata.id": SYSTEM, "PowerState": power,
        "Boot": {"BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Hdd"], "BootSourceOverrideMode": "UEFI"},
        "Actions": {"#ComputerSystem.Reset": {"target": "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset",
            "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown", "ForceRestart"]}}});
    if let (Some(system), Some(extra)) = (system.as_object_mut(), extra.as_object()) {
        system.extend(extra.clone());
    }
    system
}

fn collection(names: &[&str]) -> Value {
    let members = names.iter().map(|name| json!({"@odata.id": format!("/redfish/v1/Systems/{name}")}));
    json!({"Members": members.collect::<Vec<_>>()})
}

/// The answers of a BMC with one system: method and path, status, ETag, body.
type Table<'a> = Vec<(&'a str, u16, Option<&'a str>, Value)>;

fn plain(system: Value) -> Table<'static> {
    vec![
        ("GET /redfish/v1/", 200, None, json!({"Systems": {"@odata.id": "/redfish/v1/Systems"}})),
        ("GET /redfish/v1/Systems", 200, None, collection(&["1"])),
        ("GET /redfish/v1/Systems/1", 200, Some("\"1\""), system),
        ("POST /redfish/v1/Systems/1/Actions/ComputerSystem.Reset", 204, None, Value::Null),
        ("PATCH /redfish/v1/Systems/1", 200, None, json!({})),
    ]
}

/// Runs an operation against a table. A row answers repeatedly, unless a later row has the same request; then each row
/// is used once.
fn run(
    client: &mut ClientCore,
    operation: Operation,
    table: &Table<'_>,
) -> (Vec<Request>, Result<Power, Failure>) {
    let mut left = table.clone();
    let mut sent = vec![client.begin(operation)];
    loop {
        let request = sent.last().unwrap().clone();
        let at = left.iter().position(|(of, ..)| *of == request.to_string());
        let at = at.unwrap_or_else(|| panic!("{request} was not expected"));
        let (of, status, tag, body) = left[at].clone();
        if left.iter().skip(at + 1).any(|(other, ..)| *other == of) {
            left.remove(at);
        }
        let location = body.get("Location").and_then(Value::as_str);
        let bytes = body.to_string();
        match client.receive(&Answer { status, location, etag: tag, body: bytes.as_bytes() }) {
            Ok(Step::Send(next)) => sent.push(next),
            Ok(Step::Done(power)) => return (sent, Ok(power)),
            Err(failure) => return (sent, Err(failure)),
        }
    }
}

fn told_of(sent: &[Request]) -> Vec<String> {
    sent.iter().map(ToString::to_string).collect()
}

const PXE: Operation = Operation::Boot(Boot { device: Device::Network, uefi: true });

#[test]
fn the_system_is_found_once_and_read_each_time() {
    let mut client = client(None);
    let table = plain(system("On", json!({})));
    let (sent, power) = run(&mut client, Operation::Read, &table);
    assert_eq!(power, Ok(Power::On));
    assert_eq!(told_of(&sent), ["GET /redfish/v1/", "GET /redfish/v1/Systems", "GET /redfish/v1/Systems/1"]);
    let (sent, _) = run(&mut client, Operation::Read, &table);
    assert_eq!(told_of(&sent), ["GET /redfish/v1/Systems/1"]);
}

#[test]
fn a_reset_is_posted_where_the_system_says_and_not_to_a_system_that_is_there_already() {
    for (operation, power, posted) in [
        (Reset::On, "Off", Some("On")),
        (Reset::On, "PoweringOff", Some("On")),
        (Reset::On, "On", None),
        (Reset::On, "PoweringOn", None),
        (Reset::Off, "On", Some("ForceOff")),
        (Reset::Off, "PoweringOn", Some("ForceOff")),
        (Reset::Off, "Off", None),
        (Reset::SoftOff, "On", Some("GracefulShutdown")),
        (Reset::Cycle, "On", Some("ForceRestart")),
    ] {
        let (sent, ended) =
            run(&mut client(None), Operation::Reset(operation), &plain(system(power, json!({}))));
        assert!(ended.is_ok(), "{ended:?}");
        let body = sent.last().and_then(|last| last.body.clone());
        assert_eq!(
            body,
            posted.map(|it| json!({"ResetType": it})),
            "{operation:?} of a system that is {power}"
        );
    }
}

#[test]
fn allowable_values_are_looked_up_where_the_action_refers_to_them() {
    let action = json!({"Actions": {"#ComputerSystem.Reset": {"target": "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset",
        "@Redfish.ActionInfo": "/redfish/v1/Systems/1/ResetActionInfo"}}});
    let mut table = plain(system("On", action));
    let info = json!({"Parameters": [{"Name": "X"}, {"Name": "ResetType", "AllowableValues": ["PowerCycle", "ForceRestart"]}]});
    table.push(("GET /redfish/v1/Systems/1/ResetActionInfo", 200, None, info));
    let (sent, _) = run(&mut client(None), Operation::Reset(Reset::Cycle), &table);
    assert_eq!(sent.last().unwrap().body, Some(json!({"ResetType": "PowerCycle"})));
}

#[test]
fn a_bmc_is_restarted_at_the_manager_of_the_system_whatever_the_power_reads() {
    let links =
        json!({"Links": {"ManagedBy": [{"@odata.id": "/redfish/v1/Managers/bmc"}]}, "PowerState": null});
    let manager = |allowed: Value| {
        let mut action = json!({"target": "/redfish/v1/Managers/bmc/Actions/Manager.Reset"});
        if !allowed.is_null() {
            action["ResetType@Redfish.AllowableValues"] = allowed;
        }
        json!({"Actions": {"#Manager.Reset": action}})
    };
    for (allowed, expected) in [
        (json!(["GracefulRestart", "ForceRestart"]), Some("ForceRestart")),
        (json!(["GracefulRestart"]), Some("GracefulRestart")),
        (Value::Null, Some("GracefulRestart")),
        (json!(["ResetToDefaults"]), None),
    ] {
        let mut table = plain(system("On", links.clone()));
        table.push(("GET /redfish/v1/Managers/bmc", 200, None, manager(allowed)));
        table.push(("POST /redfish/v1/Managers/bmc/Actions/Manager.Reset", 204, None, Value::Null));
        let (sent, ended) = run(&mut client(None), Operation::RestartManager, &table);
        match expected {
            Some(expected) => {
                assert!(ended.is_ok(), "{ended:?}");
                assert_eq!(sent.last().unwrap().body, Some(json!({"ResetType": expected})));
                assert!(!told_of(&sent).iter().any(|it| it.contains("ComputerSystem.Reset")), "{sent:?}");
            }
            None => assert!(matches!(ended, Err(Failure::Unsupported { .. })), "{ended:?}"),
        }
    }
    for without in [json!({}), links] {
        let mut table = plain(system("On", without));
        table.push(("GET /redfish/v1/Managers/bmc", 200, None, json!({"Actions": {}})));
        let ended = run(&mut client(None), Operation::RestartManager, &table).1.unwrap_err();
        assert!(ended.to_string().contains("restart itself"), "{ended}");
    }
}

#[test]
fn the_boot_override_is_patched_under_the_tag_that_was_read() {
    let (sent, ended) = run(&mut client(None), PXE, &plain(system("Off", json!({}))));
    assert_eq!(ended, Ok(Power::Off));
    let patch = sent.last().unwrap();
    assert_eq!(
        (patch.to_string().as_str(), patch.if_match.as_deref()),
        ("PATCH /redfish/v1/Systems/1", Some("\"1\""))
    );
    let body = json!({"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}});
    assert_eq!(patch.body, Some(body));
    let mut table = plain(system("Off", json!({"@odata.etag": "\"property\""})));
    table[2].2 = None;
    let (sent, _) = run(&mut client(None), PXE, &table);
    assert_eq!(sent.last().unwrap().if_match.as_deref(), Some("\"property\""));
}

#[test]
fn a_tag_that_does_not_hold_any_more_is_read_again_once() {
    let mut table = plain(system("Off", json!({})));
    table[2].2 = Some("W/\"1\"");
    table[4].1 = 412;
    table.push(("GET /redfish/v1/Systems/1", 200, Some("W/\"2\""), system("Off", json!({}))));
    table.push(("PATCH /redfish/v1/Systems/1", 200, None, json!({})));
    let (sent, ended) = run(&mut client(None), PXE, &table);
    assert_eq!(ended, Ok(Power::Off));
    let tags: Vec<_> = sent.iter().filter_map(|it| it.if_match.as_deref()).collect();
    assert_eq!(tags, ["W/\"1\"", "\"2\""], "the second time as a strong one");
    table.last_mut().unwrap().1 = 412;
    let (sent, ended) = run(&mut client(None), PXE, &table);
    assert!(matches!(ended, Err(Failure::Refused { status: 412, .. })), "{ended:?}");
    assert_eq!(sent.iter().filter(|it| it.method == Method::Patch).count(), 2);
}

fn refusal(id: &str, property: &str) -> Value {
    json!({"error": {"@Message.ExtendedInfo": [{"MessageId": format!("Base.1.8.1.{id}"), "MessageArgs": [property]}]}})
}

#[test]
fn a_boot_override_is_sent_again_as_the_refusal_says_and_never_the_same_twice() {
    let patched = |sent: &[Request]| -> Vec<Value> {
        let patches = sent.iter().filter(|it| it.method == Method::Patch);
        patches
            .map(|it| it.body.as_ref().and_then(|it| it.get("Boot")).cloned().unwrap_or_default())
            .collect()
    };
    let wanted = json!({"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"});
    let named = json!({"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe", "BootSourceOverrideMode": "UEFI"});
    let mut table = plain(system("Off", json!({})));
    table[4] = (table[4].0, 400, None, refusal("PropertyMissing", "Boot/BootSourceOverrideMode"));
    table.push((table[4].0, 204, None, Value::Null));
    let (sent, ended) = run(&mut client(None), PXE, &table);
    assert_eq!(ended, Ok(Power::Off));
    assert_eq!(patched(&sent), [wanted.clone(), named.clone()]);
    assert_eq!(sent.last().unwrap().if_match.as_deref(), Some("\"1\""), "a refusal changes no tag");

    table[5] = (table[4].0, 400, None, refusal("PropertyMissing", "Boot/BootSourceOverrideMode"));
    let (sent, ended) = run(&mut client(None), PXE, &table);
    assert!(matches!(ended, Err(Failure::Rejected { status: 400, .. })), "{ended:?}");
    assert_eq!(patched(&sent), [wanted.clone(), named]);

    table[4] = (table[4].0, 503, None, Value::Null);
    table.truncate(5);
    let (sent, ended) = run(&mut client(None), PXE, &table);
    assert!(matches!(ended, Err(Failure::Refused { status: 503, .. })), "{ended:?}");
    assert_eq!(patched(&sent), [wanted]);
}

#[test]
fn a_boot_override_that_the_system_does_not_keep_is_no_success() {
    let reads = |target: &str| json!({"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": target}});
    let mut client = client(None);
    run(&mut client, PXE, &plain(system("Off", json!({})))).1.unwrap();
    assert_eq!(run(&mut client, Operation::Confirm, &plain(system("Off", reads("Pxe")))).1, Ok(Power::Off));
    let ended = run(&mut client, Operation::Confirm, &plain(system("Off", reads("Hdd")))).1;
    let message = ended.unwrap_err().to_string();
    assert!(message.starts_with("took the boot override (target Pxe, enabled Once) and reads another one (target Hdd, enabled Once)"), "{message}");
}

#[test]
fn of_several_systems_one_has_to_be_named() {
    let mut table = plain(system("On", json!({})));
    table[1].3 = json!({"Members": [{"@odata.id": "/redfish/v1/Systems/1"}], "Members@odata.nextLink": "/redfish/v1/Systems?$skip=1"});
    table.push(("GET /redfish/v1/Systems?$skip=1", 200, None, collection(&["HGX_Baseboard_0"])));
    let (_, ended) = run(&mut client(None), Operation::Read, &table);
    let message = ended.unwrap_err().to_string();
    assert_eq!(
        message,
        "has 2 systems; say in bmc.options.system which one the machine is: 1, HGX_Baseboard_0"
    );
    assert_eq!(run(&mut client(Some("1")), Operation::Read, &table).1, Ok(Power::On));
    let message = run(&mut client(Some("2")), Operation::Read, &table).1.unwrap_err().to_string();
    assert_eq!(message, "has no system \"2\"; it has: 1, HGX_Baseboard_0");
    table[1].3 = collection(&[]);
    let message = run(&mut client(None), Operation::Read, &table).1.unwrap_err().to_string();
    assert_eq!(message, "has no system at all; it has: none");
}

#[test]
fn a_redirect_is_followed_on_the_bmc_itself_and_nowhere_else() {
    let mut table = plain(system("On", json!({})));
    table[0] = ("GET /redfish/v1/", 308, None, json!({"Location": "https://10.0.0.1/redfish/v1"}));
    table.push(("GET /redfish/v1", 200, None, json!({"Systems": {"@odata.id": "/redfish/v1/Systems"}})));
    assert_eq!(run(&mut client(None), Operation::Read, &table).1, Ok(Power::On));
    for to in ["https://10.0.0.2/redfish/v1", "http://10.0.0.1/redfish/v1", "//10.0.0.2/"] {
        table[0].3 = json!({"Location": to});
        let (sent, ended) = run(&mut client(None), Operation::Read, &table);
        assert!(matches!(&ended, Err(Failure::Elsewhere { to: it, .. }) if it == to), "{ended:?}");
        assert_eq!(sent.len(), 1);
    }
    table[0].3 = json!({"Location": "/redfish/v1/"});
    assert_eq!(run(&mut client(None), Operation::Read, &table).1, Err(Failure::Endless(MAX_REQUESTS)));
    let mut table = plain(system("Off", json!({})));
    table[3] = (table[3].0, 302, None, json!({"Location": "/elsewhere"}));
    let ended = run(&mut client(None), Operation::Reset(Reset::On), &table).1;
    assert!(matches!(ended, Err(Failure::Refused { status: 302, .. })), "a POST is not repeated: {ended:?}");
}

#[test]
fn a_refusal_says_who_refused_what_and_why() {
    let error = json!({"error": {"@Message.ExtendedInfo": [{"Message": "The power supply is in flames."}]}});
    for (status, message) in [
        (401, "wrong user name or password for user \"admin\""),
        (403, "refused POST /redfish/v1/Systems/1/Actions/ComputerSystem.Reset to user \"admin\""),
        (503, "answered 503 to POST /redfish/v1/Systems/1/Actions/ComputerSystem.Reset"),
    ] {
        let mut table = plain(system("Off", json!({})));
        table[3] = (table[3].0, status, None, error.clone());
        let said = run(&mut client(None), Operation::Reset(Reset::On), &table).1.unwrap_err().to_string();
        assert!(said.starts_with(message) && said.ends_with(": The power supply is in flames."), "{said}");
    }
}

#[test]
fn what_is_not_there_to_be_read_may_be_there_later_and_what_cannot_be_done_may_not() {
    for (row, lasts) in [(2, false), (3, true)] {
        let mut table = plain(system("Off", json!({})));
        table[row] = (table[row].0, 404, None, json!({}));
        let ended = run(&mut client(Some("1")), Operation::Reset(Reset::On), &table).1.unwrap_err();
        assert_eq!(matches!(ended, Failure::Rejected { .. }), lasts, "{ended:?}");
        assert_eq!(matches!(ended, Failure::Refused { .. }), !lasts, "{ended:?}");
    }
}

#[test]
fn a_system_that_is_neither_on_nor_off_is_not_guessed_at() {
    for power in [json!(null), json!("Unknown\n")] {
        let ended = run(
            &mut client(None),
            Operation::Reset(Reset::On),
            &plain(system("", json!({"PowerState": power}))),
        )
        .1;
        assert!(matches!(ended, Err(Failure::NoPowerState(_))), "{ended:?}");
    }
}

proptest! {
    #[test]
    fn whatever_a_bmc_answers_requests_stay_on_it_and_end(
        answers in proptest::collection::vec((any::<u16>(), ".{0,40}", any::<Option<String>>(), any::<bool>()), 0..80),
        operation in prop_oneof![Just(Operation::Read), Just(PXE), Just(Operation::Reset(Reset::Cycle))],
    ) {
        let mut client = client(None);
        let mut sent = client.begin(operation);
        let mut count = 1;
        for (status, text, header, plausible) in answers {
            prop_assert!(sent.path.parse::<http::uri::PathAndQuery>().is_ok() && sent.path.starts_with('/'));
            let whole = json!({"Systems": {"@odata.id": text}, "Members": [{"@odata.id": text}], "PowerState": "On", "Members@odata.nextLink": header,
                "Actions": {"#ComputerSystem.Reset": {"target": text, "@Redfish.ActionInfo": text}}}).to_string();
            let body = if plausible { whole.as_bytes() } else { text.as_bytes() };
            let status = if plausible { 200 + status % 120 } else { status };
            let answer = Answer { status, location: header.as_deref(), etag: header.as_deref(), body };
            match client.receive(&answer) {
                Ok(Step::Send(next)) => sent = next,
                _ => break,
            }
            count += 1;
        }
        prop_assert!(count <= MAX_REQUESTS);
    }
}
