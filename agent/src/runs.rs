//! The runs of scripts on a machine. The hardware selects the scripts, and a script may have one run for each device.

use std::cell::LazyCell;

use basalt_api::agent::{DeviceKind, Script};
use basalt_api::hardware::{self, Hardware};
use basalt_api::kinds::ScriptParallel;

use crate::root::Root;
use crate::{inventory, network};

/// Most devices that a script is run for.
const DEVICES: usize = 256;

/// One run of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run<'a> {
    /// The script in the task.
    pub script: &'a Script,
    /// The kernel name of the device that it is run for.
    pub device: Option<String>,
    /// The reason why it is skipped on this machine.
    pub skipped: Option<String>,
    /// The number of the boot in which it is begun, from 1.
    pub boot: u32,
    /// Number of runs that share the limits of the script's results.
    pub shared_by: usize,
}

impl<'a> Run<'a> {
    /// The only run of a script.
    #[must_use]
    pub fn of(script: &'a Script) -> Self {
        Self { script, device: script.device.clone(), skipped: None, boot: 1, shared_by: 1 }
    }

    /// Names of script and device, for people.
    #[must_use]
    pub fn label(&self) -> String {
        match &self.device {
            Some(device) => format!("{} on {device}", self.script.name),
            None => self.script.name.clone(),
        }
    }

    /// The arguments. The device is the last one.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let device = self.script.per_device.as_ref().zip(self.device.as_ref());
        let device = device.map(|(wanted, device)| format!("--{}={device}", wanted.parameter));
        self.script.arguments.iter().cloned().chain(device).collect()
    }
}

/// The runs of scripts on a machine, in the order of scripts and devices. Each script has at least one.
#[must_use]
pub fn of<'a>(scripts: &'a [Script], root: &Root) -> Vec<Run<'a>> {
    // A machine has thousands of devices, so they are only read if a filter needs them.
    let hardware: LazyCell<Hardware, _> = LazyCell::new(|| inventory::hardware(root));
    let mut runs = Vec::new();
    for script in scripts {
        let has_filters = !script.hardware.is_empty();
        let mismatch = has_filters.then(|| hardware::mismatch(&script.hardware, &hardware)).flatten();
        let skipped = |reason: String| Run { skipped: Some(reason), ..Run::of(script) };
        match (mismatch, script.per_device.as_ref().map(|wanted| wanted.kind)) {
            (Some(reason), _) => runs.push(skipped(reason)),
            (None, None) => runs.push(Run::of(script)),
            (None, Some(kind)) => match devices(kind, root) {
                devices if devices.is_empty() => {
                    runs.push(skipped(format!("the machine has no {}", noun(kind))));
                }
                devices => runs.extend(for_each(script, devices)),
            },
        }
    }
    runs
}

/// Groups of runs. Groups run one after the other; the runs of a group may run at the same time.
///
/// | `parallel` of the script | group |
/// | --- | --- |
/// | `disabled` | each run alone |
/// | `instance` | the runs of the script |
/// | `any` | the runs of all such scripts, after the others |
///
/// Tests run after the scripts before them, even if both could run at the same time.
#[must_use]
pub fn groups(runs: Vec<Run<'_>>) -> Vec<Vec<Run<'_>>> {
    let mut groups = Vec::new();
    for stretch in runs.chunk_by(|one, other| one.script.test == other.script.test) {
        let is_any = |run: &&Run<'_>| run.script.parallel == ScriptParallel::Any;
        let (any, others): (Vec<_>, Vec<_>) = stretch.iter().partition(is_any);
        let beside = |one: &&Run<'_>, other: &&Run<'_>| {
            one.script.parallel == ScriptParallel::Instance && one.script.name == other.script.name
        };
        let others = others.chunk_by(beside).map(<[_]>::to_vec);
        groups.extend(others.chain([any]).filter(|group| !group.is_empty()));
    }
    groups.into_iter().map(|group| group.into_iter().cloned().collect()).collect()
}

fn for_each(script: &Script, devices: Vec<String>) -> impl Iterator<Item = Run<'_>> {
    let shared_by = devices.len().min(DEVICES);
    devices.into_iter().enumerate().map(move |(index, device)| {
        let skipped = (index >= DEVICES).then(|| format!("a script is run for {DEVICES} devices at most"));
        Run { script, device: Some(device), skipped, boot: 1, shared_by }
    })
}

/// Kernel names, sorted.
fn devices(kind: DeviceKind, root: &Root) -> Vec<String> {
    match kind {
        DeviceKind::Storage => inventory::block_devices(root).into_iter().map(|disk| disk.name).collect(),
        DeviceKind::Interface => network::physical(root),
    }
}

const fn noun(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Storage => "disk",
        DeviceKind::Interface => "network interface",
    }
}

#[cfg(test)]
mod tests {
    use basalt_api::agent::PerDevice;

    use super::*;

