//! Links of interfaces: their errors, and their speed in comparison with the adapter's.

use std::time::Duration;

use basalt_api::agent::Verdict;

use super::super::{Finding, figure};
use crate::root::Root;
use crate::{network, tool};

/// Time limit of ethtool, which calls the driver.
const ETHTOOL: Duration = Duration::from_secs(10);
/// Percentage of errors per packet from which a link fails.
const FAILED_PERCENT: u64 = 1;

/// A link as the kernel shows it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    has_carrier: bool,
    /// Speed in Mbit/s. Absent: the driver does not report it.
    speed: Option<u64>,
    is_half_duplex: bool,
    /// Mbit/s of the fastest mode of the adapter, and of the peer's announcement.
    adapter: Option<u64>,
    peer: Option<u64>,
}

impl Link {
    pub(super) fn read(root: &Root, name: &str) -> Self {
        let base = format!("sys/class/net/{name}");
        let modes = tool::answer("ethtool", &[name], ETHTOOL).map(|ended| ended.out).unwrap_or_default();
        Self {
            has_carrier: network::has_carrier(root, name),
            // -1 stands for unknown.
            speed: root.number::<i64>(format!("{base}/speed")).and_then(|speed| u64::try_from(speed).ok()),
            is_half_duplex: root.text(format!("{base}/duplex")).as_deref() == Some("half"),
            adapter: fastest(&modes, "Supported link modes:"),
            peer: fastest(&modes, "Link partner advertised link modes:"),
        }
    }
}

/// The fastest mode below a title of ethtool's output: `1000baseT/Full`, several on a line and on the lines after it.
fn fastest(ethtool: &str, title: &str) -> Option<u64> {
    let (_, rest) = ethtool.split_once(title).filter(|(before, _)| {
        // "Link partner advertised link modes" contains another title.
        before.is_empty() || before.ends_with(['\t', '\n', ' '])
    })?;
    let own = rest.lines().enumerate().take_while(|(number, line)| *number == 0 || !line.contains(':'));
    let words = own.flat_map(|(_, line)| line.split_ascii_whitespace());
    words.filter_map(|word| word.split_once("base")?.0.parse().ok()).max()
}

/// Adds the speed to the finding, and degradations.
pub(super) fn judge(link: &Link, is_boot: bool, finding: &mut Finding) {
    if !link.has_carrier {
        let (verdict, word) = match is_boot {
            true => (Verdict::Failed, "the machine was booted by it"),
            false => (Verdict::Passed, "no cable, or nothing at its end"),
        };
        finding.add(verdict, format!("no carrier: {word}"));
        return;
    }
    let Some(speed) = link.speed.filter(|speed| *speed > 0) else {
        finding.add(Verdict::Passed, "the link is up, and its driver tells no speed");
        return;
    };
    finding.figure("mbit_per_s", figure(speed));
    match (link.adapter, link.peer) {
        (Some(adapter), Some(peer)) if speed < adapter && peer <= speed => finding.add(
            Verdict::Degraded,
            format!("{speed} Mbit/s of {adapter} that the adapter can: the switch offers {peer}"),
        ),
        (Some(adapter), _) if speed < adapter => finding.add(
            Verdict::Degraded,
            format!(
                "{speed} Mbit/s of {adapter} that the adapter can: look at cable, transceiver and switch port"
            ),
        ),
        _ => finding.add(Verdict::Passed, format!("{speed} Mbit/s")),
    }
    if link.is_half_duplex {
        finding.add(Verdict::Degraded, "half duplex: set both ends to negotiate");
    }
}

/// Counters of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    packets: u64,
    errors: u64,
    crc: u64,
    /// Packets that were lost because buffers were full. Packets of unknown protocols are not counted.
    missed: u64,
    /// Number of changes of the carrier.
    changes: u64,
}

impl Counters {
    pub(super) fn read(root: &Root, name: &str) -> Self {
        let base = format!("sys/class/net/{name}");
        let sum = |files: &[&str]| {
            let counts =
                files.iter().filter_map(|file| root.number::<u64>(format!("{base}/statistics/{file}")));
            counts.sum()
        };
        Self {
            packets: sum(&["rx_packets", "tx_packets"]),
            errors: sum(&["rx_errors", "tx_errors"]),
            crc: sum(&["rx_crc_errors", "rx_frame_errors"]),
            missed: sum(&["rx_missed_errors", "rx_fifo_errors", "tx_fifo_errors"]),
            changes: root.number(format!("{base}/carrier_changes")).unwrap_or(0),
        }
    }

