//! The hardware tests on this host, by the program that machines run.

use std::process::Command;

use basalt_api::agent::{RESULTS_VARIABLE, TestRow, Verdict};

/// The exit status, the rows, and everything that was printed.
fn run(args: &[&str]) -> (Option<i32>, Vec<TestRow>, String) {
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("rows");
    let output = Command::new(env!("CARGO_BIN_EXE_basalt-agent"))
        .arg("test")
        .args(args)
        .env(RESULTS_VARIABLE, &results)
        .output()
        .unwrap();
    let rows = std::fs::read_to_string(&results).unwrap_or_default();
    let rows = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code(), rows, said.concat())
}

#[test]
fn memory_of_this_host_is_tested() {
    let (code, rows, said) = run(&["memory", "--percent=1", "--seconds=2"]);
    let row = &rows[0];
    assert_eq!((code, row.device.as_deref()), (Some(0), None), "{said}");
    assert!(row.verdict < Verdict::Failed && row.figures["mib_tested"] >= 1.0, "{row:?}");
    assert!(row.figures["gib_per_s"] > 0.0 && row.figures["wrong_words"] == 0.0, "{row:?}");
    assert!(said.contains("memory: address"), "{said}");
}

#[test]
fn cpus_of_this_host_are_tested() {
    let (code, rows, said) = run(&["cpu", "--seconds=1", "--celsius=150"]);
    let row = &rows[0];
    assert_eq!(code, Some(0), "{said}");
    assert!(row.verdict < Verdict::Failed && row.figures["rounds"] >= 1.0, "{row:?}");
    assert!(row.figures["seconds"] >= 1.0, "{row:?}");
}

#[test]
fn wrong_arguments_end_with_two_and_without_rows() {
    for args in [&["memory", "--percent=0"][..], &["gpu"], &[]] {
        let (code, rows, said) = run(args);
        assert_eq!((code, rows.len()), (Some(2), 0), "{said}");
        assert!(said.contains("usage: basalt-agent test NAME"), "{said}");
    }
}

#[test]
fn without_a_file_for_results_a_table_is_printed() {
    let output = Command::new(env!("CARGO_BIN_EXE_basalt-agent"))
        .args(["test", "memory", "--percent=1", "--seconds=1"])
        .env_remove(RESULTS_VARIABLE)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("DEVICE   VERDICT") && said.contains("mib_tested="), "{said}");
}

#[test]
fn disks_of_this_host_are_tested() {
    let (code, rows, said) = run(&["disks", "--megabytes=1"]);
    assert!(matches!(code, Some(0 | 1)), "{said}");
    assert_eq!(code == Some(1), rows.iter().any(|row| row.verdict == Verdict::Failed), "{said}");
    assert!(!rows.is_empty() && rows.iter().all(|row| !row.message.is_empty()), "{said}");
    let (code, rows, said) = run(&["disks", "--device=no-such-disk"]);
    assert_eq!((code, rows.len()), (Some(2), 0), "{said}");
}

#[test]
fn network_of_this_host_is_tested() {
    let (code, rows, said) = run(&["network", "--seconds=1"]);
    assert!(matches!(code, Some(0 | 1)), "{said}");
    assert_eq!(code == Some(1), rows.iter().any(|row| row.verdict == Verdict::Failed), "{said}");
    assert!(!rows.is_empty() && rows.iter().all(|row| !row.message.is_empty()), "{said}");
}
