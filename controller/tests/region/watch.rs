//! Watches over real HTTP: nothing is skipped, no object goes back, slow readers are cut, and watches resume.

use crate::accounts::{issue, pools};
use crate::support::{Lab, lab, lab_with};
use basalt_api::client::{Client, ClientConfig, ListOptions, Watch, WatchOptions};
use basalt_api::watch::{CutReason, Event, What};
use basalt_api::{Kind, Object, ProblemCode};
use basalt_db::testing::churn::{Churn, Churned, Dice, naive_cursor, zones};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const WRITERS: u64 = 32;
const READERS: u64 = 12;
const OBJECTS: u64 = 300;
const TRANSACTIONS: u64 = 40;

pub(crate) fn zone() -> &'static Kind {
    Kind::find("Zone").unwrap()
}

fn client(lab: &Lab) -> Client {
    client_with(lab, lab.api.token.clone())
}

pub(crate) fn client_with(lab: &Lab, token: Option<String>) -> Client {
    let endpoints = vec![format!("http://{}", lab.region.address())];
    Client::new(&ClientConfig { endpoints, token, ..ClientConfig::default() }).unwrap()
}

/// A client that is an operator of the pool `blue`, and nothing else. There is also a pool `green`.
pub(crate) async fn blue_client(lab: &Lab) -> Client {
    lab.api.declare("/api/v1/pools/green", "{}").await;
    let token = issue(lab, "blue", r#"{"role":"blue"}"#).await;
    client_with(lab, Some(token))
}

fn machine() -> &'static Kind {
    Kind::find("Machine").unwrap()
}

