//! Temperatures, clocks and throttling of CPUs, from sysfs.

use std::collections::BTreeMap;

use crate::root::Root;

/// Chips of hwmon whose temperatures are those of CPUs.
const CHIPS: [&str; 5] = ["coretemp", "k10temp", "zenpower", "cpu_thermal", "scpi_sensors"];
/// Thermal zones of CPUs, by the start of their type. `acpitz` is excluded, since it may be anywhere on the board.
const ZONES: [&str; 4] = ["x86_pkg_temp", "cpu", "soc", "cluster"];
/// Smallest plausible critical temperature. Firmware may report zero or a guess.
const LEAST_CRITICAL: f64 = 60.0;

/// A sensor's reading, with its own critical temperature.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Temperature {
    sensor: String,
    pub(super) celsius: f64,
    critical: Option<f64>,
}

/// A CPU that is too hot.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hot {
    pub(super) sensor: String,
    pub(super) celsius: f64,
    pub(super) limit: f64,
}

/// All temperatures of CPUs. Thermal zones are read where no chip is known.
pub(super) fn temperatures(root: &Root) -> Vec<Temperature> {
    let chips = root.names("sys/class/hwmon");
    let of_chips: Vec<Temperature> =
        chips.iter().flat_map(|chip| of_chip(root, &format!("sys/class/hwmon/{chip}"))).collect();
    if !of_chips.is_empty() {
        return of_chips;
    }
    let zones = root.names("sys/class/thermal");
    zones.iter().filter_map(|zone| of_zone(root, &format!("sys/class/thermal/{zone}"))).collect()
}

fn of_chip(root: &Root, base: &str) -> Vec<Temperature> {
    let name = root.text(format!("{base}/name")).unwrap_or_default();
    if !CHIPS.contains(&name.as_str()) {
        return Vec::new();
    }
    let files = root.names(base);
    let inputs =
        files.iter().filter_map(|file| file.strip_suffix("_input").filter(|it| it.starts_with("temp")));
    let sensor = |input: &str| root.text(format!("{base}/{input}_label")).unwrap_or_else(|| name.clone());
    // Some Ryzens add 10 to 27 degrees to Tctl, for their fans. Tdie is the real temperature.
    let mut labels = files.iter().filter(|file| file.ends_with("_label"));
    let has_die = labels.any(|file| root.text(format!("{base}/{file}")).as_deref() == Some("Tdie"));
    inputs
        .filter_map(|input| {
            let sensor = sensor(input);
            if has_die && sensor == "Tctl" {
                return None;
            }
            let celsius = milli(root, &format!("{base}/{input}_input"))?;
            Some(Temperature { sensor, celsius, critical: milli(root, &format!("{base}/{input}_crit")) })
        })
        .collect()
}

fn of_zone(root: &Root, base: &str) -> Option<Temperature> {
    let sensor = root.text(format!("{base}/type"))?;
    if !ZONES.iter().any(|zone| sensor.starts_with(zone)) {
        return None;
    }
    let trips = root.names(base);
    let critical = trips.iter().find_map(|file| {
        let trip = file.strip_suffix("_type")?;
        let is_critical = root.text(format!("{base}/{file}")).as_deref() == Some("critical");
        is_critical.then(|| milli(root, &format!("{base}/{trip}_temp"))).flatten()
    });
    let celsius = milli(root, &format!("{base}/temp"))?;
    Some(Temperature { sensor, celsius, critical })
}

/// A number of thousandths.
fn milli(root: &Root, path: &str) -> Option<f64> {
    Some(root.number::<f64>(path)? / 1000.0)
}

/// The first sensor at its limit. The sensor's critical temperature is the limit if it is lower than `limit`.
pub(super) fn hot(temperatures: &[Temperature], limit: f64) -> Option<Hot> {
    temperatures.iter().find_map(|it| {
        let critical = it.critical.filter(|critical| *critical >= LEAST_CRITICAL);
        let limit = critical.map_or(limit, |critical| critical.min(limit));
        let Temperature { sensor, celsius, .. } = it;
        (*celsius >= limit).then(|| Hot { sensor: sensor.clone(), celsius: *celsius, limit })
    })
}

/// The slowest clock of all CPUs.
pub(super) fn mhz(root: &Root) -> Option<f64> {
    let cpus = cpus(root);
    let clocks = cpus.iter().filter_map(|(_, base)| milli(root, &format!("{base}/cpufreq/scaling_cur_freq")));
    clocks.reduce(f64::min)
}

fn cpus(root: &Root) -> Vec<(usize, String)> {
    let base = "sys/devices/system/cpu";
    let names = root.names(base);
    let cpu = |name: &String| Some((name.strip_prefix("cpu")?.parse().ok()?, format!("{base}/{name}")));
    names.iter().filter_map(cpu).collect()
}

/// Number of times that CPUs were throttled because of heat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Throttles {
    pub(super) counts: BTreeMap<usize, u64>,
    /// The highest count of a CPU.
    pub(super) times: u64,
    /// The CPUs that were slowed down, for people.
    pub(super) cpus: String,
}

