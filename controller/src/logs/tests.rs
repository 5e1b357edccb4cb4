//! Tests of stored lines: repetitions, torn lines, old files, and the limits.

use super::*;
use basalt_proto::rack_v1 as wire;

const SPOOL: &str = "11111111-1111-4111-8111-111111111111";

fn logs(dir: &Path) -> Logs {
    Logs::open(dir.to_owned()).unwrap()
}

fn machine() -> Uid {
    "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e".parse().unwrap()
}

fn rack() -> RackId {
    RackId::from(uuid::Uuid::from_u128(1))
}

/// Lines of the machine, each heard in the second of its number.
fn batch(seqs: std::ops::RangeInclusive<u64>) -> LogBatch {
    let line = |seq: u64| wire::LogLine {
        seq,
        at_unix_ms: i64::try_from(seq).unwrap() * 1000,
        machine_uid: machine().to_string(),
        priority: 30,
        app: "sshd".into(),
        text: format!("line {seq}"),
        ..wire::LogLine::default()
    };
    LogBatch { spool_uid: SPOOL.into(), lines: seqs.map(line).collect() }
}

fn all() -> Query {
    Query { limit: MOST, ..Query::default() }
}

fn texts(logs: &Logs, query: &Query) -> Vec<String> {
    logs.read(machine(), query).unwrap().lines.into_iter().map(|(line, _)| line.text).collect()
}

fn lines(seqs: impl IntoIterator<Item = u64>) -> Vec<String> {
    seqs.into_iter().map(|seq| format!("line {seq}")).collect()
}

#[test]
fn what_a_rack_sends_again_is_kept_once_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let first = logs(dir.path());
    let ask = LogBatch { spool_uid: SPOOL.into(), lines: Vec::new() };
    assert_eq!(first.store(rack(), ask.clone()).unwrap(), 0);
    assert_eq!(first.store(rack(), batch(1..=3)).unwrap(), 3);
    assert_eq!(first.store(rack(), batch(2..=5)).unwrap(), 5);
    assert_eq!(texts(&first, &all()), lines(1..=5));
    first.sync().unwrap();
    // A power cut: the files have more than the cursors say, and the last line is torn.
    first.store(rack(), batch(6..=7)).unwrap();
    let file = first.of(&machine().to_string()).join("0000000001.jsonl");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 10]).unwrap();
    drop(first);
    let again = logs(dir.path());
    assert_eq!(again.store(rack(), ask).unwrap(), 5);
    assert_eq!(again.store(rack(), batch(6..=8)).unwrap(), 8);
    assert_eq!(texts(&again, &all()), lines(1..=8));
}

#[test]
fn a_rack_that_lost_its_spool_begins_anew_and_nothing_of_it_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let logs = logs(dir.path());
    logs.store(rack(), batch(1..=3)).unwrap();
    let other = LogBatch { spool_uid: "22222222-2222-4222-8222-222222222222".into(), ..batch(1..=2) };
    assert_eq!(logs.store(rack(), other).unwrap(), 2);
    assert_eq!(texts(&logs, &all()), lines([1, 2, 3, 1, 2]));
}

#[test]
fn a_part_of_a_log_is_found_by_time_text_and_number() {
    let dir = tempfile::tempdir().unwrap();
    let logs = logs(dir.path());
    logs.0.limits.lock().unwrap().machine_size = "4KiB".parse().unwrap();
    for seq in 1..=100 {
        logs.store(rack(), batch(seq..=seq)).unwrap();
    }
    assert!(segments(&logs.of(&machine().to_string())).unwrap().len() > 5);
    let at = |second| Some(Timestamp::from_second(second).unwrap());
    let some = Query { since: at(20), until: at(40), ..all() };
    assert_eq!(texts(&logs, &some), lines(20..=39));
    let some = Query { grep: Some("line 4".into()), ..all() };
    assert_eq!(texts(&logs, &some), lines([4].into_iter().chain(40..=49)));
    let page = logs.read(machine(), &Query { limit: 3, ..all() }).unwrap();
    assert_eq!((page.lines[0].0.text.as_str(), page.more), ("line 98", true));
    assert!(!logs.read(machine(), &all()).unwrap().more);
    assert_eq!(logs.read(Uid::generate(), &all()).unwrap().lines, []);
}

#[test]
fn a_line_is_told_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let logs = logs(dir.path());
    let mut batch = batch(1..=1);
    batch.lines[0].text = "a\u{1b}[2J\nb".into();
    logs.store(rack(), batch).unwrap();
    let (line, _) = logs.read(machine(), &all()).unwrap().lines.remove(0);
    assert_eq!((&*line.facility, &*line.severity, line.app.as_deref()), ("daemon", "info", Some("sshd")));
    assert_eq!((&*line.text, line.host), ("a<U+001B>[2J b", None));
}

