//! CPU test: all CPUs compute known results, while temperature, throttling and machine checks are monitored.

mod machine_checks;
mod sensors;
mod work;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use basalt_api::agent::Verdict;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::parameters::{Parameter, Parameters, Takes};
use super::results::Results;
use super::{Finding, figure, tell};
use crate::root::Root;
use machine_checks::Checks;
use sensors::{Hot, Throttles};
use work::{WORKS, Work, Wrong};

/// Interval of sensor readings. Without a heat sink, a CPU reaches its limit within seconds.
const WATCH: Duration = Duration::from_millis(500);
/// Time between two lines of progress.
const TELL: Duration = Duration::from_secs(10);

pub(super) const PARAMETERS: [Parameter; 2] = [
    Parameter {
        name: "seconds",
        takes: Takes::Number { default: 60, range: 1..=604_800 },
        meaning: "how long the CPUs are busy",
    },
    Parameter {
        name: "celsius",
        takes: Takes::Number { default: 95, range: 30..=150 },
        meaning: "a CPU as hot as this fails, and the test stops; the critical temperature of the sensor counts where it is lower",
    },
];

pub(super) fn run(root: &Root, parameters: &Parameters, results: &mut Results) -> Result<(), String> {
    let limit = figure(parameters.number("celsius"));
    let time = Duration::from_secs(parameters.number("seconds"));
    for finding in burn(root, &allowed(), &WORKS, time, limit) {
        results.add(finding);
    }
    Ok(())
}

/// The CPUs that this process may use, by the kernel's numbers.
fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// The results of monitoring.
#[derive(Debug, Default)]
struct Watched {
    seconds: f64,
    celsius_max: Option<f64>,
    hot: Option<Hot>,
    mhz_min: Option<f64>,
    throttles: Throttles,
    checks: Checks,
}

/// The results of one CPU.
#[derive(Debug, Default)]
struct Computed {
    cpu: usize,
    rounds: u64,
    wrong: Option<Wrong>,
}

/// Keeps the CPUs busy until the time is up or a CPU is too hot.
fn burn(root: &Root, cpus: &[usize], works: &[Work], time: Duration, limit: f64) -> Vec<Finding> {
    tell(&format!("cpu: {} CPUs are busy for {} s", cpus.len(), time.as_secs()));
    let stop = AtomicBool::new(false);
    let stop = &stop;
    let (watched, computed) = std::thread::scope(|scope| {
        let threads: Vec<_> =
            cpus.iter().map(|cpu| scope.spawn(move || compute(*cpu, works, stop))).collect();
        let watched = watch(root, time, limit);
        stop.store(true, Ordering::Relaxed);
        let computed: Vec<Computed> =
            threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect();
        (watched, computed)
    });
    judge(&watched, &computed)
}

/// Computes on one CPU until it is stopped. The first wrong result is kept.
fn compute(cpu: usize, works: &[Work], stop: &AtomicBool) -> Computed {
    let mut own = CpuSet::new();
    own.set(cpu);
    // If the CPU went offline in the meantime, the thread is not bound and runs on other CPUs.
    if let Err(error) = sched_setaffinity(None, &own) {
        tell(&format!("cpu{cpu}: the thread cannot be bound to it: {error}"));
    }
    let mut computed = Computed { cpu, ..Computed::default() };
    while !stop.load(Ordering::Relaxed) {
        let wrong = works.iter().find_map(|work| work.check(cpu));
        computed.rounds += 1;
        computed.wrong = computed.wrong.or(wrong);
    }
    computed
}

/// Monitors sensors and counters until the time is up or a CPU is too hot.
fn watch(root: &Root, time: Duration, limit: f64) -> Watched {
    let began = Instant::now();
    let (throttles, checks) = (Throttles::read(root), Checks::read(root));
    let mut watched = Watched::default();
    let mut told = Instant::now();
    loop {
        let temperatures = sensors::temperatures(root);
        let hottest = temperatures
            .iter()
            .map(|it| it.celsius)
            .fold(None, |max: Option<f64>, celsius| Some(max.map_or(celsius, |max| max.max(celsius))));
        watched.celsius_max = hottest.into_iter().chain(watched.celsius_max).reduce(f64::max);
        watched.hot = sensors::hot(&temperatures, limit);
        let left = time.saturating_sub(began.elapsed());
        if watched.hot.is_some() || left.is_zero() {
            break;
        }
        std::thread::sleep(WATCH.min(left));
        // The clock is read under load: an idle CPU reduces its clock.
        watched.mhz_min = sensors::mhz(root).into_iter().chain(watched.mhz_min).reduce(f64::min);
        if told.elapsed() >= TELL {
            told = Instant::now();
            let celsius = hottest.map_or_else(|| "no sensor".to_owned(), |it| format!("{it:.0} °C"));
            tell(&format!("cpu: {} s, {celsius}", began.elapsed().as_secs()));
        }
    }
    watched.seconds = began.elapsed().as_secs_f64();
    watched.throttles = Throttles::read(root).since(&throttles);
    watched.checks = Checks::read(root).since(&checks);
    watched
}

