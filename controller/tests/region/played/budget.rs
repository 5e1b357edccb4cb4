//! The fleet's budget holds with any number of regions.

use super::patience::{STEP, within};
use super::world::{Taken, World, deployment};
use crate::support::{Client, admin_token};
use basalt_api::values::Timestamp;
use basalt_region::driver::{Driver, Machinery};
use basalt_region::region::Region;
use basalt_region::settings::Settings;
use serde_json::{Value, json};
use std::net::SocketAddr;

/// The number of rounds after which all machines must be installed.
const ROUNDS: usize = 500;

/// Two regions, and this number of known machines with a deployment each, under this budget.
async fn installing(machines: usize, budget: &Value) -> World {
    let mut world = World::new(2, machines, Taken::AsTheyAre).await;
    world.declare("Settings", "default", &json!({ "fleet_budget": budget }), true).await;
    for n in 0..machines {
        let mut spec = deployment(&format!("m{n}"));
        spec["readiness"] = json!({"check": "installed"});
        world.declare("Deployment", &format!("d{n}"), &spec, false).await;
    }
    world.know_all().await;
    world.scan().await;
    world
}

/// Both regions work at the same time, until neither has work now.
async fn turns(world: &World) {
    let [a, b] = [0, 1].map(|seat| world.seats[seat].driver.clone());
    let all = |driver: Driver| async move { while driver.turn().await.expect("the store answers") {} };
    within(&world.url, STEP, "both regions at work", async { tokio::join!(all(a), all(b)) }).await;
}

