//! Decides what a machine boots. The inputs are its MAC, the concerns `known` and `boot`, and the register of attempts.
//!
//! | the concerns contain | and | the machine boots |
//! | --- | --- | --- |
//! | ephemeral | armed | the ephemeral environment |
//! | no entry for this MAC; inspection of strangers in its network | it is on the [turn](crate::strangers) | the ephemeral environment |
//! | ephemeral | its result has arrived | its disk |
//! | ephemeral | it was fenced | its disk |
//! | ephemeral | its `not_after` has passed | its disk |
//! | ephemeral | its boot loader announced another architecture than is declared | its disk |
//! | local; or no entry for this MAC; or there is no concern | | its disk |
//! | power off | | it powers off |

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use basalt_api::values::Cidr;
use basalt_dhcp::{Architecture, Declared, Firmware, Mac, OtherArchitecture};
use basalt_proto::rack_v1::boot_machine::Action;
use basalt_proto::rack_v1::{BootConcern, BootMachine, EnlistTask, EphemeralBoot, KnownConcern, LocalBoot};

use crate::attempts::{AttemptId, Attempts, Over, Subject};
use crate::hash::is_sha256_hex;

/// The declared machines and their actions, indexed by MAC.
#[derive(Debug, Default)]
pub struct BootTable {
    concern: BootConcern,
    by_mac: HashMap<Mac, usize>,
    declared: Declared,
    for_firmware: HashSet<String>,
}

/// The decision for a machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision<'a> {
    /// It boots the ephemeral environment for one task.
    Ephemeral(Armed<'a>),
    /// It is undeclared and may be inspected: it boots the ephemeral environment when its turn comes.
    Stranger(Stranger<'a>),
    /// It asks again in a few seconds.
    Wait,
    /// It boots its disk.
    Local(Why),
    /// It powers off.
    PowerOff,
}

/// An attempt that a machine may claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Armed<'a> {
    /// The machine; `None` for enlistment.
    pub machine: Option<&'a BootMachine>,
    /// The images, options and task.
    pub boot: &'a EphemeralBoot,
    /// The key of the attempt in the register.
    pub id: AttemptId,
}

/// An undeclared machine that may be inspected.
#[derive(Debug, Clone, PartialEq)]
pub struct Stranger<'a> {
    /// The attempt that it boots.
    pub armed: Armed<'a>,
    /// The VLAN of the machine, by one of its networks.
    pub vlan: &'a str,
    /// The most machines of one VLAN that may be inspected at once.
    pub at_once: usize,
}

/// The reason why a machine boots its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its action in the concern is a local boot.
    Declared,
    /// The MAC is not declared.
    Unknown,
    /// The MAC is not declared, and no region is connected.
    NoRegion,
    /// The MAC is not declared, and the machine was inspected less than an hour ago.
    LookedInto,
    /// The MAC is not declared, and too many other machines were inspected meanwhile.
    TooMany,
    /// Its attempt has finished.
    Finished,
    /// Its attempt was claimed from two places.
    Fenced,
    /// The deadline of its attempt has passed.
    Expired,
    /// The machine is declared with this architecture, and its boot loader announced the other one.
    OtherArchitecture(Architecture),
}

impl Why {
    /// The reason as text.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Declared => "boots its disk",
            Self::Unknown => "is unknown and boots its disk",
            Self::NoRegion => "is unknown, no region is connected, and it boots its disk",
            Self::LookedInto => "is unknown, was inspected less than an hour ago, and boots its disk",
            Self::TooMany => "is unknown, too many others are inspected, and it boots its disk",
            Self::Finished => "has finished its task and boots its disk",
            Self::Fenced => "had its task begun from two places and boots its disk",
            Self::Expired => "came too late for its task and boots its disk",
            Self::OtherArchitecture(Architecture::Amd64) => {
                "is declared as amd64, has a boot loader for arm64, and boots its disk"
            }
            Self::OtherArchitecture(Architecture::Arm64) => {
                "is declared as arm64, has a boot loader for amd64, and boots its disk"
            }
        }
    }
}

