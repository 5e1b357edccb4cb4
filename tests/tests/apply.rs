//! The operator's command against a real region: `basalt apply` on `examples/apply`, and common mistakes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use basalt_lab::site::Programs;
use basalt_region::region::Region;
use basalt_region::settings::Settings;
use tempfile::TempDir;

/// A region, and files for a person to edit.
struct World {
    dir: TempDir,
    region: Region,
    program: PathBuf,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut settings = Settings::new(dir.path().join("region"));
        settings.database_url = Some(basalt_db::testing::database().await);
        settings.listen = ([127, 0, 0, 1], 0).into();
        let region = Box::pin(Region::start(settings)).await.expect("a region");
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/apply");
        std::fs::create_dir(dir.path().join("site")).expect("a directory");
        for file in ["network.yaml", "machines.yaml"] {
            std::fs::copy(examples.join(file), dir.path().join("site").join(file)).expect("the example");
        }
        let program = Programs::find().expect("programs").path("basalt");
        Self { dir, region, program }
    }

    /// Replaces text in a file.
    fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.dir.path().join("site").join(file);
        let text = std::fs::read_to_string(&path).expect("the file");
        assert!(text.contains(from), "{file} has no {from}");
        std::fs::write(path, text.replace(from, to)).expect("the file");
    }

    /// Runs the command in the person's directory, with this standard input.
    async fn basalt(&self, args: &[&str], input: &str) -> (bool, String, String) {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("BASALT_ENDPOINT", format!("http://{}", self.region.address()))
            .env("BASALT_TOKEN_FILE", self.dir.path().join("region/admin-token"))
            .env_remove("BASALT_TOKEN")
            .env("VISUAL", "sed -i s/door/wall/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let input = input.to_owned();
        let ended = tokio::task::spawn_blocking(move || -> std::io::Result<Output> {
            let mut child = command.spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(input.as_bytes())?;
            }
            child.wait_with_output()
        });
        let output = ended.await.expect("it ends").expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }

    async fn ok(&self, args: &[&str]) -> String {
        let (done, out, err) = self.basalt(args, "").await;
        assert!(done, "{args:?}: {out}{err}");
        out
    }

    async fn refused(&self, args: &[&str]) -> String {
        let (done, out, err) = self.basalt(args, "").await;
        assert!(!done, "{args:?}: {out}");
        format!("{out}{err}")
    }
}

const APPLY: [&str; 4] = ["apply", "-f", "site", "--yes"];

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_yaml_is_applied_changed_and_pruned() {
    let world = World::new().await;
    let prune = [&APPLY[..], &["--prune", "app=site"]].concat();

    let tried = world.ok(&["apply", "-f", "site", "--dry-run"]).await;
    assert!(tried.contains("+ create  Machine web1\n") && tried.contains("7 created"), "{tried}");
    assert!(world.refused(&["apply", "-f", "site"]).await.contains("--yes goes on without asking"));
    assert_eq!(world.ok(&["get", "machines"]).await, "", "a dry run or a question stored something");

    assert!(world.ok(&prune).await.contains("applied: 7 created"));
    assert_eq!(world.ok(&prune).await, "0 created, 0 changed, 0 deleted, 7 unchanged.\n");

    world.edit("machines.yaml", "by the door", "at the wall");
    let changed = world.ok(&prune).await;
    assert!(
        changed.contains("~ change  Zone row-1\n      /description: \"by the door\" -> \"at the wall\"\n"),
        "{changed}"
    );

    let pruned = world.ok(&["apply", "-f", "site/network.yaml", "--yes", "--prune", "app=site"]).await;
    assert!(
        pruned.contains("- delete  Machine web1\n")
            && pruned.contains("applied: 0 created, 0 changed, 3 deleted"),
        "{pruned}"
    );
    assert!(!pruned.contains("change-me"));
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_told_by_file_and_field_and_change_nothing() {
    let world = World::new().await;
    world.edit("network.yaml", "purpose: dynamic", "purpose: dinamic");
    world.edit("machines.yaml", "zone: row-1\n", "zones: row-1\n");
    let said = world.refused(&APPLY).await;
    assert!(said.contains("site/network.yaml #4 IpRange lab-dynamic /spec/purpose: "), "{said}");
    assert!(said.contains("site/machines.yaml #2 Machine web1 /spec/zones: "), "{said}");
    world.edit("network.yaml", "dinamic", "dynamic");
    world.edit("machines.yaml", "zones: row-1\n", "zone: row-9\n");
    let said = world.refused(&APPLY).await;
    assert!(
        said.contains("! site/machines.yaml #2 Machine web1 /spec/zone: there is no Zone \"row-9\""),
        "{said}"
    );
    let said = world.ok(&["apply", "-f", "site", "--dry-run"]).await;
    assert!(said.ends_with("as things are now, the region would refuse this\n"), "{said}");
    assert!(world.refused(&["apply", "-f", "nowhere"]).await.contains("nowhere"));
    assert_eq!(world.ok(&["get", "fabrics"]).await, "", "something was stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_get_prints_can_be_applied() {
    let world = World::new().await;
    world.ok(&APPLY).await;
    for form in ["json", "yaml"] {
        let machines = world.ok(&["get", "machines", "-o", form]).await;
        let (done, out, err) = world.basalt(&["apply", "-f", "-", "--yes"], &machines).await;
        assert!(done, "{err}");
        assert_eq!(
            out, "0 created, 0 changed, 0 deleted, 2 unchanged.\n",
            "{form}: sealed passwords are kept"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_looked_at_and_edited_by_either_form_of_their_names() {
    let world = World::new().await;
    world.ok(&APPLY).await;
    assert_eq!(
        world.ok(&["get", "machine/web1", "zone/row-1", "-o", "name"]).await,
        "machine/web1\nzone/row-1\n"
    );
    let columns = "custom-columns=NAME:metadata.name,MAC:spec.boot_macs";
    let macs = world.ok(&["get", "machines", "web2", "web1", "-o", columns]).await;
    assert_eq!(macs, "NAME  MAC\nweb2  52:54:00:00:00:02\nweb1  52:54:00:00:00:01\n");
    assert!(
        world.refused(&["get", "machine", "web1", "web9"]).await.contains("there is no Machine \"web9\"")
    );
    let subnets = world.ok(&["get", "subnets"]).await;
    assert!(subnets.starts_with("NAME  CIDR          VLAN       GATEWAY    USED  FREE  READY"), "{subnets}");
    let addresses = world.ok(&["get", "addresses"]).await;
    assert!(addresses.contains("10.77.0.1  lab     gateway  subnet/lab"), "{addresses}");
    assert_eq!(world.ok(&["get", "leases"]).await, "");
    let settings = world.ok(&["get", "settings"]).await;
    assert!(settings.contains("deadlines.boot_request") && settings.contains("10m"), "{settings}");

    let said = world.refused(&["audit", "web1"]).await;
    assert!(said.contains("\"web1\" in object is no kind") && said.contains("machine/web1"), "{said}");
    for named in [&["audit", "machine", "web1"][..], &["audit", "machine/web1"]] {
        assert!(world.ok(named).await.contains("Machine/web1"));
    }

    assert_eq!(world.ok(&["edit", "zone/row-1"]).await, "Zone row-1  generation 2  /description\n");
    assert_eq!(world.ok(&["edit", "zone", "row-1"]).await, "nothing was changed\n");
    let described = world.ok(&["get", "zone", "row-1", "-o", "custom-columns=IS:spec.description"]).await;
    assert_eq!(described, "IS\nby the wall\n");
}