impl Throttles {
    /// Sums of the counters of cores and of their packages, since either may rise alone.
    pub(super) fn read(root: &Root) -> Self {
        let count = |base: &str| {
            let files = ["core_throttle_count", "package_throttle_count"];
            let counts = files.map(|file| root.number::<u64>(format!("{base}/thermal_throttle/{file}")));
            counts.into_iter().flatten().reduce(|core, package| core + package)
        };
        let counts = cpus(root).into_iter().filter_map(|(cpu, base)| Some((cpu, count(&base)?))).collect();
        Self { counts, ..Self::default() }
    }

    /// The counts since `before`. CPUs of one package count the same events, so the highest count is reported, not the sum.
    pub(super) fn since(mut self, before: &Self) -> Self {
        for (cpu, count) in &mut self.counts {
            *count = count.saturating_sub(before.counts.get(cpu).copied().unwrap_or(0));
        }
        self.counts.retain(|_, count| *count > 0);
        self.times = self.counts.values().copied().max().unwrap_or(0);
        let names: Vec<String> = self.counts.keys().take(8).map(|cpu| format!("cpu{cpu}")).collect();
        let more = self.counts.len().saturating_sub(names.len());
        self.cpus = names.join(", ");
        if more > 0 {
            self.cpus.push_str(&format!(" and {more} more"));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), files);
        let root = Root::at(dir.path());
        (dir, root)
    }

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (file, text) in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn the_critical_temperature_counts_where_it_is_lower() {
        let (_dir, root) = tree(&[
            ("sys/class/hwmon/hwmon0/name", "nvme"),
            ("sys/class/hwmon/hwmon0/temp1_input", "99000"),
            ("sys/class/hwmon/hwmon1/name", "coretemp"),
            ("sys/class/hwmon/hwmon1/temp1_label", "Package id 0"),
            ("sys/class/hwmon/hwmon1/temp1_input", "84000"),
            ("sys/class/hwmon/hwmon1/temp1_crit", "84000"),
            ("sys/class/hwmon/hwmon1/temp2_label", "Core 0"),
            ("sys/class/hwmon/hwmon1/temp2_input", "50000"),
            ("sys/class/hwmon/hwmon1/temp2_crit", "0"),
        ]);
        let found = temperatures(&root);
        assert_eq!(found.len(), 2);
        let hot = hot(&found, 95.0).unwrap();
        assert_eq!((hot.sensor.as_str(), hot.celsius, hot.limit), ("Package id 0", 84.0, 84.0));
        assert_eq!(super::hot(&found[1..], 95.0), None);
        assert!(super::hot(&found[1..], 50.0).is_some());
    }

    #[test]
    fn a_control_temperature_is_left_out_where_the_real_one_is_there() {
        let tctl = [
            ("sys/class/hwmon/hwmon0/name", "k10temp"),
            ("sys/class/hwmon/hwmon0/temp1_label", "Tctl"),
            ("sys/class/hwmon/hwmon0/temp1_input", "97000"),
        ];
        let (dir, root) = tree(&tctl);
        assert!(hot(&temperatures(&root), 95.0).is_some());
        write(
            dir.path(),
            &[
                ("sys/class/hwmon/hwmon0/temp2_label", "Tdie"),
                ("sys/class/hwmon/hwmon0/temp2_input", "70000"),
            ],
        );
        assert_eq!(hot(&temperatures(&root), 95.0), None);
    }

    #[test]
    fn thermal_zones_are_read_where_no_chip_is_known() {
        let (_dir, root) = tree(&[
            ("sys/class/thermal/thermal_zone0/type", "acpitz"),
            ("sys/class/thermal/thermal_zone0/temp", "120000"),
            ("sys/class/thermal/thermal_zone1/type", "cpu-thermal"),
            ("sys/class/thermal/thermal_zone1/temp", "91000"),
            ("sys/class/thermal/thermal_zone1/trip_point_0_type", "passive"),
            ("sys/class/thermal/thermal_zone1/trip_point_0_temp", "70000"),
            ("sys/class/thermal/thermal_zone1/trip_point_1_type", "critical"),
            ("sys/class/thermal/thermal_zone1/trip_point_1_temp", "90000"),
        ]);
        let hot = hot(&temperatures(&root), 95.0).unwrap();
        assert_eq!((hot.sensor.as_str(), hot.limit), ("cpu-thermal", 90.0));
    }

    #[test]
    fn clocks_and_throttling_are_those_of_all_cpus() {
        let base = "sys/devices/system/cpu";
        let (dir, root) = tree(&[
            (&format!("{base}/cpu0/cpufreq/scaling_cur_freq"), "3100000"),
            (&format!("{base}/cpu12/cpufreq/scaling_cur_freq"), "1200000"),
            (&format!("{base}/cpu0/thermal_throttle/core_throttle_count"), "1"),
            (&format!("{base}/cpu12/thermal_throttle/core_throttle_count"), "1"),
            (&format!("{base}/cpu12/thermal_throttle/package_throttle_count"), "2"),
            (&format!("{base}/cpufreq/none"), ""),
        ]);
        assert_eq!(mhz(&root), Some(1200.0));
        let before = Throttles::read(&root);
        assert_eq!(Throttles::read(&root).since(&before).times, 0);
        write(dir.path(), &[(&format!("{base}/cpu12/thermal_throttle/package_throttle_count"), "5")]);
        let since = Throttles::read(&root).since(&before);
        assert_eq!((since.times, since.cpus.as_str()), (3, "cpu12"));
    }
}
