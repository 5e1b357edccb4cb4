//! TFTP with the client core.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use basalt_tftp::client::{Client, ClientAction, ClientRequest};

use crate::dhcp::is_silence;
use crate::event::Event;
use crate::life::{BLINK, Life, Stop};
use crate::options::Firmware;

/// Limit of the size of a boot loader, in bytes.
const MAX_LOADER: usize = 16 << 20;

/// Fetches a boot loader like this machine's ROM. True on success.
pub(crate) fn fetch(life: &Life, server: Ipv4Addr, file: &str) -> Result<bool, Stop> {
    let server = SocketAddr::from((server, 69));
    let request = ClientRequest { tsize: true, max_bytes: MAX_LOADER, ..ClientRequest::new(server, file) };
    let requests = match life.options().firmware {
        Firmware::Bios => vec![ClientRequest { blksize: Some(1456), ..request }],
        // EDK2 asks for the size first, in a transfer of its own.
        Firmware::Uefi => vec![
            ClientRequest { probe: true, ..request.clone() },
            ClientRequest { blksize: Some(1468), ..request },
        ],
    };
    let mut bytes = 0;
    for request in requests {
        match transfer(life, request)? {
            Ok(length) => bytes = length,
            Err(why) => {
                life.refused(format!("TFTP of {file} from {server}: {why}"))?;
                return Ok(false);
            }
        }
    }
    life.event(Event::TftpFetched { file: file.to_owned(), bytes })?;
    Ok(true)
}

fn transfer(life: &Life, request: ClientRequest) -> Result<Result<usize, String>, Stop> {
    let bind = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_read_timeout(Some(BLINK))?;
        Ok::<_, std::io::Error>(socket)
    };
    let socket = match bind() {
        Ok(socket) => socket,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let (mut client, mut actions) = Client::start(request, Instant::now());
    let mut buffer = vec![0; 2048];
    loop {
        for action in std::mem::take(&mut actions) {
            life.check()?;
            match action {
                ClientAction::Send { to, bytes } => {
                    if let Err(error) = socket.send_to(&bytes, to) {
                        return Ok(Err(error.to_string()));
                    }
                }
                ClientAction::Done(Ok(fetched)) => return Ok(Ok(fetched.content.len())),
                ClientAction::Done(Err(failure)) => return Ok(Err(failure.to_string())),
            }
        }
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) => {
                actions = client.on_packet(Instant::now(), from, buffer.get(..length).unwrap_or_default());
            }
            Err(error) if is_silence(&error) => {}
            Err(error) => return Ok(Err(error.to_string())),
        }
        if actions.is_empty() {
            life.check()?;
            actions = client.on_timer(Instant::now());
        }
    }
}
