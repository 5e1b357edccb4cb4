//! DHCP with the client core, over a socket bound to the machine's interface.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use basalt_dhcp::client::{Binding, ClientAction, ClientConfig};
use basalt_dhcp::{BootIdentity, CLIENT_PORT, Client, SERVER_PORT, Time};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::cable::{self, INTERFACE};
use crate::event::{Event, Speaker};
use crate::life::{BLINK, Life, Stop};
use crate::options::Firmware;

/// Number of unanswered messages after which a client gives up.
const ATTEMPTS: u32 = 5;

/// Gets an address and configures the interface with it. None if no server answers.
pub(crate) fn lease(life: &Life, who: Speaker) -> Result<Option<Binding>, Stop> {
    let now = Time::from(SystemTime::now());
    let options = life.options();
    let firmware = match options.firmware {
        Firmware::Bios => basalt_dhcp::Firmware::Bios,
        Firmware::Uefi => basalt_dhcp::Firmware::EfiX64,
    };
    let config = ClientConfig {
        boot: match who {
            Speaker::Rom => {
                Some(BootIdentity { uuid: Some(uuid(options.mac.0)), ..BootIdentity::rom(firmware) })
            }
            Speaker::Ipxe => {
                Some(BootIdentity { uuid: Some(uuid(options.mac.0)), ..BootIdentity::ipxe(firmware) })
            }
            Speaker::Agent | Speaker::System => None,
        },
        broadcast: true,
        first_retry: options.dhcp_patience,
        attempts: ATTEMPTS,
        ..ClientConfig::new(options.mac)
    };
    let socket = match cable::unconfigure(life.namespace()).and_then(|()| socket()) {
        Ok(socket) => socket,
        Err(error) => return gone(life, who, &error),
    };
    let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    let mac = options.mac.0.iter().fold(0u64, |sum, octet| sum << 8 | u64::from(*octet));
    let (client, actions) = Client::start(config, now, mac ^ u64::from(nanoseconds) << 20);
    let mut lease = Lease { client, socket };
    let binding = lease.converse(life, who, Duration::ZERO, actions)?;
    if who == Speaker::System && binding.is_some() {
        life.act(|power| power.lease = Some(lease))?;
    }
    Ok(binding)
}

/// Renews the installed system's lease, as at half of the lease time.
pub(crate) fn renew(life: &Life) -> Result<(), Stop> {
    let Some(mut lease) = life.act(|power| power.lease.take())? else {
        return life.refused("the system has no lease to renew");
    };
    let now = Time::from(SystemTime::now());
    let early = lease.client.binding().map(|binding| now.until(binding.renew)).unwrap_or_default();
    let actions = lease.client.on_timer(now + early);
    lease.converse(life, Speaker::System, early, actions)?;
    life.act(|power| power.lease = Some(lease))
}

/// A client with its socket.
#[derive(Debug)]
pub(crate) struct Lease {
    client: Client,
    socket: Socket,
}

impl Lease {
    /// Runs until the client has an address or gives up. The client's clock is ahead by `early`.
    fn converse(
        &mut self,
        life: &Life,
        who: Speaker,
        early: Duration,
        mut actions: Vec<ClientAction>,
    ) -> Result<Option<Binding>, Stop> {
        let Self { client, socket } = self;
        loop {
            for action in std::mem::take(&mut actions) {
                life.check()?;
                match action {
                    ClientAction::Send { server, bytes } => {
                        let to = SocketAddrV4::new(server.unwrap_or(Ipv4Addr::BROADCAST), SERVER_PORT);
                        if let Err(error) = socket.send_to(&bytes, &SockAddr::from(to)) {
                            return gone(life, who, &error);
                        }
                    }
                    ClientAction::Configured(binding) => {
                        let prefix = u32::from(binding.netmask).leading_ones();
                        let prefix = u8::try_from(prefix).unwrap_or(32);
                        let configured =
                            cable::configure(life.namespace(), binding.address, prefix, binding.gateway);
                        if let Err(error) = configured {
                            return gone(life, who, &error);
                        }
                        life.event(Event::DhcpAck { who, address: binding.address })?;
                        return Ok(Some(binding));
                    }
                    ClientAction::GaveUp => {
                        life.refused(format!("DHCP: nobody answers {who:?}"))?;
                        return Ok(None);
                    }
                    ClientAction::Lost(address) => life.refused(format!("DHCP: {address} is lost"))?,
                    ClientAction::Wake(_) => {}
                }
            }
            let datagram = match receive(socket) {
                Ok(datagram) => datagram,
                Err(error) => return gone(life, who, &error),
            };
            life.check()?;
            let now = Time::from(SystemTime::now()) + early;
            actions = datagram.map(|bytes| client.on_packet(now, &bytes)).unwrap_or_default();
            if actions.is_empty() {
                actions = client.on_timer(now);
            }
        }
    }
}

/// The network failed. If the reason is a power cut, the event is not logged.
fn gone(life: &Life, who: Speaker, error: &io::Error) -> Result<Option<Binding>, Stop> {
    life.refused(format!("DHCP as {who:?}: {error}"))?;
    Ok(None)
}

/// The UUID in the machine's SMBIOS table.
fn uuid(mac: [u8; 6]) -> [u8; 16] {
    let mut uuid = *b"basalt-sim\0\0\0\0\0\0";
    for (to, from) in uuid.iter_mut().skip(10).zip(mac) {
        *to = from;
    }
    uuid
}

fn socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_broadcast(true)?;
    // A child between fork and exec may still hold the socket of the stage before.
    socket.set_reuse_address(true)?;
    socket.bind_device(Some(INTERFACE.as_bytes()))?;
    socket.bind(&SockAddr::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, CLIENT_PORT)))?;
    socket.set_read_timeout(Some(BLINK.max(Duration::from_millis(1))))?;
    Ok(socket)
}

/// A datagram, if one arrives within [`BLINK`].
fn receive(socket: &Socket) -> io::Result<Option<Vec<u8>>> {
    let mut buffer = vec![0; 1500];
    match io::Read::read(&mut &*socket, &mut buffer) {
        Ok(length) => {
            buffer.truncate(length);
            Ok(Some(buffer))
        }
        Err(error) if is_silence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// True if no datagram arrived in time, or an earlier one reached no server.
pub(crate) fn is_silence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted | ErrorKind::ConnectionRefused
    )
}
