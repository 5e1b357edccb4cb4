//! An apply with 2,000 objects.
//!
//! A server stores their state, as is usual for so many. Terraform writes a state in a file again after each object; with
//! 2,000 objects, that takes nine tenths of its time.

use std::io;
use std::time::{Duration, Instant};

use basalt_api::client::ListOptions;
use terraform_provider_basalt::MANAGER;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::world::{World, described, everything, provider, within};

/// Time limit of a command on a busy host.
const HANGS: Duration = Duration::from_secs(600);

/// A fabric with its VLANs, their subnets, and zones: 2,000 objects together.
const MANY: &str = r#"
resource "basalt_fabric" "core" {
  name = "core"
}
resource "basalt_vlan" "row" {
  count  = 19
  fabric = basalt_fabric.core.name
  vid    = 100 + count.index
}
resource "basalt_subnet" "rack" {
  count   = 980
  name    = "rack-${count.index}"
  vlan    = basalt_vlan.row[count.index % 19].name
  cidr    = cidrsubnet("10.64.0.0/10", 14, count.index)
  gateway = cidrhost(cidrsubnet("10.64.0.0/10", 14, count.index), 1)
}
resource "basalt_zone" "place" {
  count       = 1000
  name        = "place-${count.index}"
  description = "place ${count.index} of row ${count.index % 19}"
}
"#;
const OBJECTS: [(&str, usize); 4] = [("Fabric", 1), ("Vlan", 19), ("Subnet", 980), ("Zone", 1000)];

/// Stores a state (Terraform's backend `http`).
struct StateServer {
    address: String,
    task: JoinHandle<()>,
}

impl Drop for StateServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl StateServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}/", listener.local_addr().expect("an address"));
        let task = tokio::spawn(async move {
            let mut state = None;
            while let Ok((client, _)) = listener.accept().await {
                answer(client, &mut state).await.expect("a request for a state");
            }
        });
        Self { address, task }
    }

    fn config(&self) -> String {
        format!("terraform {{\n  backend \"http\" {{\n    address = {:?}\n  }}\n}}\n", self.address)
    }
}

/// Answers one request, which reads or writes the state.
async fn answer(mut client: TcpStream, state: &mut Option<Vec<u8>>) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length =
        head.split("\r\n").find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    client.read_exact(&mut body).await?;
    let (status, answer) = if head.starts_with("get ") {
        (if state.is_some() { "200 OK" } else { "404 Not Found" }, state.clone().unwrap_or_default())
    } else {
        *state = Some(body);
        ("200 OK", Vec::new())
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", answer.len());
    client.write_all(head.as_bytes()).await?;
    client.write_all(&answer).await
}

/// The output of Terraform, and its exit code.
async fn run(world: &World, args: &[&str]) -> (Option<i32>, String) {
    let began = Instant::now();
    let output = tokio::time::timeout(HANGS, world.terraform(args).output()).await;
    let output = output.unwrap_or_else(|_| panic!("terraform {args:?} hangs")).expect("terraform");
    eprintln!("terraform {} took {:?}", args[0], began.elapsed());
    (output.status.code(), everything(&output))
}

#[test]
fn two_thousand_objects_are_made_in_one_apply_planned_empty_and_destroyed() {
    within(async |world| {
        let states = StateServer::start().await;
        world.config(&format!("{}{}{MANY}", states.config(), provider(&world)));
        world.ok(&["init"]).await;
        let (_, said) = run(&world, &["apply", "-auto-approve", "-parallelism=50"]).await;
        assert!(said.contains("2000 added, 0 changed, 0 destroyed"), "{said}");
        for (kind, number) in OBJECTS {
            let all = world.client("test").list_all(described(kind), &ListOptions::default()).await;
            let mut all = all.expect("a list");
            all.retain(|object| object.metadata.manager.as_deref() == Some(MANAGER));
            assert_eq!(all.len(), number, "{kind}");
        }
        let (code, said) = run(&world, &["plan", "-detailed-exitcode"]).await;
        assert_eq!(code, Some(0), "{said}");
        let (_, said) = run(&world, &["destroy", "-auto-approve", "-parallelism=50"]).await;
        assert!(said.contains("2000 destroyed"), "{said}");
        world.end().await;
    });
}
