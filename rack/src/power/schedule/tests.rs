use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_secs(300);

fn bmc(number: usize) -> Bmc {
    Bmc { machine_uid: format!("m{number}"), address: format!("10.9.0.{number}"), ..Bmc::default() }
}

fn concern(bmcs: usize) -> PowerConcern {
    let reading_ms = INTERVAL.as_millis() as u64;
    PowerConcern { bmcs: (0..bmcs).map(bmc).collect(), reading_ms, ..PowerConcern::default() }
}

fn reads(power: &'static str) -> Ended {
    Ended { power, error: None, certificate: String::new(), moves: false }
}

fn fails(code: &'static str) -> Ended {
    Ended::error(code, "no")
}

/// One BMC, the time, and what its readings lead to.
struct One {
    schedule: Schedule,
    now: Instant,
}

impl One {
    fn new() -> Self {
        let now = Instant::now();
        let mut schedule = Schedule::new(PACE, now);
        schedule.follow(&concern(1), now);
        Self { schedule, now }
    }

    /// Waits for the next reading and ends it with this result. Returns the wait, and the
    /// answer of `Schedule::done`.
    fn read(&mut self, ended: &Ended) -> (Duration, Option<bool>) {
        let before = self.now;
        self.now = self.schedule.due().expect("it is read again").max(before);
        let look = self.schedule.next(self.now).expect("it is due");
        let told = self.schedule.done(&look, Some(ended), self.now);
        (self.now - before, told)
    }

    fn commanded(&mut self, verb: Verb, ended: &Ended) {
        self.schedule.commanded("m0", verb, ended, self.now);
    }
}

#[test]
fn readings_spread_evenly_over_the_interval_and_keep_their_places() {
    let began = Instant::now();
    let mut schedule = Schedule::new(PACE, began);
    schedule.follow(&concern(1000), began);
    for round in 0..3 {
        let mut tenths = [0; 10];
        for second in 0..300 {
            let now = began + INTERVAL * round + Duration::from_secs(second + 1);
            while let Some(look) = schedule.next(now) {
                tenths[second as usize / 30] += 1;
                schedule.done(&look, Some(&reads("on")), now);
            }
        }
        assert_eq!(tenths.iter().sum::<i32>(), 1000, "each once in each interval: {tenths:?}");
        assert!(tenths.iter().all(|it| (70..130).contains(it)), "{tenths:?}");
    }
}

#[test]
fn a_change_is_told_and_a_steady_bmc_once_an_hour() {
    let mut one = One::new();
    assert_eq!(one.read(&reads("on")).1, Some(false), "the first reading");
    let hour: Vec<_> = (0..12).map(|_| one.read(&reads("on"))).collect();
    assert!(hour.iter().all(|(after, _)| *after == INTERVAL), "{hour:?}");
    let told: Vec<_> = hour.iter().filter_map(|(_, told)| *told).collect();
    assert_eq!(told, [true], "and it is marked as unchanged");
    assert_eq!(hour[11].1, Some(true));
    assert_eq!(one.read(&reads("off")).1, Some(false));
}

#[test]
fn a_bmc_that_does_not_answer_is_asked_less_and_less() {
    let mut one = One::new();
    one.read(&reads("on"));
    assert_eq!(one.read(&fails("unreachable")).1, None, "one lost answer means nothing");
    let (after, told) = one.read(&fails("unreachable"));
    assert_eq!((after, told), (PACE.again, Some(false)));
    let minutes: Vec<u64> = (0..6).map(|_| one.read(&fails("unreachable")).0.as_secs() / 60).collect();
    assert_eq!(minutes, [5, 10, 20, 40, 60, 60]);
    assert_eq!(one.read(&reads("on")).1, Some(false), "it answers again");
    assert_eq!(one.read(&fails("unreachable")).1, None);
    assert_eq!(one.read(&reads("on")).1, None, "nobody was told of the failure");
}

#[test]
fn a_bmc_that_is_reset_is_read_after_minutes_and_one_that_refuses_its_reset_as_after_any_command() {
    let mut one = One::new();
    one.commanded(Verb::ResetBmc, &reads("unknown"));
    assert_eq!(one.schedule.entries["m0"].due, Some(one.now + PACE.follow));
    for code in ["privilege", "unsupported"] {
        one.commanded(Verb::ResetBmc, &fails(code));
        assert_eq!(one.schedule.entries["m0"].due, Some(one.now + PACE.confirm), "{code}");
    }
}