impl BootTable {
    /// Indexes two sound concerns, either of which may be newer. A machine's action comes from `concern`. If `known`
    /// gives a MAC to another machine than `concern` does, the MAC does not boot for the machine in `concern`.
    #[must_use]
    pub fn new(known: &KnownConcern, mut concern: BootConcern) -> Self {
        let told: HashSet<_> = concern.machines.iter().map(|machine| machine.machine_uid.clone()).collect();
        let others = known.machines.iter().filter(|machine| !told.contains(&machine.machine_uid));
        let others = others
            .map(|machine| BootMachine { action: Some(Action::Local(LocalBoot {})), ..machine.clone() });
        // The later entry of a MAC wins.
        concern.machines.extend(others);
        let mut by_mac = HashMap::new();
        for (index, machine) in concern.machines.iter().enumerate() {
            by_mac
                .extend(machine.macs.iter().filter_map(|mac| mac.parse().ok()).map(|mac: Mac| (mac, index)));
        }
        let of = |index: &usize| Architecture::named(&concern.machines.get(*index)?.architecture);
        let declared = by_mac.iter().filter_map(|(mac, index)| Some((*mac, of(index)?)));
        let declared = Declared::new(declared.collect());
        let strangers = concern.enlist.iter().flat_map(|it| &it.tasks).filter_map(|task| task.boot.as_ref());
        let boots = concern.machines.iter().filter_map(ephemeral).chain(strangers);
        let for_firmware =
            boots.flat_map(|boot| [boot.kernel_sha256.clone(), boot.initrd_sha256.clone()]).collect();
        Self { concern, by_mac, declared, for_firmware }
    }

    /// True if a machine's firmware or boot loader fetches this blob, not a running system.
    #[must_use]
    pub fn is_for_firmware(&self, sha256: &str) -> bool {
        self.for_firmware.contains(sha256)
    }

    /// The machine with this MAC.
    #[must_use]
    pub fn machine(&self, mac: Mac) -> Option<&BootMachine> {
        self.concern.machines.get(*self.by_mac.get(&mac)?)
    }

    /// The architectures that machines are declared with.
    #[must_use]
    pub const fn declared(&self) -> &Declared {
        &self.declared
    }

    /// True if a machine may be at this address: the address is in one of the machine's networks, or those are unknown.
    #[must_use]
    pub fn may_be_at(&self, mac: Mac, address: IpAddr) -> bool {
        let Some(machine) = self.machine(mac) else { return true };
        let holds = |network: &String| network.parse().is_ok_and(|it: Cidr| it.contains(address));
        machine.networks.is_empty() || machine.networks.iter().any(holds)
    }

    /// The ephemeral boot that the concern has for this MAC, armed or not. `at` is the machine's address.
    #[must_use]
    pub fn ephemeral(&self, mac: Mac, at: IpAddr) -> Option<Armed<'_>> {
        let Some(machine) = self.machine(mac) else {
            return self.stranger(mac, at, None).map(|stranger| stranger.armed);
        };
        let boot = ephemeral(machine)?;
        let id = AttemptId { attempt: boot.attempt, subject: Subject::machine(&machine.machine_uid) };
        Some(Armed { machine: Some(machine), boot, id })
    }

    /// The attempt of an undeclared machine with this address. With an `architecture`, only tasks for it count.
    fn stranger(&self, mac: Mac, at: IpAddr, architecture: Option<Architecture>) -> Option<Stranger<'_>> {
        let enlist = self.concern.enlist.as_ref()?;
        let begins = |prefixes: &[String]| prefixes.iter().any(|prefix| has_prefix(mac, prefix));
        if begins(&enlist.ignore) || (!enlist.allow.is_empty() && !begins(&enlist.allow)) {
            return None;
        }
        let holds = |network: &String| network.parse().is_ok_and(|it: Cidr| it.contains(at));
        let fits = |task: &&EnlistTask| {
            let of = Architecture::named(&task.architecture);
            task.networks.iter().any(holds) && (architecture.is_none() || of == architecture)
        };
        let task = enlist.tasks.iter().find(fits)?;
        let boot = task.boot.as_ref()?;
        let id = AttemptId { attempt: boot.attempt, subject: Subject::mac(mac) };
        Some(Stranger {
            armed: Armed { machine: None, boot, id },
            vlan: task.networks.first()?,
            at_once: usize::try_from(enlist.at_once).unwrap_or(usize::MAX),
        })
    }

    /// The machine that has this attempt.
    #[must_use]
    pub fn of_attempt(&self, attempt: u64) -> Option<(&BootMachine, &EphemeralBoot)> {
        self.armed().find(|(_, boot)| boot.attempt == attempt)
    }

    /// Every machine with an attempt.
    pub fn armed(&self) -> impl Iterator<Item = (&BootMachine, &EphemeralBoot)> {
        self.concern.machines.iter().filter_map(|machine| Some((machine, ephemeral(machine)?)))
    }

    /// Decides for a MAC with an address. `firmware` is the one that its boot loader announced by DHCP; `None` if
    /// unknown.
    #[must_use]
    pub fn decide(
        &self,
        mac: Mac,
        at: IpAddr,
        firmware: Option<Firmware>,
        attempts: &Attempts,
        now_ms: i64,
    ) -> Decision<'_> {
        let Some(machine) = self.machine(mac) else {
            let architecture = firmware.map_or(Architecture::Amd64, Firmware::architecture);
            let stranger = self.stranger(mac, at, Some(architecture));
            return stranger.map_or(Decision::Local(Why::Unknown), Decision::Stranger);
        };
        let other = OtherArchitecture::between(firmware, self.declared.get(&mac).copied());
        if let Some(armed) = self.ephemeral(mac, at) {
            return match attempts.over(&armed.id) {
                Some(Over::Finished) => Decision::Local(Why::Finished),
                Some(Over::Fenced) => Decision::Local(Why::Fenced),
                None if armed.boot.not_after_unix_ms <= now_ms => Decision::Local(Why::Expired),
                None if let Some(other) = other => Decision::Local(Why::OtherArchitecture(other.declared)),
                None => Decision::Ephemeral(armed),
            };
        }
        match &machine.action {
            Some(Action::PowerOff(_)) => Decision::PowerOff,
            _ => Decision::Local(Why::Declared),
        }
    }
}

