//! Error counters of memory controllers (Linux EDAC). They count since the start of the machine.

use std::collections::BTreeMap;

use basalt_api::agent::Verdict;

use super::super::{Finding, figure};
use crate::root::Root;

const CONTROLLERS: &str = "sys/devices/system/edac/mc";

/// Errors of one module, or of a controller if their module is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Errors {
    corrected: u64,
    uncorrected: u64,
}

/// Errors by the label of a module, which is that on the board where the kernel knows it.
pub(super) type Counters = BTreeMap<String, Errors>;

/// Reads all counters. Empty: the kernel has none.
pub(super) fn read(root: &Root) -> Counters {
    let mut counters = Counters::new();
    for controller in root.names(CONTROLLERS).into_iter().filter(|name| is_numbered(name, "mc")) {
        let base = format!("{CONTROLLERS}/{controller}");
        let count = |path: String| root.number::<u64>(path);
        let (Some(corrected), Some(uncorrected)) =
            (count(format!("{base}/ce_count")), count(format!("{base}/ue_count")))
        else {
            continue;
        };
        let mut rest = Errors { corrected, uncorrected };
        let modules = root.names(&base);
        for module in modules.iter().filter(|name| is_numbered(name, "dimm") || is_numbered(name, "rank")) {
            let of_module = |kind: &str| count(format!("{base}/{module}/dimm_{kind}_count")).unwrap_or(0);
            let errors = Errors { corrected: of_module("ce"), uncorrected: of_module("ue") };
            rest.corrected = rest.corrected.saturating_sub(errors.corrected);
            rest.uncorrected = rest.uncorrected.saturating_sub(errors.uncorrected);
            // Boards without a table of labels may give all modules the same label.
            let label = root.text(format!("{base}/{module}/dimm_label"));
            let label = label.filter(|label| !counters.contains_key(label));
            counters.insert(label.unwrap_or_else(|| format!("{controller}/{module}")), errors);
        }
        counters.insert(controller, rest);
    }
    counters
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|number| number.parse::<u32>().is_ok())
}

/// One row for each module with errors. Errors before the test count too, since the machine was just started.
pub(super) fn judge(before: &Counters, after: &Counters) -> Vec<Finding> {
    let with_errors = after.iter().filter(|(_, errors)| **errors != Errors::default());
    let finding = |(label, errors): (&String, &Errors)| {
        let old = before.get(label).copied().unwrap_or_default();
        let mut finding = Finding::at(Some(label));
        finding.figure("corrected_errors", figure(errors.corrected));
        finding.figure("uncorrected_errors", figure(errors.uncorrected));
        for (verdict, kind, now, then) in [
            (Verdict::Failed, "could not correct", errors.uncorrected, old.uncorrected),
            (Verdict::Degraded, "corrected", errors.corrected, old.corrected),
        ] {
            if now > 0 {
                let during = now.saturating_sub(then);
                finding.add(
                    verdict,
                    format!(
                        "the controller {kind} {now} errors since the start, {during} of them in the test"
                    ),
                );
            }
        }
        finding
    };
    with_errors.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(CONTROLLERS).join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn errors_are_told_by_module_and_the_rest_by_controller() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        assert!(read(&root).is_empty());
        for (file, text) in [
            ("power/control", "auto"),
            ("mc0/ce_count", "0\n"),
            ("mc0/ue_count", "0\n"),
            ("mc0/dimm0/dimm_label", "DIMM_A1\n"),
            ("mc0/dimm0/dimm_ce_count", "0\n"),
            ("mc0/dimm0/dimm_ue_count", "0\n"),
            ("mc0/rank1/dimm_ce_count", "0\n"),
            ("mc0/rank1/dimm_ue_count", "0\n"),
        ] {
            write(dir.path(), file, text);
        }
        let before = read(&root);
        assert_eq!(before.keys().collect::<Vec<_>>(), ["DIMM_A1", "mc0", "mc0/rank1"]);
        assert!(judge(&before, &before).is_empty());
        write(dir.path(), "mc0/ce_count", "7");
        write(dir.path(), "mc0/ue_count", "1");
        write(dir.path(), "mc0/dimm0/dimm_ce_count", "5");
        write(dir.path(), "mc0/rank1/dimm_ue_count", "1");
        let rows: Vec<_> = judge(&before, &read(&root)).into_iter().map(|finding| finding.row).collect();
        let brief: Vec<_> = rows.iter().map(|row| (row.device.as_deref().unwrap(), row.verdict)).collect();
        assert_eq!(
            brief,
            [("DIMM_A1", Verdict::Degraded), ("mc0", Verdict::Degraded), ("mc0/rank1", Verdict::Failed)]
        );
        assert_eq!((rows[0].figures["corrected_errors"], rows[1].figures["corrected_errors"]), (5.0, 2.0));
        assert!(
            rows[2].message.starts_with("the controller could not correct 1 errors"),
            "{}",
            rows[2].message
        );
    }

    #[test]
    fn errors_from_before_the_test_count() {
        let counters = Counters::from([("A1".to_owned(), Errors { corrected: 3, uncorrected: 0 })]);
        let row = &judge(&counters, &counters)[0].row;
        assert_eq!(row.verdict, Verdict::Degraded);
        assert!(row.message.ends_with("3 errors since the start, 0 of them in the test"), "{}", row.message);
    }
}
