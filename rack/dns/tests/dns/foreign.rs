//! Random zones, asked of BIND as well.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hickory_proto::op::Message;

use crate::support::{query, reply, zone, zones};

/// No answer takes longer, on a busy host either.
const PATIENCE: Duration = Duration::from_secs(20);
const QUESTIONS: u32 = 4000;
const ORIGINS: [&str; 8] = ["s.", "t.", "u.", "v.", "w.", "x.", "y.", "z."];
const TYPES: [&str; 7] = ["A", "AAAA", "TXT", "MX", "NS", "CNAME", "SOA"];

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).unwrap()).unwrap()
    }

    fn name(&mut self, labels: &[&str], depth: usize, origin: &str) -> String {
        (0..depth).map(|_| format!("{}.", labels[self.below(labels.len())])).collect::<String>() + origin
    }

    /// Lines of a zone. Aliases stay in the zone or leave all of them: BIND does not follow them from one zone into another.
    fn zone(&mut self, origin: &str) -> String {
        let mut names: BTreeMap<String, Vec<(&str, String)>> = BTreeMap::new();
        names.insert(origin.to_owned(), vec![("NS", "ns.elsewhere.".to_owned())]);
        for _ in 0..40 {
            let depth = 1 + self.below(4);
            let owner = self.name(&["a", "b", "c", "*"], depth, origin);
            let depth = self.below(4);
            let target = if depth == 3 { "elsewhere." } else { origin };
            let target = self.name(&["a", "b", "c"], depth, target);
            let (rtype, data) = match self.below(10) {
                0 => ("CNAME", target),
                1 => ("NS", target),
                2 => ("MX", format!("10 {target}")),
                3 | 4 => ("TXT", format!("\"{}\"", self.below(3))),
                5 => ("AAAA", format!("fd00::{}", self.below(9))),
                _ => ("A", format!("10.0.0.{}", self.below(9))),
            };
            let others = names.entry(owner).or_default();
            let alone =
                others.is_empty() || rtype != "CNAME" && others.iter().all(|(other, _)| *other != "CNAME");
            if alone {
                others.push((rtype, data));
            }
        }
        let mut lines = String::new();
        for (owner, records) in names {
            for (rtype, data) in records {
                if rtype != "NS" || !owner.starts_with('*') {
                    writeln!(lines, "{owner} 300 {rtype} {data}").unwrap();
                }
            }
        }
        lines
    }
}

/// BIND, until it is dropped.
struct Bind {
    named: Child,
    socket: UdpSocket,
}

impl Bind {
    /// Starts it with these zones, in a folder.
    fn start(dir: &Path, zones: &[(&str, String)]) -> Self {
        let peer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/lab/peer");
        let brought = Command::new(peer).arg("named").stderr(Stdio::inherit()).output().unwrap();
        assert!(brought.status.success(), "tests/lab/peer named: {}", brought.status);
        let root = PathBuf::from(String::from_utf8(brought.stdout).unwrap().trim_end());

        for (origin, lines) in zones {
            let soa = format!("{origin} 600 SOA {origin} hostmaster.{origin} 7 600 1800 604800 60\n");
            std::fs::write(dir.join(format!("{origin}zone")), soa + lines).unwrap();
        }
        // Another program may take the port before BIND does.
        (0..5).find_map(|_| Self::try_start(&root, dir, zones)).expect("BIND finds a free port")
    }

    fn try_start(root: &Path, dir: &Path, zones: &[(&str, String)]) -> Option<Self> {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut conf = format!(
            "options {{ directory {dir:?}; pid-file none; session-keyfile none; recursion no; notify no;
             listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; check-names primary ignore;
             minimal-responses yes; empty-zones-enable no; zero-no-soa-ttl no; }}; controls {{ }};\n"
        );
        for (origin, _) in zones {
            writeln!(conf, "zone {origin:?} {{ type primary; file \"{origin}zone\"; check-integrity no; }};")
                .unwrap();
        }
        let file = dir.join("named.conf");
        std::fs::write(&file, conf).unwrap();
        let named = Command::new(root.join("usr/sbin/named"))
            .args(["-g", "-n", "1", "-c", file.to_str().unwrap()])
            .env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bind = Self { named, socket };
        let mut log = BufReader::new(bind.named.stderr.take().unwrap());
        let (mut text, mut length) = (String::new(), 1);
        while length > 0 && !text.ends_with(" running\n") {
            length = log.read_line(&mut text).unwrap();
        }
        assert!(length > 0, "named has ended:\n{text}");
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        (!text.contains("address in use")).then_some(bind)
    }

    fn ask(&self, query: &Message) -> Message {
        self.socket.send(&query.to_vec().unwrap()).unwrap();
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).unwrap();
        Message::from_vec(&buffer[..length]).unwrap()
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        self.named.kill().unwrap();
        self.named.wait().unwrap();
    }
}

/// A reply as text, without the addresses of servers that are no glue: BIND leaves them out.
fn comparable(reply: &Message) -> String {
    let mut reply = reply.clone();
    reply.additionals.clear();
    let mut lines: Vec<String> = crate::support::text(&reply).lines().map(str::to_owned).collect();
    lines[1..].sort();
    lines.join("\n")
}

#[test]
fn bind_gives_the_same_answers() {
    let mut random = Random(2026);
    let texts: Vec<(&str, String)> = ORIGINS.iter().map(|origin| (*origin, random.zone(origin))).collect();
    let ours =
        zones(ORIGINS.map(|origin| zone(origin, &texts.iter().find(|(it, _)| *it == origin).unwrap().1)));
    let dir = tempfile::tempdir().unwrap();
    let bind = Bind::start(dir.path(), &texts);
    let mut shapes: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..QUESTIONS {
        let depth = random.below(6);
        let origin = ORIGINS[random.below(ORIGINS.len())];
        let owner = random.name(&["a", "b", "c", "*"], depth, origin);
        let question = format!("{owner} {}", TYPES[random.below(TYPES.len())]);
        let mut asked = query(&question);
        asked.metadata.recursion_desired = false;
        let (ours, theirs) = (reply(&ours, &asked), bind.ask(&asked));
        let text = comparable(&ours);
        assert_eq!(
            text,
            comparable(&theirs),
            "{question} in\n{}",
            texts.iter().find(|(it, _)| *it == origin).unwrap().1
        );
        assert!(
            theirs.additionals.iter().all(|it| ours.additionals.contains(it)),
            "{question}: {ours:?} {theirs:?}"
        );
        let first = text.lines().next().unwrap_or_default();
        *shapes
            .entry(format!("{first}, {} and {}", ours.answers.len().min(2), ours.authorities.len().min(1)))
            .or_default() += 1;
    }
    assert!(
        shapes.len() >= 7,
        "records, denials of both kinds, aliases of three kinds, referrals: {shapes:?}"
    );
}
