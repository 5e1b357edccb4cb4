//! The agent's reader of the firmware's table, and its DHCPv6 client: with any answers of servers, the client continues, and takes only
//! addresses of hosts.

use std::time::Duration;

use basalt_agent::bmc::host_interface::host_interfaces;
use basalt_agent::dhcp6::{Action, Client, Event, Identity};

use crate::dhcp::option6;
use crate::sequence::{messages, sequence};

const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];

/// The client's last message.
#[derive(Default)]
struct Sent {
    transaction: [u8; 3],
}

impl Sent {
    fn follow(&mut self, client: &Client, now: Duration, actions: &[Action]) {
        for action in actions {
            match action {
                Action::Send(message) => {
                    self.transaction.copy_from_slice(&message[1..4]);
                    assert!(message.len() < 1232, "it fits the smallest link");
                }
                Action::Bound(lease) => {
                    let address = lease.address;
                    assert!(!address.is_multicast() && !address.is_unspecified() && !address.is_loopback());
                    assert!(lease.valid.is_none_or(|until| until > now), "{lease:?}");
                }
                Action::Lost(_) => {}
            }
        }
        assert!(client.wake().is_none_or(|at| at > now), "it does not wake for what is past");
    }
}

/// Answers to a DHCPv6 client, most of them to its last message, while time passes.
pub fn dhcp6_client(data: &[u8]) {
    let mut client = Client::new(Identity::of(MAC), 7);
    let (mut now, mut sent) = (Duration::ZERO, Sent::default());
    let actions = client.handle(now, Event::Start);
    sent.follow(&client, now, &actions);
    for (besides, datagram) in messages(data) {
        let later = now + Duration::from_secs(u64::from(besides >> 2));
        now = if besides & 1 == 0 { client.wake().unwrap_or(later) } else { later };
        let actions = client.handle(now, Event::Timer);
        sent.follow(&client, now, &actions);
        let mut answer = datagram.to_vec();
        if let Some(transaction) = answer.get_mut(1..4) {
            transaction.copy_from_slice(&sent.transaction);
        }
        let event = if besides & 2 == 0 { Event::Datagram(&answer) } else { Event::Taken };
        let actions = client.handle(now, event);
        sent.follow(&client, now, &actions);
    }
}

pub(crate) fn seeds_dhcp6_client() -> Vec<Vec<u8>> {
    let client = option6(1, &[&[0, 3, 0, 1][..], &MAC].concat());
    let server = option6(2, &[&[0, 4][..], &[7; 16]].concat());
    let address = [&[0x20, 1, 0xd, 0xb8][..], &[0; 10], &[1, 0], &[0, 0, 2, 88], &[0, 0, 4, 176]].concat();
    let association =
        |inner: &[u8]| option6(3, &[&MAC[2..], &[0, 0, 1, 44], &[0, 0, 1, 224], inner].concat());
    let servers = option6(23, &[&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[0x35]].concat());
    let search = option6(24, b"\x03lab\x07example\0");
    let message = |kind: u8, options: &[&[u8]]| [&[kind, 1, 2, 3][..], &options.concat()].concat();
    let granted = association(&option6(5, &address));
    let advertise =
        message(2, &[&client, &server, &granted, &option6(7, &[255]), &option6(82, &[0, 0, 0, 90])]);
    let reply = message(7, &[&client, &server, &granted, &servers, &search]);
    let none = association(&option6(13, b"\0\x02nothing is free"));
    let refused = message(2, &[&client, &server, &none]);
    let forgotten = message(7, &[&client, &server, &association(&option6(13, &[0, 3]))]);
    vec![
        sequence([&advertise[..], &reply, &reply, &forgotten, &reply]),
        sequence([&refused[..], &advertise, &message(7, &[&client, &server, &option6(13, &[0, 1])]), &reply]),
    ]
}

/// A table of the firmware (SMBIOS): network prefixes are possible ones, and names come from the table.
pub fn smbios(data: &[u8]) {
    for found in host_interfaces(data) {
        for network in [found.host, found.service].into_iter().flatten() {
            let most = if network.address.is_ipv4() { 32 } else { 128 };
            assert!(network.prefix <= most && !network.address.is_unspecified(), "{network:?}");
        }
        assert!(found.hostname.len() <= 3 * data.len());
    }
}

pub(crate) fn seeds_smbios() -> Vec<Vec<u8>> {
    let address = |last: u8| [&[169, 254, 0, last][..], &[0; 12]].concat();
    let mask = [&[0xff, 0xff, 0, 0][..], &[0; 12]].concat();
    let record = [
        &[0x11; 16][..],
        &[1, 1],
        &address(2),
        &mask,
        &[1, 1],
        &address(17),
        &mask,
        &[0xbb, 1, 0, 0, 0, 0, 3],
        b"bmc",
    ]
    .concat();
    let structure = |specific: &[u8]| {
        let length = |of: &[u8]| u8::try_from(of.len()).unwrap_or(0);
        let mut bytes =
            [&[42, 0, 0, 0, 0x40, length(specific)][..], specific, &[1, 4, length(&record)], &record]
                .concat();
        bytes[1] = length(&bytes);
        [&bytes, &b"S-7\0\0"[..]].concat()
    };
    vec![
        structure(&[4, 0x11, 0x6b, 4, 4, 1, 1, 2, 0, 0, 0, 0, 7, 1, 0, 0xff, 0xff]),
        structure(&[2, 0x6b, 4, 4, 1, 8, 3, b'S', 0, b'-', 0, b'7', 0]),
        structure(&[3, 0x86, 0x80, 0x21, 0x15, 0, 0, 0, 0]),
        structure(&[
            5, 0x18, 0x86, 0x80, 0x21, 0x15, 0, 0, 0, 0, 2, 0, 0, 0, 0, 9, 0, 0, 3, 8, 0, 0, 0xff, 0xff,
        ]),
    ]
}