async fn all_installed(world: &World) -> bool {
    world.machines.values().all(|m| m.hardware.system.is_some()) && world.unsettled().await.is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn never_more_machines_are_installed_than_the_budget_allows_and_all_are() {
    const MACHINES: usize = 40;
    const PER_ZONE: usize = 5;
    let budget = json!({"max_unavailable_per_zone": PER_ZONE, "max_unavailable": 8});
    let mut world = installing(MACHINES, &budget).await;
    let (mut most, mut said) = (0, String::new());
    for _ in 0..ROUNDS {
        turns(&world).await;
        let held = world
            .hand
            .run("select zone, count(*) from fleet_slot where attempt is not null group by zone")
            .await;
        let held: Vec<usize> = held.iter().map(|row| row[1].parse().expect("a number")).collect();
        assert!(held.iter().all(|zone| *zone <= PER_ZONE) && held.iter().sum::<usize>() <= 8, "{held:?}");
        let writing = world.machines.values().filter(|m| m.hardware.writing(&m.tasks)).count();
        assert!(writing <= 8, "{writing} disks are written at once");
        most = most.max(held.iter().sum::<usize>());
        if said.is_empty() && most == 8 {
            for n in 0..MACHINES {
                let object = world.find("Machine", &format!("m{n}")).await.expect("it is there");
                let waits = world.seats[0].driver.waits(&object).await.expect("waits").waits;
                if let Some(wait) = waits.iter().find(|wait| wait.cause == "FleetBudget") {
                    assert!(wait.deadline.is_some());
                    said.clone_from(&wait.message);
                }
            }
        }
        if all_installed(&world).await {
            break;
        }
        world.work_at_the_rack().await;
        world.advance(120).await;
    }
    assert!(all_installed(&world).await, "{:?}", world.unsettled().await);
    assert_eq!(most, 8, "it was used");
    assert!(said.contains("waits for the fleet budget: "), "{said:?}");
    assert_eq!(world.violations, Vec::<String>::new());
    assert_eq!(
        world.hand.run("select count(*) from fleet_slot").await[0][0],
        "0",
        "all of it was given back"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_begun_within_an_hour_and_a_minute_than_the_budget_allows() {
    const MACHINES: usize = 8;
    let budget = json!({"destructive_per_hour": 3, "power_on_per_minute": 2});
    let mut world = installing(MACHINES, &budget).await;
    let begun = world.now;
    let mut full = [0, 0];
    for _ in 0..ROUNDS {
        turns(&world).await;
        // The largest number of starts within any window before the oldest of them no longer counts.
        let most = "select coalesce(max(n), 0) from (
            select count(*) over (partition by class order by at range between interval '1 hour' - interval '1 microsecond' preceding and current row) n
            from fleet_start where class = 'destructive') w";
        let an_hour = world.hand.run(most).await[0][0].parse::<u32>().expect("a number");
        let a_minute = most.replace("1 hour", "1 minute").replace("'destructive'", "'power_on'");
        let a_minute = world.hand.run(&a_minute).await[0][0].parse::<u32>().expect("a number");
        assert!(an_hour <= 3 && a_minute <= 2, "{an_hour} within an hour, {a_minute} within a minute");
        full = [full[0] + u32::from(an_hour == 3), full[1] + u32::from(a_minute == 2)];
        if all_installed(&world).await {
            break;
        }
        world.work_at_the_rack().await;
        world.advance(120).await;
    }
    assert!(all_installed(&world).await, "{:?}", world.unsettled().await);
    assert!(full.iter().all(|times| *times > 0), "both were used up: {full:?}");
    assert!(world.now.duration_since(begun).as_secs() >= 2 * 3600, "eight installs, three an hour");
    assert_eq!(world.violations, Vec::<String>::new());
}

/// The API of another region on the same database.
async fn api_of(world: &World) -> (Region, Client, tempfile::TempDir) {
    let (dir, anywhere) = (tempfile::tempdir().expect("a directory"), SocketAddr::from(([127, 0, 0, 1], 0)));
    std::fs::write(dir.path().join("seal-key"), "07".repeat(32)).expect("the site's key");
    let settings = Settings {
        database_url: Some(world.url.clone()),
        listen: anywhere,
        rpc_listen: anywhere,
        ..Settings::new(dir.path())
    };
    let region = Box::pin(Region::start(settings)).await.expect("it starts");
    let api = Client::new(region.address(), Some(admin_token(dir.path())));
    (region, api, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn installs_begin_within_the_declared_windows_alone_and_end_when_they_end() {
    let at = |text: &str| text.parse::<Timestamp>().expect("a time");
    let mut world = World::new(2, 2, Taken::AsTheyAre).await;
    world.know_all().await;
    world.set(at("2027-01-15T08:00:00Z")).await;
    let (region, api, _dir) = api_of(&world).await;
    let refused = json!({"spec": {"fleet_budget": {"windows": {"night": {"hour": 24, "length": "5m"}}}}});
    let (status, code, errors) = api.put("/api/v1/settings/default", &refused.to_string()).await.problem();
    assert_eq!(status, 422, "{code}");
    assert!(errors[0].starts_with("/spec/fleet_budget/windows/night/hour"), "{errors:?}");
    // The window is long enough for one install to begin, and too short for it to end.
    let night = json!({"hour": 22, "length": "3m", "days": ["friday", "sunday"]});
    let budget = json!({"fleet_budget": {"max_unavailable": 1, "windows": {"night": night}}});
    api.declare("/api/v1/settings/default", &budget.to_string()).await;
    for n in 0..2 {
        let mut spec = deployment(&format!("m{n}"));
        spec["readiness"] = json!({"check": "installed"});
        api.declare(&format!("/api/v1/deployments/d{n}"), &spec.to_string()).await;
    }
    let said = async |n: usize| {
        let machine = api.get(&format!("/api/v1/machines/m{n}")).await.json();
        machine["status"]["conditions"][0]["message"].as_str().expect("words").to_owned()
    };
    let day = async |world: &mut World, from: &str, to: &str| {
        world.set(at(from)).await;
        while world.now < at(to) {
            world.scan().await;
            world.work().await;
            let left = at(to).duration_since(world.now).as_secs().unsigned_abs();
            world.advance(left.clamp(1, 60)).await;
        }
        world.machines.values().filter(|it| it.hardware.system.is_some()).count()
    };

    assert_eq!(day(&mut world, "2027-01-15T21:56:00Z", "2027-01-15T21:59:59Z").await, 0);
    for n in 0..2 {
        let said = said(n).await;
        assert!(said.contains("outside of the window night, which opens at 2027-01-15T22:00:00Z"), "{said}");
    }
    assert_eq!(world.hand.run("select count(*) from fleet_start").await[0][0], "0", "nothing was begun");
    assert_eq!(day(&mut world, "2027-01-15T22:00:00Z", "2027-01-15T22:20:00Z").await, 1, "it was finished");
    let said = [said(0).await, said(1).await].join("; ");
    assert!(said.contains("which opens at 2027-01-17T22:00:00Z"), "{said}");
    assert_eq!(day(&mut world, "2027-01-16T21:58:00Z", "2027-01-16T22:05:00Z").await, 1, "it is Saturday");
    assert_eq!(day(&mut world, "2027-01-17T21:58:00Z", "2027-01-17T22:20:00Z").await, 2);
    assert!(all_installed(&world).await, "{:?}", world.unsettled().await);
    let begun = "select detail->'record'->>'started_at' from step_record where step_key like '%/arm-install/%' order by 1";
    let begun = world.hand.run(begun).await.concat();
    assert!(begun[0].starts_with("2027-01-15T22:0") && begun[1].starts_with("2027-01-17T22:0"), "{begun:?}");
    assert_eq!(world.violations, Vec::<String>::new());
    region.stop().await;
}
