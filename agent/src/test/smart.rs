//! The health that a disk reports (SMART), as `smartctl --json -x` prints it.
//!
//! If the disk itself reports a failure, the verdict is a failure. Counts of past errors only degrade the verdict: most such disks still
//! work for a long time. Backblaze examines a disk once one of these counts is above zero.

use basalt_api::agent::Verdict;
use serde_json::Value;

use super::{Finding, figure};

/// Bits of smartctl's exit status (smartctl(8), EXIT STATUS).
const NO_ARGUMENTS: i32 = 1 << 0;
const NOT_OPENED: i32 = 1 << 1;
const FAILING: i32 = 1 << 3;

/// Places in the JSON: the disk's own verdict, and an NVMe disk's warnings.
const PASSED: &str = "/smart_status/passed";
const CRITICAL_WARNING: &str = "/nvme_smart_health_information_log/critical_warning";
/// The warning of the temperature among them.
const TOO_HOT: u64 = 1 << 1;

/// A count in the JSON.
struct Count {
    /// Its place, as a JSON pointer.
    at: &'static str,
    /// Name of the figure.
    figure: &'static str,
    /// The verdict from `from` on, and its sentence.
    from: u64,
    verdict: Verdict,
    meaning: &'static str,
}

/// Attributes of ATA disks by id: raw values above zero.
const ATTRIBUTES: [(u64, &str, Verdict, &str); 7] = [
    (5, "reallocated_sectors", Verdict::Degraded, "sectors were replaced by spare ones"),
    (10, "spin_retries", Verdict::Degraded, "times the disk had to try again to spin up"),
    (184, "end_to_end_errors", Verdict::Failed, "times data were changed within the disk"),
    (187, "reported_uncorrectable_errors", Verdict::Degraded, "errors could not be corrected"),
    (197, "pending_sectors", Verdict::Degraded, "sectors cannot be read at present"),
    (
        198,
        "offline_uncorrectable_sectors",
        Verdict::Degraded,
        "sectors were unreadable in the disk's own scan",
    ),
    (199, "interface_crc_errors", Verdict::Degraded, "errors on the cable: look at cable and backplane"),
];

/// Counts of NVMe (Base Specification, SMART / Health Information log) and of SCSI disks (SPC-5, log pages).
const COUNTS: [Count; 7] = [
    Count {
        at: "/nvme_smart_health_information_log/percentage_used",
        figure: "used_percent",
        from: 100,
        verdict: Verdict::Degraded,
        meaning: "% of the writes that the disk was made for are used up",
    },
    Count {
        at: "/nvme_smart_health_information_log/media_errors",
        figure: "media_errors",
        from: 1,
        verdict: Verdict::Degraded,
        meaning: "times data could not be read back",
    },
    Count {
        at: "/scsi_percentage_used_endurance_indicator",
        figure: "used_percent",
        from: 100,
        verdict: Verdict::Degraded,
        meaning: "% of the writes that the disk was made for are used up",
    },
    Count {
        at: "/scsi_grown_defect_list",
        figure: "grown_defects",
        from: 1,
        verdict: Verdict::Degraded,
        meaning: "sectors were replaced by spare ones",
    },
    Count {
        at: "/scsi_error_counter_log/read/total_uncorrected_errors",
        figure: "read_uncorrected_errors",
        from: 1,
        verdict: Verdict::Degraded,
        meaning: "errors of reading could not be corrected",
    },
    Count {
        at: "/scsi_error_counter_log/write/total_uncorrected_errors",
        figure: "write_uncorrected_errors",
        from: 1,
        verdict: Verdict::Degraded,
        meaning: "errors of writing could not be corrected",
    },
    Count {
        at: "/scsi_error_counter_log/verify/total_uncorrected_errors",
        figure: "verify_uncorrected_errors",
        from: 1,
        verdict: Verdict::Degraded,
        meaning: "errors of verifying could not be corrected",
    },
];

