//! A plan's warnings about machines, before any change is made.

use basalt_sim::Firmware;
use serde_json::json;

use crate::terraform::{User, flat, said};
use basalt_tests::fleet::{Fleet, machine_spec};

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_that_gets_no_machine_as_things_are_says_so_when_it_is_planned() {
    let fleet = Fleet::start("unmatched", &[]).await;
    let machine = fleet.machine(1, Firmware::Uefi, |_| {});
    fleet.declare("machines", "sim1", machine_spec(&machine)).await;
    fleet.ready("machines", "sim1").await;
    let user = User::new(&fleet);
    let plan = async |which: &str| {
        user.write(&format!(
            "resource \"basalt_deployment\" \"web\" {{\n name = \"web\"\n image = \"debian-12\"\n {which}\n}}\n"
        ));
        let planned = user.run(&["plan"]).await;
        assert!(planned.status.success(), "{}", said(&planned));
        flat(&said(&planned))
    };
    let warns = "Warning: It would wait for a machine: Deployment \"web\"";
    for free in ["machine = \"sim1\"", "selector = {}"] {
        let planned = plan(free).await;
        // The title of every warning ends with its object.
        assert!(!planned.contains(": Deployment \"web\""), "{planned}");
    }
    let planned = plan("selector = { tags = [\"gpu\"] }").await;
    assert!(
        planned.contains(warns) && planned.contains("nearest: Machine \"sim1\": no tag gpu. To do: "),
        "{planned}"
    );
    // Other objects of the same plan may bring a machine, but a new image does not.
    let coming = |image: &str, more: &str| {
        user.write(&format!(
            r#"
            resource "basalt_image" "mine" {{
              name         = "mine"
              os           = "debian"
              release      = "12"
              architecture = "amd64"
              files        = {{ root_tarball = {{ sha256 = "{}", size = 1024 }} }}
            }}
            resource "basalt_deployment" "web" {{
              name     = "web"
              image    = {image}
              selector = {{ tags = ["gpu"] }}
              {more}
            }}
            "#,
            "a".repeat(64)
        ));
    };
    coming("basalt_image.mine.name", "");
    let planned = flat(&said(&user.run(&["plan"]).await));
    assert!(planned.contains(warns) && planned.contains("Plan: 2 to add"), "{planned}");
    coming(
        "\"debian-12\"",
        r#"
              depends_on = [basalt_machine_tags.gpu]
            }
            resource "basalt_machine_tags" "gpu" {
              machine = "sim1"
              manager = "gpus"
              tags    = ["gpu"]
        "#,
    );
    let planned = flat(&said(&user.run(&["plan"]).await));
    assert!(!planned.contains(warns) && planned.contains("Plan: 3 to add"), "{planned}");

    fleet.deploy("other", "sim1").await;
    fleet.ready("deployments", "other").await;
    let planned = plan("machine = \"sim1\"").await;
    assert!(
        planned.contains(warns) && planned.contains("Machine \"sim1\": Deployment \"other\" has it"),
        "{planned}"
    );
    user.provider.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_a_change_switches_off_is_named_when_it_is_planned() {
    let fleet = Fleet::start("switched", &[]).await;
    let machine = fleet.machine(1, Firmware::Uefi, |_| {});
    let user = User::new(&fleet);
    user.declare(&machine, "");
    user.apply().await;
    user.edit("name      = \"sim1\"", "name      = \"sim1\"\npower = \"off\"");
    let planned = flat(&said(&user.run(&["plan"]).await));
    let warns = "Warning: A machine will be switched off or restarted: Machine \"sim1\"";
    assert!(planned.contains(warns) && planned.contains("Plan: 0 to add, 1 to change"), "{planned}");
    user.provider.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_first_image_of_an_architecture_means_to_machines_is_told_when_it_is_planned() {
    let fleet = Fleet::start("decided", &[]).await;
    let machine = fleet.machine(1, Firmware::Uefi, |_| {});
    let mut spec = machine_spec(&machine);
    spec["architecture"] = json!("arm64");
    fleet.declare("machines", "sim1", spec).await;
    fleet.waits_saying("machines", "sim1", &["an ephemeral image for arm64"]).await;
    let user = User::new(&fleet);
    // A change is not blamed for steps that are planned without it.
    user.write(&format!(
        r#"
        import {{
          to = basalt_machine.one
          id = "sim1"
        }}
        resource "basalt_machine" "one" {{
          name           = "sim1"
          architecture   = "arm64"
          boot_macs      = ["{}"]
          kernel_options = "quiet"
        }}
        "#,
        machine.options().mac
    ));
    let planned = flat(&said(&user.run(&["plan"]).await));
    assert!(planned.contains("kernel_options"), "{planned}");
    assert!(!planned.contains("switched off or restarted"), "{planned}");
    let image = |description: &str| {
        user.write(&format!(
            r#"
            data "basalt_image" "amd64" {{
              name = "ephemeral"
            }}
            resource "basalt_image" "arm64" {{
              name         = "ephemeral-arm64"
              os           = "debian"
              release      = "bookworm"
              architecture = "arm64"
              purpose      = "ephemeral"
              description  = {description:?}
              files        = data.basalt_image.amd64.files
            }}
            "#
        ));
    };
    image("the first");
    let planned = flat(&said(&user.run(&["plan"]).await));
    let warns = "Warning: Machines that decide from this go on otherwise than now: Image \"ephemeral-arm64\"";
    assert!(planned.contains(warns) && planned.contains("sim1: "), "{planned}");
    let applied = user.apply().await;
    assert!(applied.contains("1 added"), "{applied}");
    image("the first one");
    let planned = flat(&said(&user.run(&["plan"]).await));
    assert!(!planned.contains("Warning: ") && planned.contains("1 to change"), "{planned}");
    user.provider.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_waits_for_somebody_says_so_in_every_plan_until_it_is_mended() {
    let fleet = Fleet::start("held", &[]).await;
    let machine = fleet.machine(1, Firmware::Uefi, |_| {});
    let user = User::new(&fleet);
    user.declare(&machine, "");
    let password = format!("password_wo         = {:?}", machine.options().bmc_password);
    user.edit(&password, "password_wo         = \"guessed\"");
    let applied = user.run(&["apply", "-auto-approve", "-target=basalt_machine.one"]).await;
    assert!(applied.status.success(), "nobody waits for a machine: {}", said(&applied));
    fleet.stalled("machines", "sim1").await;

    let plan = ["plan", "-detailed-exitcode", "-target=basalt_machine.one"];
    let planned = user.run(&plan).await;
    assert_eq!(planned.status.code(), Some(0), "{}", said(&planned));
    let planned = flat(&said(&planned));
    let warns = "Warning: It waits for somebody: Machine \"sim1\" ";
    let why = ["the BMC refuses the password", "To do: ", "See `basalt explain machine sim1`."];
    assert!(planned.contains(warns) && why.iter().all(|why| planned.contains(why)), "{planned}");

    user.edit("password_wo         = \"guessed\"", &password);
    user.edit("password_wo_version = 1", "password_wo_version = 2");
    user.apply().await;
    let planned = flat(&said(&user.run(&["plan"]).await));
    assert!(!planned.contains("Warning: "), "{planned}");
    user.provider.stop().await;
}