/// The row of the whole machine, and one for each CPU that is faulty.
fn judge(watched: &Watched, computed: &[Computed]) -> Vec<Finding> {
    let mut machine = Finding::at(None);
    let rounds: u64 = computed.iter().map(|it| it.rounds).sum();
    machine.figure("rounds", figure(rounds));
    machine.figure("seconds", watched.seconds);
    if let Some(celsius) = watched.celsius_max {
        machine.figure("celsius_max", celsius);
    }
    if let Some(mhz) = watched.mhz_min {
        machine.figure("mhz_min", mhz);
    }
    if let Some(Hot { sensor, celsius, limit }) = &watched.hot {
        machine.add(
            Verdict::Failed,
            format!("{sensor} reached {celsius:.0} °C, and {limit:.0} °C is the limit: look at fans and heat sinks; the test was stopped after {:.0} s", watched.seconds),
        );
    }
    if watched.throttles.times > 0 {
        machine.figure("throttles", figure(watched.throttles.times));
        let Throttles { times, cpus, .. } = &watched.throttles;
        machine.add(
            Verdict::Degraded,
            format!("the machine slowed CPUs down {times} times because of heat or power ({cpus})"),
        );
    }
    if watched.checks.corrected > 0 {
        machine.add(
            Verdict::Degraded,
            format!("{} machine checks for corrected errors", watched.checks.corrected),
        );
    }
    let mut findings: Vec<Finding> = Vec::new();
    for Computed { cpu, wrong, .. } in computed {
        let checks = watched.checks.exceptions.get(cpu).copied().unwrap_or(0);
        if wrong.is_none() && checks == 0 {
            continue;
        }
        let mut finding = Finding::at(Some(&format!("cpu{cpu}")));
        if let Some(wrong) = wrong {
            finding.add(Verdict::Failed, wrong.to_string());
        }
        if checks > 0 {
            finding.add(Verdict::Failed, format!("{checks} machine check exceptions"));
        }
        findings.push(finding);
    }
    if computed.iter().any(|it| it.rounds == 0) {
        machine.add(Verdict::Degraded, "not every CPU finished a round: give the test more seconds");
    } else if findings.is_empty() {
        let cpus = computed.len();
        machine.add(Verdict::Passed, format!("{cpus} CPUs computed {rounds} rounds as they should"));
    } else {
        machine.add(Verdict::Failed, format!("{} of {} CPUs are faulty", findings.len(), computed.len()));
    }
    if watched.celsius_max.is_none() {
        machine.add(Verdict::Passed, "no temperature sensor of a CPU is known to the kernel");
    }
    findings.insert(0, machine);
    findings
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_cpu_that_computes_wrong_is_named() {
        let liar = Work { name: "sums", run: |cpu| if cpu == 1 { 5 } else { 4 }, expected: 4 };
        let root = Root::at("/no/such/tree");
        let rows =
            burn(&root, &allowed()[..2.min(allowed().len())], &[liar], Duration::from_millis(50), 95.0);
        let rows: Vec<_> = rows.into_iter().map(|finding| finding.row).collect();
        assert_eq!((rows[0].device.as_deref(), rows[0].verdict), (None, Verdict::Failed));
        assert_eq!((rows[1].device.as_deref(), rows[1].verdict), (Some("cpu1"), Verdict::Failed));
        assert_eq!(rows[1].message, "sums came out as 0x5, and 0x4 is right");
        assert_eq!(rows.len(), 2);
        assert!(rows[0].figures["rounds"] >= 2.0);
    }

    #[test]
    fn a_hot_cpu_stops_the_test_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let chip = dir.path().join("sys/class/hwmon/hwmon0");
        fs::create_dir_all(&chip).unwrap();
        for (file, text) in [("name", "coretemp"), ("temp1_input", "97000"), ("temp1_label", "Package id 0")]
        {
            fs::write(chip.join(file), text).unwrap();
        }
        let began = Instant::now();
        let root = Root::at(dir.path());
        let rows = burn(&root, &allowed(), &WORKS, Duration::from_secs(600), 95.0);
        assert!(began.elapsed() < Duration::from_secs(60));
        let row = &rows[0].row;
        assert_eq!((row.verdict, row.figures["celsius_max"]), (Verdict::Failed, 97.0));
        assert!(
            row.message.starts_with("Package id 0 reached 97 °C, and 95 °C is the limit"),
            "{}",
            row.message
        );
    }

    fn sound() -> Vec<Computed> {
        vec![Computed { cpu: 0, rounds: 3, wrong: None }, Computed { cpu: 12, rounds: 2, wrong: None }]
    }

    #[test]
    fn throttling_degrades_and_a_machine_check_fails() {
        let rows = judge(&Watched::default(), &sound());
        assert_eq!((rows.len(), rows[0].row.verdict), (1, Verdict::Passed));
        let throttles = Throttles { times: 4, cpus: "cpu12".to_owned(), ..Throttles::default() };
        let rows = judge(&Watched { throttles, ..Watched::default() }, &sound());
        assert_eq!((rows.len(), rows[0].row.verdict), (1, Verdict::Degraded));
        let checks = Checks { exceptions: [(12, 1)].into(), corrected: 0 };
        let rows = judge(&Watched { checks, ..Watched::default() }, &sound());
        assert_eq!(rows[1].row.device.as_deref(), Some("cpu12"));
        assert_eq!((rows[0].row.verdict, rows[1].row.verdict), (Verdict::Failed, Verdict::Failed));
        let checks = Checks { exceptions: [].into(), corrected: 2 };
        let rows = judge(&Watched { checks, ..Watched::default() }, &sound());
        assert_eq!((rows.len(), rows[0].row.verdict), (1, Verdict::Degraded));
    }

    #[test]
    fn a_cpu_that_did_not_finish_a_round_does_not_pass() {
        let rows = judge(&Watched::default(), &[Computed::default()]);
        assert_eq!(rows[0].row.verdict, Verdict::Degraded);
    }
}