#[test]
fn a_rack_writes_to_no_file_but_a_machines() {
    let dir = tempfile::tempdir().unwrap();
    let logs = logs(dir.path());
    let mut batch = batch(1..=2);
    batch.lines[0].machine_uid = "../../cursors".into();
    batch.lines[1].machine_uid = String::new();
    assert_eq!(logs.store(rack(), batch).unwrap(), 2);
    let names: Vec<_> =
        fs::read_dir(dir.path().join("machines")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names, [UNKNOWN]);
}

#[test]
fn the_oldest_files_go_when_a_log_or_all_are_too_large_or_too_old() {
    let dir = tempfile::tempdir().unwrap();
    let logs = logs(dir.path());
    logs.0.limits.lock().unwrap().machine_size = "4KiB".parse().unwrap();
    for seq in 1..=100 {
        logs.store(rack(), batch(seq..=seq)).unwrap();
    }
    let own = logs.of(&machine().to_string());
    let bytes = || segments(&own).unwrap().iter().map(|it| it.bytes).sum::<u64>();
    logs.tidy().unwrap();
    assert!((2048..=4096).contains(&bytes()), "{}", bytes());
    logs.0.limits.lock().unwrap().size = "2KiB".parse().unwrap();
    logs.tidy().unwrap();
    assert!((1024..=2048).contains(&bytes()), "{}", bytes());
    assert_eq!(texts(&logs, &all()).last().unwrap(), "line 100");
    logs.0.limits.lock().unwrap().keep = "0s".parse().unwrap();
    logs.tidy().unwrap();
    assert_eq!(texts(&logs, &all()), lines([]));
    logs.store(rack(), batch(101..=101)).unwrap();
    assert_eq!(texts(&logs, &all()), lines([101]));
}

#[tokio::test]
async fn whoever_follows_gets_each_line_once_from_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let logs = logs(dir.path());
    logs.0.limits.lock().unwrap().machine_size = "4KiB".parse().unwrap();
    let position = logs.read(machine(), &all()).unwrap().position;
    let mut follow = logs.follow(machine(), position, all());
    let writer = tokio::spawn({
        let logs = logs.clone();
        async move {
            for seq in 1..=50 {
                logs.store(rack(), batch(seq..=seq)).unwrap();
                tokio::task::yield_now().await;
            }
        }
    });
    let (mut came, mut middle) = (Vec::new(), None);
    while came.len() < 50 {
        for (line, position) in follow.next().await.unwrap() {
            came.push(line.text);
            if came.len() == 25 {
                middle = Some(position);
            }
        }
    }
    writer.await.unwrap();
    assert_eq!(came, lines(1..=50));
    let middle: Position = middle.unwrap().to_string().parse().unwrap();
    let mut again = logs.follow(machine(), middle, all());
    assert_eq!(again.next().await.unwrap()[0].0.text, "line 26");
}

/// Runs `mount` in this namespace.
fn mount(arguments: &[&str], at: &Path) {
    let status = std::process::Command::new("mount").args(arguments).arg(at).status().unwrap();
    assert!(status.success(), "mount {arguments:?}: {status}");
}

#[test]
fn a_full_disk_says_what_is_lost_and_logs_are_read_until_there_is_room_again() {
    const NAME: &str =
        "logs::tests::a_full_disk_says_what_is_lost_and_logs_are_read_until_there_is_room_again";
    const INSIDE: &str = "BASALT_TEST_INSIDE_NAMESPACE";
    if std::env::var_os(INSIDE).is_none() {
        let again = std::env::current_exe().unwrap();
        let mut inside = std::process::Command::new("unshare");
        inside.args(["-r", "-m"]).arg(again).args(["--exact", NAME]).env(INSIDE, "1");
        let inside = inside.output().unwrap();
        let said = String::from_utf8_lossy(&inside.stdout) + String::from_utf8_lossy(&inside.stderr);
        assert!(inside.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path();
    mount(&["-t", "tmpfs", "-o", "size=2g", "none"], disk);
    let logs = logs(disk);
    logs.store(rack(), batch(1..=2)).unwrap();
    mount(&["-o", "remount,size=1m"], disk);
    let mut filler = fs::File::create(disk.join("filler")).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    let refused = logs.store(rack(), batch(3..=4)).unwrap_err();
    assert!(matches!(refused, LogError::Full { free: 0, .. }), "{refused:?}");
    let said = refused.to_string();
    for part in [&*disk.to_string_lossy(), "has 0 bytes left", "the oldest are lost", "make room"] {
        assert!(said.contains(part), "{said}");
    }
    // The cursors cannot be written either. Logs are still read, and nothing of them goes.
    assert!(logs.sync().is_err());
    logs.tidy().unwrap();
    assert_eq!(texts(&logs, &all()), lines(1..=2));
    mount(&["-o", "remount,size=2g"], disk);
    logs.store(rack(), batch(1..=4)).unwrap();
    assert_eq!(texts(&logs, &all()), lines(1..=4));
}
