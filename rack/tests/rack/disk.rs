//! A rack with a full disk: it offers only leases that it can write, reports the fault without a file, and recovers by
//! itself.

use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use basalt_dhcp::Mac;
use basalt_dhcp::egress::Message;
use basalt_dhcp::ingress::{self, Packet};
use basalt_proto::REGION_SERVER_NAME;
use basalt_proto::rack_v1::fact::Body;
use basalt_proto::rack_v1::{DhcpConcern, Fact, Reservation, from_rack};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Settings;
use dhcproto::v4::{MessageType, OptionCode};
use tokio_util::sync::CancellationToken;

use super::link::{Linked, SECRET, next_link, region, serve, token};
use super::namespace::{Host, is_inside, make_switch, mount};
use super::peers::{on_switch, subnet};
use super::support::{DEADLINE, fact};

const NAME: &str = "disk::a_rack_whose_disk_is_full_offers_nothing_says_so_and_goes_on_when_there_is_room";
const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 10);

const IMAGES: &str = "disk::images_leave_a_full_disk_so_that_leases_are_written_and_a_rack_starts";

/// A client without an address, which receives broadcasts.
struct Client(tokio::net::UdpSocket);

impl Client {
    fn on(host: &Host) -> Self {
        let socket = host.within(|| {
            let socket = UdpSocket::bind("0.0.0.0:68").unwrap();
            socket.set_broadcast(true).unwrap();
            socket
        });
        socket.set_nonblocking(true).unwrap();
        Self(tokio::net::UdpSocket::from_std(socket).unwrap())
    }

    async fn say(&self, kind: MessageType) {
        let mut message = Message::request(kind, 7, MAC);
        message.broadcast = true;
        match kind {
            MessageType::Request => drop(message.option(OptionCode::RequestedIpAddress, ADDRESS.octets())),
            MessageType::Inform => message.ciaddr = ADDRESS,
            _ => {}
        }
        self.0.send_to(&message.encode(), (Ipv4Addr::BROADCAST, 67)).await.unwrap();
    }

    async fn hear(&self) -> Packet {
        let mut buffer = [0; 1500];
        let length = self.0.recv(&mut buffer).await.unwrap();
        ingress::parse(&buffer[..length]).unwrap()
    }

    /// Asks until there is an answer: the rack may still have to find that it can write again.
    async fn ask(&self, kind: MessageType) -> Packet {
        let asked = async {
            loop {
                self.say(kind).await;
                if let Ok(answer) = tokio::time::timeout(Duration::from_millis(500), self.hear()).await {
                    return answer;
                }
            }
        };
        tokio::time::timeout(DEADLINE, asked).await.expect("never answered")
    }
}

/// Fills the disk. Removing the file frees it again.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
}

