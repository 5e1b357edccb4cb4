//! Machine checks, from `/proc/interrupts`: sysfs has no counter of them.

use std::collections::BTreeMap;

use crate::root::Root;

/// Counts of machine checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Checks {
    /// Exceptions (`MCE`) by CPU: an error that was not corrected.
    pub(super) exceptions: BTreeMap<usize, u64>,
    /// Interrupts for corrected errors (`THR`: CMCI of Intel, thresholds of AMD), of all CPUs.
    pub(super) corrected: u64,
}

impl Checks {
    pub(super) fn read(root: &Root) -> Self {
        Self::parse(&root.text("proc/interrupts").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let cpus: Vec<usize> = text
            .lines()
            .next()
            .unwrap_or_default()
            .split_ascii_whitespace()
            .filter_map(|word| word.strip_prefix("CPU")?.parse().ok())
            .collect();
        let counts = |name: &str| {
            let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name));
            let words = line.unwrap_or_default().split_ascii_whitespace();
            let counts: Vec<u64> = words.take(cpus.len()).map_while(|word| word.parse().ok()).collect();
            counts
        };
        Self {
            exceptions: cpus.iter().copied().zip(counts("MCE:")).collect(),
            corrected: counts("THR:").iter().sum(),
        }
    }

    /// The counts that came since `before`.
    pub(super) fn since(mut self, before: &Self) -> Self {
        for (cpu, count) in &mut self.exceptions {
            *count = count.saturating_sub(before.exceptions.get(cpu).copied().unwrap_or(0));
        }
        self.corrected = self.corrected.saturating_sub(before.corrected);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_the_cpus_in_the_head() {
        let before = "            CPU0       CPU2\n   0:   7   0   IO-APIC  2-edge  timer\n THR:   1   2   Threshold APIC interrupts\n MCE:   3   4   Machine check exceptions\n MCP:   9   9   Machine check polls\n";
        let before = Checks::parse(before);
        assert_eq!(before, Checks { exceptions: [(0, 3), (2, 4)].into(), corrected: 3 });
        let after = Checks { exceptions: [(0, 3), (2, 6)].into(), corrected: 4 };
        assert_eq!(after.since(&before), Checks { exceptions: [(0, 0), (2, 2)].into(), corrected: 1 });
        assert_eq!(Checks::parse("           CPU0\n"), Checks::default());
    }
}