#[test]
fn a_password_that_is_refused_is_tried_once_an_hour_until_it_is_declared_anew() {
    let mut one = One::new();
    assert_eq!(one.read(&fails("bad_password")).1, Some(false));
    one.commanded(Verb::On, &fails("bad_password"));
    assert_eq!(one.read(&fails("bad_password")).0, PACE.longest, "a command adds no try");
    let mut tagged = concern(1);
    tagged.bmcs[0].generation += 1;
    one.schedule.follow(&tagged, one.now);
    assert_eq!(
        one.read(&fails("bad_password")).0,
        PACE.longest,
        "neither does another change of the machine"
    );
    let mut declared = concern(1);
    declared.bmcs[0].password = "another".into();
    one.schedule.follow(&declared, one.now);
    let (after, told) = one.read(&reads("on"));
    assert!(after <= Duration::from_secs(5), "{after:?}");
    assert_eq!(told, Some(false));
}

#[test]
fn a_command_is_confirmed_and_a_soft_off_is_watched_to_its_end() {
    let mut one = One::new();
    one.read(&reads("off"));
    one.commanded(Verb::On, &reads("on"));
    assert_eq!(one.read(&reads("on")), (PACE.confirm, None), "the region knows it from the command");
    assert!(one.read(&reads("on")).0 > PACE.confirm, "and then as usual");
    one.commanded(Verb::On, &reads("on"));
    assert_eq!(one.read(&reads("off")), (PACE.confirm, Some(false)), "a BMC that lied");
    one.commanded(Verb::SoftOff, &reads("on"));
    for _ in 0..3 {
        assert_eq!(one.read(&reads("on")), (PACE.confirm, None));
    }
    assert_eq!(one.read(&reads("off")), (PACE.confirm, Some(false)));
    assert!(one.read(&reads("off")).0 > PACE.confirm);
    one.commanded(Verb::SoftOff, &reads("on"));
    let begun = one.now;
    while one.read(&reads("on")).0 == PACE.confirm {}
    assert!(one.now - begun >= PACE.follow && one.now - begun <= PACE.follow + INTERVAL);
}

#[test]
fn power_that_moves_is_watched_for_minutes_and_not_for_ever() {
    let mut one = One::new();
    let moving = || Ended { moves: true, ..reads("off") };
    one.read(&moving());
    let begun = one.now;
    while one.read(&moving()).0 == PACE.confirm {}
    assert!(one.now - begun >= PACE.follow);
    assert!(one.read(&moving()).0 > PACE.confirm);
}

#[test]
fn without_an_interval_power_is_read_after_commands_alone() {
    let mut one = One::new();
    one.schedule.follow(&PowerConcern { reading_ms: 0, ..concern(1) }, one.now);
    assert_eq!(one.schedule.due(), None);
    one.commanded(Verb::On, &reads("on"));
    assert_eq!(one.read(&reads("on")).0, PACE.confirm);
    assert_eq!(one.schedule.due(), None);
    one.schedule.follow(&concern(1), one.now);
    assert!(one.read(&reads("on")).0 <= INTERVAL, "and it is turned on again");
}

#[test]
fn systems_of_one_bmc_are_read_one_after_the_other() {
    let now = Instant::now();
    let mut schedule = Schedule::new(PACE, now);
    let mut chassis = concern(3);
    for it in &mut chassis.bmcs {
        it.address = "10.9.0.9".into();
        it.system = it.machine_uid.clone();
    }
    schedule.follow(&chassis, now);
    let later = now + INTERVAL;
    let first = schedule.next(later).unwrap();
    assert!(schedule.next(later).is_none() && schedule.due().is_none());
    schedule.done(&first, Some(&reads("on")), later);
    assert!(schedule.next(later).is_some());
}

#[test]
fn a_reading_of_a_bmc_that_was_described_anew_is_told_to_nobody() {
    let mut one = One::new();
    one.now = one.schedule.due().unwrap();
    let look = one.schedule.next(one.now).unwrap();
    let mut declared = concern(1);
    declared.bmcs[0].address = "10.9.1.1".into();
    one.schedule.follow(&declared, one.now);
    assert_eq!(one.schedule.done(&look, Some(&reads("on")), one.now), None);
    assert!(one.read(&reads("off")).0 <= MINUTE, "the other BMC is read soon");
    declared.bmcs[0].address = String::new();
    one.schedule.follow(&declared, one.now);
    assert_eq!(one.schedule.due(), None, "a BMC whose address is not known yet");
    one.schedule.follow(&PowerConcern::default(), one.now);
    assert_eq!(one.schedule.due(), None, "a BMC that the rack no longer moves is left alone");
}