/// Bits of an NVMe disk's critical warning (Base Specification, SMART / Health Information log).
const WARNINGS: [(u64, Verdict, &str); 6] = [
    (0, Verdict::Failed, "the spare blocks are used up below the disk's threshold"),
    (1, Verdict::Degraded, "the temperature is outside the disk's thresholds"),
    (2, Verdict::Failed, "the disk has become unreliable by errors of its media"),
    (3, Verdict::Failed, "the disk has become read-only"),
    (4, Verdict::Failed, "the backup of the volatile memory has failed"),
    (5, Verdict::Failed, "the persistent memory region has become unreliable"),
];

/// The attributes of an ATA disk.
const TABLE: &str = "/ata_smart_attributes/table";
/// Attributes that are temperatures: of the air flow, and of the disk.
const TEMPERATURES: [u64; 2] = [190, 194];

/// Values that are reported without a verdict.
const FIGURES: [(&str, &str); 4] = [
    ("/power_on_time/hours", "power_on_hours"),
    ("/temperature/current", "celsius"),
    ("/nvme_smart_health_information_log/available_spare", "spare_percent"),
    ("/endurance_used/current_percent", "used_percent"),
];

/// Adds the results of smartctl and its exit status to the finding.
pub(super) fn judge(code: Option<i32>, json: &str, finding: &mut Finding) {
    match report(code, json) {
        Ok(report) => judge_report(code.unwrap_or(0), &report, finding),
        Err(why) => finding.add(Verdict::Passed, why),
    }
}

/// The verdict of [`judge`] without the temperature, which changes from boot to boot. `None`: the disk does not report its health.
pub(crate) fn health(code: Option<i32>, json: &str) -> Option<Verdict> {
    let mut report = report(code, json).ok()?;
    let mut code = code.unwrap_or(0);
    if let Some(warning) = report.pointer_mut(CRITICAL_WARNING)
        && let Some(bits) = warning.as_u64()
    {
        *warning = (bits & !TOO_HOT).into();
        // smartctl calls every warning a failure.
        if bits == TOO_HOT {
            code &= !FAILING;
            if let Some(passed) = report.pointer_mut(PASSED) {
                *passed = true.into();
            }
        }
    }
    if let Some(table) = report.pointer_mut(TABLE).and_then(Value::as_array_mut) {
        table.retain(|it| !it["id"].as_u64().is_some_and(|id| TEMPERATURES.contains(&id)));
    }
    let known = [PASSED, CRITICAL_WARNING].iter().any(|at| report.pointer(at).is_some());
    let mut finding = Finding::at(None);
    judge_report(code, &report, &mut finding);
    known.then_some(finding.row.verdict)
}

/// The report of a disk. The error is the reason why there is none.
fn report(code: Option<i32>, json: &str) -> Result<Value, String> {
    let Ok(report) = serde_json::from_str::<Value>(json) else {
        let status = code.map_or_else(|| "a signal".to_owned(), |code| format!("status {code}"));
        return Err(format!("SMART is not known: smartctl ended with {status} and no JSON"));
    };
    let is_missing = report.pointer("/smart_support/available").and_then(Value::as_bool) == Some(false);
    if code.unwrap_or(0) & (NO_ARGUMENTS | NOT_OPENED) != 0 || is_missing {
        return Err(format!("no SMART{}", words(&report)));
    }
    Ok(report)
}

fn judge_report(code: i32, report: &Value, finding: &mut Finding) {
    let number = |at: &str| report.pointer(at).and_then(Value::as_u64);
    let flag = |at: &str| report.pointer(at).and_then(Value::as_bool);
    if flag("/smart_support/enabled") == Some(false) {
        finding.add(Verdict::Passed, "SMART is switched off: smartctl --smart=on switches it on");
    }
    for (at, name) in FIGURES {
        if let Some(value) = number(at) {
            finding.figure(name, figure(value));
        }
    }
    let before = finding.row.message.len();
    let warning = number(CRITICAL_WARNING).unwrap_or(0);
    for (bit, verdict, meaning) in WARNINGS {
        if warning >> bit & 1 == 1 {
            finding.add(verdict, format!("critical warning: {meaning}"));
        }
    }
    // An NVMe disk only passes without warnings, and warnings differ in severity. So its warnings are judged one by one.
    let fails = flag(PASSED) == Some(false) || code & FAILING != 0;
    if fails && (warning == 0 || warning >> WARNINGS.len() != 0) {
        finding.add(Verdict::Failed, "the disk says that it fails, or will within a day");
    }
    spare(&number, warning, finding);
    for Count { at, figure: name, from, verdict, meaning } in &COUNTS {
        count(number(at), name, *from, *verdict, meaning, finding);
    }
    attributes(report, finding);
    self_tests(report, finding);
    if finding.row.message.len() == before {
        finding.add(Verdict::Passed, "SMART shows no trouble");
    }
}