    /// A tree with a file for each pair of path and text.
    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    #[test]
    fn a_script_for_other_hardware_is_left_out_with_the_reason() {
        let (_dir, root) = tree(&[
            ("sys/devices/pci0000:00/0000:00:1f.6/modalias", "pci:v00008086d000015BEsv00001028sd00000001\n"),
            ("sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/modalias", "usb:v0BDAp8153d3100dc00\n"),
            ("sys/class/dmi/id/sys_vendor", "Dell Inc.\n"),
            ("sys/class/dmi/id/board_name", "0XYZ\n"),
        ]);
        let skipped = |filters: &[&str]| {
            let hardware = filters.iter().map(|it| (*it).to_owned()).collect();
            let script = Script { name: "flash".to_owned(), hardware, ..Script::default() };
            of(&[script], &root)[0].skipped.clone()
        };
        let fitting = ["pci:8086:15be", "usb:0bda:*", "modalias:usb:v0BDA*", "system_vendor:dell*"];
        for filter in fitting.into_iter().chain(["mainboard_product:0xyz"]) {
            assert_eq!(skipped(&[filter]), None, "{filter}");
        }
        assert_eq!((skipped(&[]), skipped(&["system_version:*", "pci:8086:*"])), (None, None));
        let why = "no hardware of the machine matches pci:10de:*, system_product:*";
        assert_eq!(skipped(&["pci:10de:*", "system_product:*"]).as_deref(), Some(why));

        let hardware = vec!["pci:10de:*".to_owned()];
        let named = Script { device: Some("sdb".to_owned()), hardware, ..Script::default() };
        let named = &[named];
        let runs = of(named, &root);
        assert_eq!((runs[0].device.as_deref(), runs[0].skipped.is_some()), (Some("sdb"), true));
    }

    #[test]
    fn a_script_is_run_for_each_device_of_its_kind() {
        let (_dir, root) = tree(&[
            ("sys/block/sda/size", "4096"),
            ("sys/block/sdb/size", "4096"),
            ("sys/block/loop0/size", "4096"),
            ("sys/class/net/eth0/device/vendor", "0x8086"),
            ("sys/class/net/lo/address", "00:00:00:00:00:00"),
        ]);
        let script = |kind| Script {
            name: "scan".to_owned(),
            arguments: vec!["--mode=a".to_owned()],
            per_device: Some(PerDevice { parameter: "device".to_owned(), kind }),
            ..Script::default()
        };
        let scripts = [script(DeviceKind::Storage), script(DeviceKind::Interface), Script::default()];
        let shown = |runs: &[Run<'_>]| {
            runs.iter()
                .map(|run| format!("{}: {}", run.label(), run.arguments().join(" ")))
                .collect::<Vec<_>>()
        };
        let runs = of(&scripts, &root);
        assert_eq!(
            shown(&runs),
            [
                "scan on sda: --mode=a --device=sda",
                "scan on sdb: --mode=a --device=sdb",
                "scan on eth0: --mode=a --device=eth0",
                ": ",
            ]
        );
        assert_eq!(runs.iter().map(|run| run.shared_by).collect::<Vec<_>>(), [2, 2, 1, 1]);

        let (_dir, bare) = tree(&[]);
        let reasons: Vec<_> = of(&scripts, &bare).into_iter().map(|run| run.skipped).collect();
        let no = |what: &str| Some(format!("the machine has no {what}"));
        assert_eq!(reasons, [no("disk"), no("network interface"), None]);
    }

    #[test]
    fn runs_go_on_beside_those_that_their_scripts_allow() {
        let script = |name: &str, parallel, test| Script {
            name: name.to_owned(),
            parallel,
            test,
            ..Script::default()
        };
        use ScriptParallel::{Any, Disabled, Instance};
        let scripts = [
            script("a", Any, false),
            script("b", Disabled, false),
            script("c", Instance, false),
            script("d", Instance, false),
            script("e", Any, false),
            script("f", Any, true),
            script("g", Disabled, true),
        ];
        let on = |script, device: &str| Run { device: Some(device.to_owned()), ..Run::of(script) };
        let runs = scripts.iter().flat_map(|script| [on(script, "1"), on(script, "2")]).collect();
        let shown =
            |run: &Run<'_>| format!("{}{}", run.script.name, run.device.as_deref().unwrap_or_default());
        let groups: Vec<String> =
            groups(runs).iter().map(|group| group.iter().map(shown).collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(groups, ["b1", "b2", "c1 c2", "d1 d2", "a1 a2 e1 e2", "g1", "g2", "f1 f2"]);
    }

    #[test]
    fn a_filter_counts_before_devices_and_devices_are_bounded() {
        let names: Vec<String> = (0..DEVICES + 2).map(|n| format!("sd{n:04}")).collect();
        let script = Script { hardware: vec!["pci:10de:*".to_owned()], ..Script::default() };
        let runs: Vec<Run<'_>> = for_each(&script, names).collect();
        assert_eq!(runs.iter().filter(|run| run.skipped.is_none()).count(), DEVICES);
        assert_eq!((runs.len(), runs[0].shared_by), (DEVICES + 2, DEVICES));

        let per_device = Some(PerDevice { parameter: "device".to_owned(), kind: DeviceKind::Storage });
        let (_dir, root) = tree(&[("sys/block/sda/size", "4096"), ("sys/block/sdb/size", "4096")]);
        let runs = of(&[Script { per_device, ..script }], &root).len();
        assert_eq!(runs, 1, "one reason, and not one for each disk");
    }
}