    /// The counts that came since `before`.
    pub(super) fn since(self, before: &Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            errors: self.errors.saturating_sub(before.errors),
            crc: self.crc.saturating_sub(before.crc),
            missed: self.missed.saturating_sub(before.missed),
            changes: self.changes.saturating_sub(before.changes),
        }
    }

    /// Adds the errors of the test's time.
    pub(super) fn judge(&self, finding: &mut Finding) {
        // Most drivers also count damaged frames as errors, so the larger number is used.
        let bad = self.errors.max(self.crc);
        finding.figure("errors", figure(bad));
        finding.figure("dropped", figure(self.missed));
        let all = self.packets + bad;
        if bad > 0 {
            let verdict = match bad.saturating_mul(100) >= all.saturating_mul(FAILED_PERCENT) && bad > 1 {
                true => Verdict::Failed,
                false => Verdict::Degraded,
            };
            finding.add(
                verdict,
                format!("{bad} of {all} packets were errors, {} of them damaged on the cable", self.crc),
            );
        }
        if self.missed > 0 {
            finding.add(Verdict::Degraded, format!("{} packets were lost for want of buffers", self.missed));
        }
        if self.changes > 0 {
            let changes = self.changes;
            finding
                .add(Verdict::Degraded, format!("the link went down or came up {changes} times in the test"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ETHTOOL: &str = "Settings for eth0:
\tSupported ports: [ TP ]
\tSupported link modes:   10baseT/Half 10baseT/Full
\t                        100baseT/Half 100baseT/Full
\t                        10000baseT/Full
\tSupported pause frame use: Symmetric
\tAdvertised link modes:  25000baseCR/Full
\tLink partner advertised link modes:  1000baseT/Full
\tSpeed: 1000Mb/s
";

    #[test]
    fn the_fastest_mode_of_each_list_is_read() {
        assert_eq!(fastest(ETHTOOL, "Supported link modes:"), Some(10_000));
        assert_eq!(fastest(ETHTOOL, "Link partner advertised link modes:"), Some(1000));
        assert_eq!(fastest("Supported link modes:   Not reported\nSpeed: 1", "Supported link modes:"), None);
        assert_eq!(fastest("", "Supported link modes:"), None);
    }

    fn row(link: &Link, is_boot: bool) -> basalt_api::agent::TestRow {
        let mut finding = Finding::at(Some("eth0"));
        judge(link, is_boot, &mut finding);
        finding.row
    }

    #[test]
    fn a_link_slower_than_its_adapter_degrades() {
        let link = Link { has_carrier: true, speed: Some(1000), adapter: Some(1000), ..Link::default() };
        let full = row(&link, true);
        assert_eq!((full.verdict, full.figures["mbit_per_s"]), (Verdict::Passed, 1000.0));
        let slow = row(&Link { adapter: Some(10_000), ..link }, true);
        assert_eq!(slow.verdict, Verdict::Degraded);
        assert!(
            slow.message.starts_with("1000 Mbit/s of 10000 that the adapter can: look at"),
            "{}",
            slow.message
        );
        let switch = row(&Link { adapter: Some(10_000), peer: Some(1000), ..link }, true);
        assert!(switch.message.ends_with("the switch offers 1000"), "{}", switch.message);
        let half = row(&Link { is_half_duplex: true, ..link }, false);
        assert_eq!(half.verdict, Verdict::Degraded);
        assert_eq!(row(&Link { speed: None, ..link }, true).verdict, Verdict::Passed);
    }

    #[test]
    fn the_boot_interface_alone_needs_a_carrier() {
        assert_eq!(row(&Link::default(), false).verdict, Verdict::Passed);
        assert_eq!(row(&Link::default(), true).verdict, Verdict::Failed);
    }

    #[test]
    fn errors_of_the_test_are_judged_by_their_share() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("sys/class/net/eth0");
        fs::create_dir_all(base.join("statistics")).unwrap();
        let root = Root::at(dir.path());
        let write = |file: &str, count: u64| fs::write(base.join(file), format!("{count}\n")).unwrap();
        for (file, count) in
            [("rx_packets", 1000), ("tx_packets", 500), ("rx_errors", 40), ("rx_crc_errors", 30)]
        {
            write(&format!("statistics/{file}"), count);
        }
        write("carrier_changes", 2);
        let before = Counters::read(&root, "eth0");
        let verdict = || {
            let mut finding = Finding::at(Some("eth0"));
            Counters::read(&root, "eth0").since(&before).judge(&mut finding);
            (finding.row.verdict, finding.row.message)
        };
        assert_eq!(verdict(), (Verdict::Passed, String::new()));
        write("statistics/rx_errors", 41);
        assert_eq!(verdict().0, Verdict::Degraded);
        write("statistics/rx_errors", 60);
        write("statistics/tx_packets", 1000);
        assert_eq!(verdict().0, Verdict::Failed);
        write("statistics/tx_packets", 100_000);
        assert_eq!(
            verdict(),
            (Verdict::Degraded, "20 of 99520 packets were errors, 0 of them damaged on the cable".to_owned())
        );
        write("statistics/rx_errors", 40);
        for (file, says) in
            [("carrier_changes", "2 times"), ("statistics/rx_missed_errors", "4 packets were lost")]
        {
            write(file, 4);
            let (verdict, message) = verdict();
            assert_eq!(verdict, Verdict::Degraded);
            assert!(message.contains(says), "{message}");
        }
    }
}