/// The reasons in smartctl's messages.
fn words(report: &Value) -> String {
    let messages = report.pointer("/smartctl/messages").and_then(Value::as_array);
    let texts = messages.into_iter().flatten().filter_map(|message| message.get("string")?.as_str());
    texts.take(3).fold(String::new(), |all, text| format!("{all}: {}", text.trim()))
}

fn count(value: Option<u64>, name: &str, from: u64, verdict: Verdict, meaning: &str, finding: &mut Finding) {
    let Some(value) = value else { return };
    finding.figure(name, figure(value));
    if value >= from {
        finding.add(verdict, format!("{value} {meaning}"));
    }
}

/// Spare blocks below the threshold. Disks that set the critical warning report the same there.
fn spare(number: &impl Fn(&str) -> Option<u64>, warning: u64, finding: &mut Finding) {
    let log = |name: &str| number(&format!("/nvme_smart_health_information_log/{name}"));
    if let (Some(spare), Some(threshold), 0) =
        (log("available_spare"), log("available_spare_threshold"), warning & 1)
        && spare < threshold
    {
        finding.add(
            Verdict::Failed,
            format!("{spare} % of the spare blocks are left, and {threshold} % is the disk's threshold"),
        );
    }
}

/// The vendor's attributes of an ATA disk.
fn attributes(report: &Value, finding: &mut Finding) {
    let table = report.pointer(TABLE).and_then(Value::as_array);
    for attribute in table.into_iter().flatten() {
        let Some(id) = attribute.get("id").and_then(Value::as_u64) else { continue };
        let text = |name: &str| attribute.get(name).and_then(Value::as_str).unwrap_or_default();
        let is_prefailure = attribute.pointer("/flags/prefailure").and_then(Value::as_bool) == Some(true);
        let verdict = match (text("when_failed"), is_prefailure) {
            ("now", true) => Some((Verdict::Failed, "is below the vendor's threshold")),
            ("now", false) => Some((Verdict::Degraded, "is below the vendor's threshold of age")),
            ("past", _) => Some((Verdict::Degraded, "was below the vendor's threshold once")),
            _ => None,
        };
        if let Some((verdict, meaning)) = verdict {
            finding.add(verdict, format!("attribute {id} ({}) {meaning}", text("name")));
        }
        if let Some((_, name, verdict, meaning)) = ATTRIBUTES.iter().find(|(known, ..)| *known == id) {
            // Some vendors keep other counts in the upper two bytes.
            let raw = attribute.pointer("/raw/value").and_then(Value::as_u64).map(|raw| raw & 0xffff_ffff);
            count(raw, name, 1, *verdict, meaning, finding);
        }
    }
}