/// True if a MAC begins with these octets, written with colons.
fn has_prefix(mac: Mac, prefix: &str) -> bool {
    let mac = mac.to_string();
    let (mac, prefix) = (mac.split(':'), prefix.split(':'));
    prefix.clone().count() <= 6 && prefix.zip(mac).all(|(wanted, octet)| wanted.eq_ignore_ascii_case(octet))
}

fn ephemeral(machine: &BootMachine) -> Option<&EphemeralBoot> {
    match &machine.action {
        Some(Action::Ephemeral(boot)) => Some(boot),
        _ => None,
    }
}

/// Checks that all MACs of a machine can be parsed and belong to one machine only.
///
/// # Errors
/// A MAC that cannot be parsed, or that belongs to another machine too.
pub(crate) fn check_macs(machine: &BootMachine, owners: &HashMap<Mac, Vec<String>>) -> Result<(), String> {
    for mac in &machine.macs {
        let mac: Mac = mac.parse().map_err(|error| format!("machine {:?}: {error}", machine.name))?;
        if let Some([one, other, ..]) = owners.get(&mac).map(Vec::as_slice) {
            return Err(format!("MAC {mac} belongs to both {one:?} and {other:?}"));
        }
    }
    Ok(())
}

/// Checks an ephemeral boot: its hashes, and options that a boot loader would interpret.
///
/// # Errors
/// The first fault, as text.
pub fn check_ephemeral(boot: &EphemeralBoot) -> Result<(), String> {
    let hashes = [
        ("kernel", &boot.kernel_sha256),
        ("initrd", &boot.initrd_sha256),
        ("squashfs", &boot.squashfs_sha256),
    ];
    for (what, hash) in hashes {
        if !is_sha256_hex(hash) {
            return Err(format!("{what} hash {hash:?} is not a SHA-256 in lower-case hexadecimal"));
        }
    }
    if boot.attempt_key.len() != 32 {
        return Err(format!("the attempt's key has {} bytes, not 32", boot.attempt_key.len()));
    }
    // The options become part of a script that a boot loader interprets.
    let options = &boot.kernel_options;
    let interpreted =
        options.contains("${") || options.split_whitespace().any(|word| matches!(word, "||" | "&&" | ";"));
    if interpreted || options.chars().any(char::is_control) {
        return Err(format!(
            "kernel options {options:?} contain what iPXE would interpret: ${{, ||, &&, ; or a control character"
        ));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod fixtures {
    use super::*;
    use basalt_proto::rack_v1::{Enlist, LocalBoot, PowerOffBoot};

    pub(crate) fn ephemeral(attempt: u64) -> EphemeralBoot {
        EphemeralBoot {
            attempt,
            not_after_unix_ms: i64::MAX,
            kernel_sha256: "a".repeat(64),
            initrd_sha256: "b".repeat(64),
            squashfs_sha256: "c".repeat(64),
            kernel_options: "quiet".into(),
            attempt_key: vec![7; 32],
            task_json: br#"{"attempt":17}"#.to_vec(),
            step_key: "step-1".into(),
            claimed_by: String::new(),
            checkpoint: Vec::new(),
        }
    }

    pub(crate) fn machine(number: u8, action: Action) -> BootMachine {
        BootMachine {
            machine_uid: format!("uid-{number}"),
            name: format!("m{number}"),
            macs: vec![format!("52:54:00:00:00:{number:02x}")],
            action: Some(action),
            networks: Vec::new(),
            architecture: "amd64".into(),
        }
    }

    pub(crate) fn concern() -> BootConcern {
        let machines = vec![
            machine(1, Action::Ephemeral(ephemeral(17))),
            machine(2, Action::Local(LocalBoot {})),
            machine(3, Action::PowerOff(PowerOffBoot {})),
        ];
        BootConcern { machines, enlist: None }
    }

    /// Strangers of one network are inspected: by attempt 4, those with arm64 by attempt 5.
    pub(crate) fn enlist() -> Enlist {
        let task = |architecture: &str, attempt| EnlistTask {
            networks: vec!["10.77.0.0/24".into()],
            architecture: architecture.into(),
            boot: Some(ephemeral(attempt)),
        };
        Enlist { tasks: vec![task("amd64", 4), task("arm64", 5)], at_once: 2, ..Enlist::default() }
    }

    pub(crate) fn mac(number: u8) -> Mac {
        Mac([0x52, 0x54, 0, 0, 0, number])
    }
}

#[cfg(test)]
mod tests {
    use super::fixtures::{concern, enlist, ephemeral, mac, machine};
    use super::*;
    use basalt_proto::rack_v1::Enlist;

    const AT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 9));

    fn attempts() -> (tempfile::TempDir, Attempts) {
        let dir = tempfile::tempdir().unwrap();
        let attempts = Attempts::open(dir.path()).unwrap();
        (dir, attempts)
    }

    #[test]
    fn boots_what_the_concern_says_and_unknown_machines_from_disk() {
        let (_dir, attempts) = attempts();
        let table = BootTable::new(&KnownConcern::default(), concern());
        assert!(
            matches!(table.decide(mac(1), AT, None, &attempts, 0), Decision::Ephemeral(armed) if armed.boot.attempt == 17)
        );
        assert_eq!(table.decide(mac(2), AT, None, &attempts, 0), Decision::Local(Why::Declared));
        assert_eq!(table.decide(mac(3), AT, None, &attempts, 0), Decision::PowerOff);
        assert_eq!(table.decide(mac(9), AT, None, &attempts, 0), Decision::Local(Why::Unknown));
    }

    #[test]
    fn a_machine_that_is_known_boots_its_disk_until_it_is_told_what_it_boots() {
        let (_dir, attempts) = attempts();
        let mut machines = concern().machines;
        machines.iter_mut().for_each(|machine| machine.action = None);
        let known = KnownConcern { machines };
        let table = BootTable::new(&known, BootConcern::default());
        assert_eq!(table.decide(mac(1), AT, None, &attempts, 0), Decision::Local(Why::Declared));
        let mut told = concern();
        told.machines.truncate(1);
        told.machines[0].macs.extend([mac(2).to_string(), mac(7).to_string()]);
        let table = BootTable::new(&known, told);
        for number in [1, 7] {
            assert!(matches!(table.decide(mac(number), AT, None, &attempts, 0), Decision::Ephemeral(_)));
        }
        assert_eq!(
            table.decide(mac(2), AT, None, &attempts, 0),
            Decision::Local(Why::Declared),
            "it is another's"
        );
        assert_eq!(table.decide(mac(3), AT, None, &attempts, 0), Decision::Local(Why::Declared));
    }

    #[test]
    fn a_machine_is_in_its_own_networks_and_anywhere_while_they_are_not_known() {
        let mut concern = concern();
        concern.machines[0].networks = vec!["10.77.0.0/24".into(), "2001:db8:77::/64".into()];
        concern.machines[1].networks = vec!["what is this".into()];
        let table = BootTable::new(&KnownConcern::default(), concern);
        let at = |number, address: &str| table.may_be_at(mac(number), address.parse().unwrap());
        assert!(at(1, "10.77.0.9") && at(1, "2001:db8:77::9"));
        assert!(!at(1, "10.78.0.9") && !at(1, "2001:db8:78::9"));
        assert!(!at(2, "10.77.0.9"), "what cannot be read allows nothing");
        assert!(at(3, "10.78.0.9") && at(9, "10.78.0.9"));
    }

    #[test]
    fn boots_the_disk_once_the_attempt_is_over_though_the_concern_is_old() {
        let (_dir, attempts) = attempts();
        let mut concern = concern();
        if let Some(Action::Ephemeral(boot)) = &mut concern.machines[0].action {
            boot.not_after_unix_ms = 1000;
        }
        let table = BootTable::new(&KnownConcern::default(), concern);
        assert!(matches!(table.decide(mac(1), AT, None, &attempts, 999), Decision::Ephemeral(_)));
        assert_eq!(table.decide(mac(1), AT, None, &attempts, 1000), Decision::Local(Why::Expired));
        let id = AttemptId { attempt: 17, subject: Subject::machine("uid-1") };
        attempts.finish(&id, "session", "report").unwrap();
        assert_eq!(table.decide(mac(1), AT, None, &attempts, 0), Decision::Local(Why::Finished));
    }

    #[test]
    fn no_kernel_is_sent_to_a_boot_loader_of_another_architecture_than_declared() {
        let (_dir, attempts) = attempts();
        let mut concern = concern();
        concern.machines[2].architecture = "arm64".into();
        let arm = machine(4, Action::Ephemeral(ephemeral(18)));
        concern.machines.push(BootMachine { architecture: "arm64".into(), ..arm });
        concern.enlist = Some(enlist());
        let table = BootTable::new(&KnownConcern::default(), concern);
        let decide = |number, firmware| table.decide(mac(number), AT, Some(firmware), &attempts, 0);
        let x86 = [Firmware::Bios, Firmware::EfiX64];
        for firmware in x86 {
            assert!(matches!(decide(1, firmware), Decision::Ephemeral(_)));
            assert_eq!(decide(4, firmware), Decision::Local(Why::OtherArchitecture(Architecture::Arm64)));
        }
        let refused = Why::OtherArchitecture(Architecture::Amd64);
        assert_eq!(decide(1, Firmware::EfiArm64), Decision::Local(refused));
        assert!(matches!(decide(4, Firmware::EfiArm64), Decision::Ephemeral(_)));
        assert_eq!(refused.words(), "is declared as amd64, has a boot loader for arm64, and boots its disk");
        assert_eq!(decide(3, Firmware::Bios), Decision::PowerOff, "that is a script, and no program");
        let task_of = |firmware| match decide(9, firmware) {
            Decision::Stranger(stranger) => stranger.armed.boot.attempt,
            other => panic!("{other:?}"),
        };
        assert_eq!((task_of(Firmware::Bios), task_of(Firmware::EfiArm64)), (4, 5), "each has its own task");
    }

    #[test]
    fn strangers_are_those_of_the_networks_and_prefixes_that_the_concern_names() {
        let (_dir, attempts) = attempts();
        let decided = |enlist: Enlist, number: u8, at: &str| {
            let concern = BootConcern { enlist: Some(enlist), ..concern() };
            let table = BootTable::new(&KnownConcern::default(), concern);
            let decision = table.decide(mac(number), at.parse().unwrap(), None, &attempts, 0);
            match decision {
                Decision::Stranger(it) => {
                    Ok((String::from(it.armed.id.subject), it.vlan.to_owned(), it.at_once))
                }
                Decision::Local(why) => Err(why),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(decided(enlist(), 2, "10.77.0.9"), Err(Why::Declared));
        let stranger = (mac(9).to_string(), "10.77.0.0/24".to_owned(), 2);
        assert_eq!(decided(enlist(), 9, "10.77.0.9"), Ok(stranger.clone()));
        assert_eq!(decided(enlist(), 9, "10.78.0.9"), Err(Why::Unknown), "another network");
        let prefixes = |allow: &[&str], ignore: &[&str]| {
            let of = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect();
            decided(Enlist { allow: of(allow), ignore: of(ignore), ..enlist() }, 9, "10.77.0.9")
        };
        assert_eq!(prefixes(&["52:54:00"], &[]), Ok(stranger));
        assert_eq!(prefixes(&["52:54:01"], &[]), Err(Why::Unknown));
        assert_eq!(prefixes(&["52"], &["52:54:00:00:00:09"]), Err(Why::Unknown));
    }

    #[test]
    fn refuses_a_concern_that_could_not_be_served_or_would_be_interpreted() {
        let with = |change: fn(&mut EphemeralBoot)| {
            let mut boot = ephemeral(1);
            change(&mut boot);
            check_ephemeral(&boot).unwrap_err()
        };
        assert!(with(|boot| boot.kernel_options = "quiet || shell".into()).contains("iPXE would interpret"));
        assert!(with(|boot| boot.kernel_options = "a\nshell".into()).contains("iPXE would interpret"));
        assert!(with(|boot| boot.initrd_sha256 = "../etc/passwd".into()).contains("initrd hash"));
        assert!(with(|boot| boot.attempt_key.truncate(5)).contains("5 bytes"));
    }
}
