//! Lines of an installed system, by UDP (RFC 5426), in the form of RFC 3164.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use crate::cable;
use crate::life::{Life, Stop};

/// `daemon.err` (RFC 5424 §6.2.1).
const PRIORITY: u8 = 3 * 8 + 3;

/// Sends a line like `sshd: no route`.
pub(crate) fn send(life: &Life, rack: SocketAddr, line: &str) -> Result<(), Stop> {
    let sent = life.act(|_| {
        cable::enter(life.namespace())?;
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?.send_to(format!("<{PRIORITY}>{line}").as_bytes(), rack)
    })?;
    match sent {
        Ok(_) => Ok(()),
        Err(error) => life.refused(format!("no syslog to {rack}: {error}")),
    }
}