async fn move_to(lab: &Lab, number: u64, pool: &str) {
    let spec = format!(r#"{{"pool":"{pool}","boot_macs":["52:54:00:00:07:{number:02x}"]}}"#);
    lab.api.declare(&format!("/api/v1/machines/m{number}"), &spec).await;
}

pub(crate) fn of_zones(since: Option<String>) -> WatchOptions {
    WatchOptions { kinds: vec![zone()], since, ..WatchOptions::default() }
}

/// The object without the count of machines, which GET computes: watches do not report each change of it.
fn uncounted(mut object: Object) -> Object {
    if let Some(status) = object.status.as_object_mut() {
        status.remove("machines");
    }
    object
}

/// The next event that is no bookmark.
pub(crate) async fn told(watch: &mut Watch) -> Event {
    loop {
        let event =
            tokio::time::timeout(Duration::from_secs(20), watch.next()).await.expect("in time").unwrap();
        if event.what != What::Bookmark {
            return event;
        }
    }
}

/// Waits for the follower: before that, the position of a list may be behind earlier writes, and a watch repeats them.
async fn settled(lab: &Lab) {
    let wanted = lab.region.store().last_position().await.unwrap();
    while lab.region.follower().position() < wanted {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The event in a short form, with the object's name.
pub(crate) fn short(event: &Event) -> String {
    match &event.what {
        What::Put(object) => format!("put {} {}", object.metadata.name, object.metadata.generation),
        What::Delete(gone) => format!("delete {}", gone.metadata.name),
        What::Bookmark => "bookmark".to_owned(),
        What::Cut(cut) => format!("cut {}", cut.reason.as_str()),
    }
}

/// The number in a position.
fn number(position: &str) -> i64 {
    position.rsplit_once(':').unwrap().1.parse().unwrap()
}

/// The state of a reader after the zone `end` has come, and its counters.
#[derive(Default)]
struct Read {
    state: BTreeMap<String, Object>,
    reconnected: u64,
    cut: u64,
    events: u64,
}

/// Lists, watches, breaks off at random, and resumes at the last position.
async fn read(client: Client, seed: u64) -> Read {
    let mut dice = Dice::new(seed);
    tokio::time::sleep(Duration::from_millis(dice.below(1500))).await;
    let (objects, since) = client.list_to_watch(zone(), &BTreeMap::new()).await.unwrap();
    let mut read = Read::default();
    let mut last = number(since.as_deref().unwrap());
    let mut newest = BTreeMap::new();
    for object in objects {
        newest.insert(object.metadata.uid, object.metadata.generation);
        read.state.insert(object.metadata.name.to_string(), object);
    }
    let mut watch = client.watch(of_zones(since));
    // Some readers stay connected: one that resumes reads a part of the log again, which could hide a skipped change.
    let stays = seed.is_multiple_of(3);
    let mut left = if stays { u64::MAX } else { dice.below(40) };
    while !read.state.contains_key("end") {
        if left == 0 {
            read.reconnected += 1;
            let since = watch.position().map(str::to_owned);
            drop(watch);
            tokio::time::sleep(Duration::from_millis(dice.below(100))).await;
            watch = client.watch(of_zones(since));
            left = 1 + dice.below(40);
        }
        left -= 1;
        let event =
            tokio::time::timeout(Duration::from_secs(60), watch.next()).await.expect("in time").unwrap();
        let position = number(&event.position);
        assert!(position >= last, "{} came after {last}", event.position);
        last = position;
        read.events += 1;
        match event.what {
            What::Put(object) => {
                let generation = object.metadata.generation;
                let before = newest.insert(object.metadata.uid, generation);
                assert!(before.is_none_or(|b| b <= generation), "{object:?} after generation {before:?}");
                let name = object.metadata.name.to_string();
                read.state.insert(name, *object);
            }
            What::Delete(gone) => {
                let name = gone.metadata.name.as_str();
                if read.state.get(name).is_some_and(|object| object.metadata.uid == gone.metadata.uid) {
                    read.state.remove(name);
                }
            }
            What::Cut(_) => read.cut += 1,
            What::Bookmark => {}
        }
    }
    read
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_that_reconnect_at_random_end_with_what_the_store_holds_and_never_go_back() {
    let lab = lab().await;
    let client = client(&lab);
    for object in 0..OBJECTS / 2 {
        lab.api.declare(&format!("/api/v1/zones/zone-{object}"), "{}").await;
    }
    let readers: Vec<_> = (1..=READERS).map(|seed| tokio::spawn(read(client.clone(), seed))).collect();
    let done = Arc::new(AtomicBool::new(false));
    let finished = done.clone();
    let naive = tokio::spawn(naive_cursor(lab.url.clone(), move || finished.load(Ordering::Acquire)));
    let churn =
        Churn { url: lab.url.clone(), objects: OBJECTS, transactions: TRANSACTIONS, whole_lives: true };
    let writers: Vec<_> = (1..=WRITERS).map(|seed| tokio::spawn(churn.clone().write(seed))).collect();
    let mut churned = Churned::default();
    for writer in writers {
        let one = writer.await.expect("a writer");
        churned.committed += one.committed;
        churned.rolled_back += one.rolled_back;
    }
    done.store(true, Ordering::Release);
    let (_, naive) = naive.await.expect("the naive cursor");
    let held = zones(&lab.url).await;
    let wrong = held.iter().filter(|(name, zone)| naive.get(*name) != Some(zone)).count();

    lab.api.declare("/api/v1/zones/end", "{}").await;
    let (mut reconnected, mut cut, mut events) = (0, 0, 0);
    let mut ends = Vec::new();
    for reader in readers {
        let read = reader.await.expect("a reader");
        reconnected += read.reconnected;
        cut += read.cut;
        events += read.events;
        ends.push(read.state);
    }
    eprintln!(
        "{} transactions of {WRITERS} writers committed, {} rolled back; {READERS} readers read {events} events, broke off and \
         resumed {reconnected} times, were cut {cut} times; a sequence cursor is wrong about {wrong} of {} zones",
        churned.committed,
        churned.rolled_back,
        held.len()
    );
    assert!(churned.rolled_back > 0 && reconnected > 0, "this test does not try what it should");
    assert!(wrong > 0, "this test would not notice a reader that skips");
    let store: BTreeMap<_, _> = client
        .list_all(zone(), &ListOptions::default())
        .await
        .unwrap()
        .into_iter()
        .map(|o| (o.metadata.name.to_string(), uncounted(o)))
        .collect();
    for (reader, end) in ends.iter().enumerate() {
        assert_eq!(end.keys().collect::<Vec<_>>(), store.keys().collect::<Vec<_>>(), "reader {reader}");
        for (name, object) in &store {
            assert_eq!(uncounted(end[name].clone()), *object, "reader {reader}");
        }
    }
}

#[tokio::test]
async fn a_watch_tells_puts_deletes_and_statuses_and_says_where_it_is() {
    let lab = lab_with(|settings| settings.watch_bookmark = Duration::from_millis(50)).await;
    let client = client(&lab);
    lab.api.declare("/api/v1/zones/before", "{}").await;
    settled(&lab).await;
    let (_, since) = client.list_to_watch(zone(), &BTreeMap::new()).await.unwrap();
    let mut watch = client.watch(of_zones(since.clone()));
    lab.api.declare("/api/v1/zones/a", "{\n \"description\":\r\n \"one\" }").await;
    lab.api.declare("/api/v1/pools/other-kind", "{}").await;
    let put = told(&mut watch).await;
    assert_eq!(short(&put), "put a 1");
    let What::Put(object) = &put.what else { panic!("{put:?}") };
    let read = uncounted(client.get(zone(), "a").await.unwrap());
    assert_eq!(**object, read, "the whole object, as GET gives it");
    lab.api.declare("/api/v1/zones/a", r#"{"description":"two"}"#).await;
    assert_eq!(short(&told(&mut watch).await), "put a 2");
    assert_eq!(lab.api.delete("/api/v1/zones/a").await.status, 204);
    let gone = told(&mut watch).await;
    assert_eq!(short(&gone), "delete a");
    lab.api.declare("/api/v1/pools/nothing-for-this-watch", "{}").await;
    loop {
        let event = watch.next().await.unwrap();
        assert_eq!(event.what, What::Bookmark);
        if number(&event.position) > number(&gone.position) {
            break;
        }
    }
    // From the start again, several changes of an object come as one.
    let mut again = client.watch(of_zones(since));
    assert_eq!(short(&told(&mut again).await), "delete a");
}

#[tokio::test]
async fn an_object_that_loses_a_label_is_deleted_for_those_who_watch_by_it() {
    let lab = lab().await;
    let client = client(&lab);
    let put = |name: &str, env: &str| {
        let body = format!(r#"{{"metadata":{{"labels":{{"env":"{env}"}}}},"spec":{{}}}}"#);
        let (api, path) = (lab.api.clone(), format!("/api/v1/zones/{name}"));
        async move { assert!(api.put(&path, &body).await.status.is_success()) }
    };
    put("a", "lab").await;
    settled(&lab).await;
    let labels = BTreeMap::from([("env".to_owned(), "lab".to_owned())]);
    let (listed, since) = client.list_to_watch(zone(), &labels).await.unwrap();
    assert_eq!(listed.len(), 1);
    let mut watch = client.watch(WatchOptions { labels, ..of_zones(since.clone()) });
    assert_eq!(watch.next().await.unwrap().what, What::Bookmark);
    put("a", "field").await;
    assert_eq!(short(&told(&mut watch).await), "delete a");
    put("a", "field-2").await;
    put("a", "lab").await;
    assert_eq!(short(&told(&mut watch).await), "put a 1");
}

#[tokio::test]
async fn positions_that_cannot_be_resumed_from_are_refused() {
    let lab = lab().await;
    for zone in ["a", "b", "c"] {
        lab.api.declare(&format!("/api/v1/zones/{zone}"), "{}").await;
    }
    let life = lab.region.store().incarnation();
    let first = format!("/api/v1/watch?since={life}:1");
    lab.region.store().compact_changes(Duration::ZERO, 0).await.unwrap();
    assert_eq!(lab.api.get(&first).await.problem().1, "compacted");
    let other_life = "/api/v1/watch?since=00000000-0000-0000-0000-000000000000:1";
    let (status, code, _) = lab.api.get(other_life).await.problem();
    assert_eq!((status, code.as_str()), (410, "compacted"));
    for wrong in [
        format!("since={life}:999999"),
        "since=7".to_owned(),
        "kinds=nonsense".to_owned(),
        "kinds=,".to_owned(),
        "sincs=1".to_owned(),
        "labels=x".to_owned(),
    ] {
        let answer = lab.api.get(&format!("/api/v1/watch?{wrong}")).await;
        assert!([404, 422].contains(&answer.status.as_u16()), "{wrong}: {answer:?}");
    }
    let error = client(&lab).watch(of_zones(Some(format!("{life}:1")))).next().await.unwrap_err();
    assert_eq!(error.code(), Some(ProblemCode::Compacted));
}

/// The number of readers that were cut because they were slow.
async fn slow_cuts(lab: &Lab) -> u64 {
    let metrics = lab.api.get("/metrics").await;
    let is_count = |line: &&str| line.starts_with("basalt_watch_cuts_total{reason=\"slow\"}");
    metrics.text().lines().find(is_count).unwrap().rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[tokio::test]
async fn a_reader_that_stops_reading_is_cut_and_can_resume_where_it_stopped() {
    let lab = lab_with(|settings| settings.watch_buffer = 1 << 20).await;
    let client = client(&lab);
    let (_, since) = client.list_to_watch(zone(), &BTreeMap::new()).await.unwrap();
    let since = since.unwrap();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stuck = socket.connect(lab.region.address()).await.unwrap();
    let token = lab.api.token.clone().unwrap();
    let request =
        format!("GET /api/v1/watch?since={since} HTTP/1.0\r\nauthorization: Bearer {token}\r\n\r\n");
    stuck.write_all(request.as_bytes()).await.unwrap();
    let mut first = [0; 1];
    stuck.read_exact(&mut first).await.unwrap();

    let mut quick = client.watch(WatchOptions { kinds: Vec::new(), ..of_zones(Some(since)) });
    let mut last = String::new();
    let spec = format!(r#"{{"serial":"s","script":"{}"}}"#, "x".repeat(100_000));
    let mut written = 0;
    while slow_cuts(&lab).await == 0 {
        assert!(written < 400, "it is not cut");
        for _ in 0..5 {
            written += 1;
            last = format!("sample-{written}");
            lab.api.declare(&format!("/api/v1/samples/{last}"), &spec).await;
        }
        while short(&told(&mut quick).await) != format!("put {last} 1") {}
    }
    assert_eq!(quick.resumed(), 0, "who reads is not cut");
    // The events in the socket arrive, and then the end, with the position for a new watch.
    let mut rest = String::new();
    tokio::time::timeout(Duration::from_secs(30), stuck.read_to_string(&mut rest))
        .await
        .expect("it ends")
        .unwrap();
    let end = rest.split("\n\n").filter(|event| event.contains("event: cut")).last().expect("a cut");
    assert!(end.contains(r#""reason":"slow""#), "{end}");
    let position = end.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let seen = rest.matches("event: put").count();
    assert!(seen < written, "it has not seen everything");
    let mut resumed =
        client.watch(WatchOptions { since: Some(position.to_owned()), ..WatchOptions::default() });
    let mut more = 0;
    loop {
        more += 1;
        if short(&told(&mut resumed).await) == format!("put {last} 1") {
            break;
        }
    }
    assert_eq!(seen + more, written, "each zone was told once, before the cut or after it");
    eprintln!("cut after {seen} of {written} events; {more} after resuming");
}

#[tokio::test]
async fn a_region_that_stops_tells_its_watchers_where_to_go_on() {
    let lab = lab().await;
    let mut watch = client(&lab).watch(of_zones(None));
    let first = watch.next().await.unwrap();
    assert_eq!(first.what, What::Bookmark);
    let stopping = tokio::spawn(lab.region.stop());
    let What::Cut(cut) = told(&mut watch).await.what else { panic!("it goes on") };
    assert_eq!(cut.reason, CutReason::Stopping);
    stopping.await.unwrap();
}

/// The kinds and names of all events until the zone `end` comes.
async fn told_until(watch: &mut Watch, end: &str) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let event = told(watch).await;
        let kind = match &event.what {
            What::Put(object) => object.kind.clone(),
            What::Delete(gone) => gone.kind.clone(),
            _ => String::new(),
        };
        if short(&event) == format!("put {end} 1") {
            return all;
        }
        let words = short(&event);
        let (what, name) = words.split_once(' ').unwrap_or((&words, ""));
        all.push(format!("{what} {kind} {}", name.split(' ').next().unwrap_or_default()));
    }
}

#[tokio::test]
async fn an_object_that_leaves_a_viewer_s_pools_is_deleted_for_it_and_others_are_never_told() {
    let lab = lab().await;
    pools(&lab.api).await;
    move_to(&lab, 1, "red").await;
    let blue = blue_client(&lab).await;
    settled(&lab).await;
    let (listed, since) = blue.list_to_watch(machine(), &BTreeMap::new()).await.unwrap();
    assert_eq!(listed.iter().map(|m| m.metadata.name.as_str()).collect::<Vec<_>>(), ["blue"]);
    let mut watch = blue.watch(WatchOptions { since: since.clone(), ..WatchOptions::default() });
    let moved = |pool: &str| format!(r#"{{"pool":"{pool}","boot_macs":["52:54:00:00:00:00"]}}"#);
    let zone = async |name: &str| lab.api.declare(&format!("/api/v1/zones/{name}"), "{}").await;

    lab.api.declare("/api/v1/machines/blue", &moved("red")).await;
    zone("one").await;
    assert_eq!(told_until(&mut watch, "one").await, ["delete Machine blue", "delete Deployment blue"]);
    // Events of objects outside of the pool are not sent: neither that they exist, nor that they leave.
    lab.api
        .declare(
            "/api/v1/machines/blue",
            r#"{"pool":"red","boot_macs":["52:54:00:00:00:00"],"description":"x"}"#,
        )
        .await;
    move_to(&lab, 1, "green").await;
    lab.api.declare("/api/v1/users/alice", "{}").await;
    let m1 = client(&lab).get(machine(), "m1").await.unwrap().metadata.uid;
    assert_eq!(lab.api.delete("/api/v1/machines/m1").await.status, 202);
    lab.region.store().finalise(m1).await.unwrap();
    zone("two").await;
    assert_eq!(told_until(&mut watch, "two").await, Vec::<String>::new());
    lab.api.declare("/api/v1/machines/blue", &moved("blue")).await;
    move_to(&lab, 2, "blue").await;
    zone("three").await;
    let entered = ["put Machine blue", "put Deployment blue", "put Machine m2"];
    assert_eq!(told_until(&mut watch, "three").await, entered);
    let m2 = client(&lab).get(machine(), "m2").await.unwrap().metadata.uid;
    assert_eq!(lab.api.delete("/api/v1/machines/m2").await.status, 202);
    lab.region.store().finalise(m2).await.unwrap();
    zone("four").await;
    let left = told_until(&mut watch, "four").await;
    assert_eq!(left.last().map(String::as_str), Some("delete Machine m2"), "{left:?}");

    // A reader that resumes gets the same events about the objects that it knew.
    lab.api.declare("/api/v1/machines/blue", &moved("red")).await;
    zone("five").await;
    settled(&lab).await;
    let mut again = blue.watch(WatchOptions { since, ..WatchOptions::default() });
    let mut caught_up = told_until(&mut again, "five").await;
    caught_up.retain(|event| !event.contains("Zone"));
    assert_eq!(caught_up, ["delete Machine blue", "delete Deployment blue", "delete Machine m2"]);
}

#[tokio::test]
async fn a_watch_ends_when_its_token_s_rights_change_and_the_list_is_read_again() {
    let lab = lab().await;
    pools(&lab.api).await;
    let blue = blue_client(&lab).await;
    settled(&lab).await;
    let (_, since) = blue.list_to_watch(machine(), &BTreeMap::new()).await.unwrap();
    let mut watch = blue.watch(WatchOptions { since, ..WatchOptions::default() });
    assert_eq!(watch.next().await.unwrap().what, What::Bookmark);
    // A rename of the pool changes machines and the role in one transaction. No event of it may be sent under the former rights.
    let renamed = lab.api.send("POST", "/api/v1/pools/blue/rename", &[], r#"{"name":"azure"}"#).await;
    assert_eq!(renamed.status, 200, "{renamed:?}");
    assert_eq!(short(&told(&mut watch).await), "cut rights");
    assert_eq!(watch.next().await.unwrap_err().code(), Some(ProblemCode::Compacted));
    let (listed, since) = blue.list_to_watch(machine(), &BTreeMap::new()).await.unwrap();
    assert_eq!(listed.len(), 1, "the machine is of the pool that the role is for");

    let mut watch = blue.watch(WatchOptions { since, ..WatchOptions::default() });
    assert_eq!(watch.next().await.unwrap().what, What::Bookmark);
    assert_eq!(lab.api.send("POST", "/api/v1/api_tokens/blue/revoke", &[], "").await.status, 204);
    assert_eq!(short(&told(&mut watch).await), "cut rights");
    assert_eq!(watch.next().await.unwrap_err().code(), Some(ProblemCode::Unauthenticated));
}

/// Machines that move between pools, and readers of one pool that break off at random.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_of_a_pool_end_with_what_it_holds_however_machines_wander() {
    const MACHINES: u64 = 20;
    let lab = Arc::new(lab().await);
    pools(&lab.api).await;
    for number in 0..MACHINES {
        move_to(&lab, number, "red").await;
    }
    let blue = blue_client(&lab).await;
    settled(&lab).await;
    let read = async |client: Client, seed: u64| {
        let mut dice = Dice::new(seed);
        let (objects, since) = client.list_to_watch(machine(), &BTreeMap::new()).await.unwrap();
        let mut state: BTreeMap<_, _> =
            objects.into_iter().map(|o| (o.metadata.name.to_string(), o)).collect();
        let options = |since| WatchOptions { kinds: vec![machine()], since, ..WatchOptions::default() };
        let mut watch = client.watch(options(since));
        let mut left = dice.below(8);
        while !state.contains_key("m99") {
            // One reader stays connected: one that resumes reads a part of the log again, which could hide a missed change. One resumes its
            // watch, and one with a list, whose position may be ahead of the hub.
            match (left, seed) {
                (0, 1) => watch = client.watch(options(watch.position().map(str::to_owned))),
                (0, 3) => {
                    let (objects, since) = client.list_to_watch(machine(), &BTreeMap::new()).await.unwrap();
                    state = objects.into_iter().map(|o| (o.metadata.name.to_string(), o)).collect();
                    watch = client.watch(options(since));
                }
                _ => {}
            }
            left = left.checked_sub(1).unwrap_or_else(|| dice.below(8));
            match watch.next().await.unwrap().what {
                What::Put(object) => drop(state.insert(object.metadata.name.to_string(), *object)),
                What::Delete(gone) => drop(state.remove(gone.metadata.name.as_str())),
                What::Bookmark | What::Cut(_) => {}
            }
        }
        state
    };
    let writers = (1..=6).map(|seed| {
        let lab = lab.clone();
        tokio::spawn(async move {
            let mut dice = Dice::new(seed);
            for _ in 0..30 {
                let pool = ["blue", "red", "green"][usize::try_from(dice.below(3)).unwrap()];
                move_to(&lab, dice.below(MACHINES), pool).await;
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let written = async {
        for writer in writers {
            writer.await.expect("a writer");
        }
        move_to(&lab, 99, "blue").await;
    };
    let (one, two, three, ()) =
        tokio::join!(read(blue.clone(), 1), read(blue.clone(), 2), read(blue.clone(), 3), written);
    let held = blue.list_all(machine(), &ListOptions::default()).await.unwrap();
    let held: BTreeMap<_, _> = held.into_iter().map(|o| (o.metadata.name.to_string(), o)).collect();
    for state in [one, two, three] {
        assert_eq!(state, held);
    }
}

#[tokio::test]
async fn a_token_of_a_moment_ago_watches_from_its_first_moment() {
    let lab = lab().await;
    pools(&lab.api).await;
    for round in 0..10 {
        let token = issue(&lab, "fresh", r#"{"role":"blue"}"#).await;
        let mut watch = client_with(&lab, Some(token)).watch(of_zones(None));
        let first = tokio::time::timeout(Duration::from_secs(20), watch.next()).await.expect("in time");
        assert_eq!(first.expect("it begins").what, What::Bookmark);
        lab.api.declare(&format!("/api/v1/zones/z{round}"), "{}").await;
        assert!(matches!(told(&mut watch).await.what, What::Put(_)));
    }
}