/// The rack's next report of the files that it cannot write.
async fn said(link: &mut Linked) -> String {
    loop {
        if let from_rack::Message::Hello(hello) = link.next().await {
            return hello.cannot_write;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_whose_disk_is_full_offers_nothing_says_so_and_goes_on_when_there_is_room() {
    if !is_inside(NAME) {
        return;
    }
    make_switch(&["10.9.0.1/24"]);
    let host = Host::plug("client", &MAC.to_string());
    host.run(&["ip", "address", "add", "10.9.0.10/24", "dev", "eth0"]);
    host.run(&["ip", "route", "add", "default", "dev", "eth0"]);
    let dir = tempfile::tempdir().unwrap();
    mount(&["-t", "tmpfs", "-o", "size=2560k", "none", &dir.path().to_string_lossy()]);
    let (region, mut linked) = region();
    let stop = CancellationToken::new();
    let address = serve(region.clone(), REGION_SERVER_NAME, stop.clone()).await;
    let settings = Settings { join: Some(token(&region, address, SECRET)), ..on_switch(dir.path()) };
    let mut subnet = subnet("s1", "10.9.0", ("100", "110"));
    // A reserved address is offered without a probe.
    subnet.reservations =
        vec![Reservation { mac: MAC.to_string(), address: ADDRESS.to_string(), ..Reservation::default() }];
    let concern = DhcpConcern { subnets: vec![subnet], serve_unknown: true, ..DhcpConcern::default() };
    write_concern(&settings.data_dir, &version(Concern::Dhcp, 1, "local", &concern)).unwrap();
    let rack = Daemon::start(settings).await.unwrap();
    let mut link = next_link(&mut linked).await;
    assert_eq!(link.welcome().await.cannot_write, "");
    let is_linked = |it: &Fact| matches!(&it.body, Some(Body::Health(it)) if it.ok && it.service.starts_with(basalt_proto::LINK));
    fact(&rack.facts, is_linked).await;
    let client = Client::on(&host);
    assert_eq!(client.ask(MessageType::Discover).await.kind, MessageType::Offer);

    let filler = dir.path().join("filler");
    fill(&filler);
    let disk = rack.facts.disk();
    let until_full = async {
        // A file's last block may still have room.
        while !disk.problem().is_some_and(|it| it.contains("leases")) {
            client.say(MessageType::Request).await;
            tokio::time::timeout(Duration::from_millis(100), client.hear()).await.ok();
        }
    };
    tokio::time::timeout(DEADLINE, until_full).await.expect("the disk took everything");
    client.say(MessageType::Discover).await;
    client.say(MessageType::Inform).await;
    let answered = client.hear().await;
    assert_eq!(answered.kind, MessageType::Ack, "what needs no lease is answered, and nothing is offered");
    let problem = said(&mut link).await;
    assert!(
        problem.contains("leases cannot be written: No space left on device")
            && problem.contains("Make room"),
        "{problem}"
    );

    std::fs::remove_file(filler).unwrap();
    assert_eq!(client.ask(MessageType::Discover).await.kind, MessageType::Offer);
    assert_eq!(client.ask(MessageType::Request).await.kind, MessageType::Ack);
    while !said(&mut link).await.is_empty() {}
    rack.stop().await;
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn images_leave_a_full_disk_so_that_leases_are_written_and_a_rack_starts() {
    if !is_inside(IMAGES) {
        return;
    }
    make_switch(&["10.9.0.1/24"]);
    let host = Host::plug("client", &MAC.to_string());
    host.run(&["ip", "route", "add", "default", "dev", "eth0"]);
    let dir = tempfile::tempdir().unwrap();
    mount(&["-t", "tmpfs", "-o", "size=2560k", "none", &dir.path().to_string_lossy()]);
    let settings = on_switch(dir.path());
    let concern = DhcpConcern {
        subnets: vec![subnet("s1", "10.9.0", ("10", "10"))],
        serve_unknown: true,
        ..DhcpConcern::default()
    };
    write_concern(&settings.data_dir, &version(Concern::Dhcp, 1, "local", &concern)).unwrap();
    let blobs = settings.data_dir.join("blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let image = |letter: &str| {
        let path = blobs.join(letter.repeat(64));
        std::fs::write(&path, vec![0; 512 << 10]).unwrap();
        path
    };
    let old = image("a");
    let rack = Daemon::start(settings.clone()).await.unwrap();
    let client = Client::on(&host);
    assert_eq!(client.ask(MessageType::Discover).await.kind, MessageType::Offer);
    let filler = dir.path().join("filler");
    fill(&filler);
    let until_gone = async {
        while old.exists() {
            client.say(MessageType::Request).await;
            tokio::time::timeout(Duration::from_millis(100), client.hear()).await.ok();
        }
    };
    tokio::time::timeout(DEADLINE, until_gone).await.expect("the image stays");
    assert_eq!(client.ask(MessageType::Request).await.kind, MessageType::Ack);
    rack.stop().await;

    std::fs::remove_file(&filler).unwrap();
    let other = image("b");
    fill(&filler);
    Daemon::start(settings).await.unwrap().stop().await;
    assert!(!other.exists());
}