/// The latest self-test of the disk, if it has ended.
fn self_tests(report: &Value, finding: &mut Finding) {
    let latest = |log: &str| report.pointer(&format!("{log}/table/0"));
    let ata =
        latest("/ata_smart_self_test_log/extended").or_else(|| latest("/ata_smart_self_test_log/standard"));
    let ata = ata.and_then(|test| test.pointer("/status"));
    // Results 5 to 7 of an NVMe self-test: fatal error, failed segment that is unknown, failed segment.
    let nvme = latest("/nvme_self_test_log").and_then(|test| test.pointer("/self_test_result"));
    let nvme =
        nvme.filter(|it| it.get("value").and_then(Value::as_u64).is_some_and(|it| (5..=7).contains(&it)));
    let ata = ata.filter(|it| it.get("passed").and_then(Value::as_bool) == Some(false));
    if let Some(status) = ata.or(nvme) {
        let words = status.get("string").and_then(Value::as_str).unwrap_or("without words");
        finding.add(Verdict::Failed, format!("the disk's latest self-test failed: {words}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(code: i32, report: &Value) -> basalt_api::agent::TestRow {
        let mut finding = Finding::at(Some("sda"));
        judge(Some(code), &report.to_string(), &mut finding);
        finding.row
    }

    fn attribute(id: u64, name: &str, raw: u64, when_failed: &str, prefailure: bool) -> Value {
        json!({"id": id, "name": name, "value": 100, "worst": 100, "thresh": 10, "when_failed": when_failed,
            "flags": {"prefailure": prefailure}, "raw": {"value": raw, "string": raw.to_string()}})
    }

    fn ata(attributes: &[Value]) -> Value {
        json!({"smartctl": {"exit_status": 0}, "device": {"protocol": "ATA"},
            "smart_support": {"available": true, "enabled": true}, "smart_status": {"passed": true},
            "ata_smart_attributes": {"revision": 1, "table": attributes},
            "power_on_time": {"hours": 41_007}, "temperature": {"current": 33}})
    }

    fn nvme(log: Value) -> Value {
        json!({"device": {"protocol": "NVMe"}, "smart_status": {"passed": log["critical_warning"] == 0},
            "nvme_smart_health_information_log": log})
    }

    #[test]
    fn a_sound_disk_passes_with_its_figures() {
        let row = row(0, &ata(&[attribute(5, "Reallocated_Sector_Ct", 0, "", true)]));
        assert_eq!((row.verdict, row.message.as_str()), (Verdict::Passed, "SMART shows no trouble"));
        let figures: Vec<_> = row.figures.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(figures, [("celsius", 33.0), ("power_on_hours", 41_007.0), ("reallocated_sectors", 0.0)]);
    }

    #[test]
    fn attributes_are_judged_by_the_table_and_by_the_vendor() {
        for (attribute, verdict, says) in [
            (
                attribute(5, "Reallocated_Sector_Ct", 8, "", true),
                Verdict::Degraded,
                "8 sectors were replaced",
            ),
            (
                attribute(197, "Current_Pending_Sector", 1, "", false),
                Verdict::Degraded,
                "1 sectors cannot be read",
            ),
            (attribute(184, "End-to-End_Error", 1, "", true), Verdict::Failed, "1 times data were changed"),
            (
                attribute(1, "Raw_Read_Error_Rate", 0, "now", true),
                Verdict::Failed,
                "attribute 1 (Raw_Read_Error_Rate) is below",
            ),
            (attribute(190, "Airflow_Temperature", 0, "now", false), Verdict::Degraded, "threshold of age"),
            (attribute(190, "Airflow_Temperature", 0, "past", true), Verdict::Degraded, "threshold once"),
            (attribute(9, "Power_On_Hours", 70_000, "", false), Verdict::Passed, "no trouble"),
            (attribute(5, "Reallocated_Sector_Ct", 7 << 32, "", true), Verdict::Passed, "no trouble"),
        ] {
            let row = row(0, &ata(&[attribute]));
            assert_eq!(row.verdict, verdict, "{}", row.message);
            assert!(row.message.contains(says), "{}", row.message);
        }
    }

    #[test]
    fn a_disk_that_says_that_it_fails_has_failed() {
        let mut report = ata(&[]);
        report["smart_status"]["passed"] = json!(false);
        assert_eq!(row(8, &report).verdict, Verdict::Failed);
        // Bits 6 and 7 are logs of the past.
        assert_eq!(row(0xc0, &ata(&[])).verdict, Verdict::Passed);
        assert_eq!(row(FAILING, &ata(&[])).verdict, Verdict::Failed);
    }

    #[test]
    fn health_has_the_verdict_without_the_temperature() {
        let of = |code: i32, report: &Value| health(Some(code), &report.to_string());
        assert_eq!(of(0, &ata(&[])), Some(Verdict::Passed));
        let worn = attribute(5, "Reallocated_Sector_Ct", 9, "", true);
        assert_eq!(of(0, &ata(&[worn])), Some(Verdict::Degraded));
        for (id, name) in [(190, "Airflow_Temperature"), (194, "Temperature_Celsius")] {
            let hot = attribute(id, name, 0, "now", false);
            assert_eq!(of(0, &ata(&[hot])), Some(Verdict::Passed), "{name}");
        }
        let warned = |bits: u64| of(FAILING, &nvme(json!({"critical_warning": bits})));
        assert_eq!(
            (warned(TOO_HOT), warned(4), warned(4 | TOO_HOT)),
            (Some(Verdict::Passed), Some(Verdict::Failed), Some(Verdict::Failed))
        );
        assert_eq!(of(NOT_OPENED, &ata(&[])), None);
        assert_eq!(of(0, &json!({"smart_support": {"available": false}})), None);
        assert_eq!((of(0, &json!({"device": {"protocol": "SCSI"}})), health(None, "")), (None, None));
    }

    #[test]
    fn warnings_of_nvme_have_their_weight() {
        let log = |warning: u64, used: u64, spare: u64, errors: u64| {
            nvme(json!({"critical_warning": warning, "percentage_used": used, "available_spare": spare,
                "available_spare_threshold": 10, "media_errors": errors, "temperature": 40}))
        };
        for (code, report, verdict, says) in [
            (0, log(0, 99, 10, 0), Verdict::Passed, "no trouble"),
            (0, log(0, 100, 100, 0), Verdict::Degraded, "100 % of the writes"),
            (0, log(0, 1, 9, 0), Verdict::Failed, "9 % of the spare blocks"),
            (0, log(0, 1, 100, 3), Verdict::Degraded, "3 times data"),
            (8, log(1, 1, 9, 0), Verdict::Failed, "spare blocks are used up"),
            (8, log(2, 1, 100, 0), Verdict::Degraded, "the temperature"),
            (8, log(4, 1, 100, 0), Verdict::Failed, "unreliable"),
            (8, log(8, 1, 100, 0), Verdict::Failed, "read-only"),
            (8, log(64, 1, 100, 0), Verdict::Failed, "the disk says that it fails"),
        ] {
            let row = row(code, &report);
            assert_eq!(row.verdict, verdict, "{}", row.message);
            assert!(row.message.contains(says), "{}", row.message);
        }
    }

    #[test]
    fn counters_of_scsi_disks_count() {
        let report = json!({"smart_status": {"passed": true}, "scsi_grown_defect_list": 2,
            "scsi_error_counter_log": {"read": {"total_uncorrected_errors": 1}, "write": {"total_uncorrected_errors": 0}}});
        let row = row(0, &report);
        assert_eq!(row.verdict, Verdict::Degraded);
        assert_eq!(
            row.message,
            "2 sectors were replaced by spare ones; 1 errors of reading could not be corrected"
        );
    }

    #[test]
    fn the_latest_self_test_counts() {
        let mut report = ata(&[]);
        let status =
            |passed: bool| json!({"status": {"passed": passed, "string": "Completed: read failure"}});
        report["ata_smart_self_test_log"] = json!({"extended": {"table": [status(true), status(false)]}});
        assert_eq!(row(0x80, &report).verdict, Verdict::Passed);
        report["ata_smart_self_test_log"] = json!({"extended": {"table": [status(false), status(true)]}});
        let failed = row(0x80, &report);
        assert_eq!(failed.verdict, Verdict::Failed);
        assert!(failed.message.contains("self-test failed: Completed: read failure"), "{}", failed.message);
        let mut report = nvme(json!({"critical_warning": 0}));
        for (value, verdict) in [(0, Verdict::Passed), (1, Verdict::Passed), (7, Verdict::Failed)] {
            let result = json!({"value": value, "string": "Completed: failed segments"});
            report["nvme_self_test_log"] = json!({"table": [{"self_test_result": result}]});
            assert_eq!(row(0, &report).verdict, verdict);
        }
    }

    #[test]
    fn a_disk_without_smart_is_no_failure() {
        let report = json!({"smartctl": {"exit_status": 1, "messages": [
            {"string": "/dev/vda: Unable to detect device type", "severity": "error"}]}});
        let without = row(1, &report);
        assert_eq!(without.verdict, Verdict::Passed);
        assert_eq!(without.message, "no SMART: /dev/vda: Unable to detect device type");
        let report = json!({"smart_support": {"available": false}});
        assert_eq!(row(4, &report).message, "no SMART");
        let mut finding = Finding::at(None);
        judge(Some(127), "", &mut finding);
        assert_eq!(finding.row.message, "SMART is not known: smartctl ended with status 127 and no JSON");
    }
}
