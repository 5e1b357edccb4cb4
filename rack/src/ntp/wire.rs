//! Sockets that deliver datagrams with their arrival times (SO_TIMESTAMPNS, socket(7)): a late task causes no
//! measurement error.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use basalt_ntp::packet::LENGTH;
use basalt_ntp::{Now, Timestamp};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// The most datagrams that are read before the first one is answered.
const BATCH: usize = 64;
/// The number of octets read of each: authentication and extension fields are not needed.
const DATAGRAM: usize = 128;
/// A datagram that seems to be older than this, or from the future, arrived while the clock was set.
const WAITED: i64 = 1_000_000_000;

/// A datagram: its arrival time, its sender, and its first octets.
pub(super) type Arrived = (Now, SocketAddr, Vec<u8>);

fn since(zero: Timespec) -> Duration {
    let seconds = u64::try_from(zero.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(zero.tv_nsec).unwrap_or(0))
}

/// The wall clock.
pub(super) fn wall() -> Timestamp {
    Timestamp::from_unix(since(clock_gettime(ClockId::Realtime)))
}

/// Reads both clocks of this host.
pub(super) fn now() -> Now {
    Now { wall: wall(), since_boot: since(clock_gettime(ClockId::Boottime)) }
}

/// A UDP socket.
#[derive(Debug)]
pub(super) struct Socket(UdpSocket);

impl Socket {
    /// A socket with this address. It must be called within a runtime.
    pub(super) fn bind(at: SocketAddr) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        UdpSocket::from_std(socket).map(Self)
    }

    /// A socket on any port that only receives from this peer.
    pub(super) async fn connect(to: SocketAddr) -> io::Result<Self> {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = Self::bind((any, 0).into())?;
        socket.0.connect(to).await?;
        Ok(socket)
    }

    /// Waits for datagrams.
    pub(super) async fn receive(&self) -> io::Result<Vec<Arrived>> {
        loop {
            self.0.readable().await?;
            let mut batch = Vec::new();
            while batch.len() < BATCH {
                match self.0.try_io(Interest::READABLE, || self.read()) {
                    Ok(arrived) => batch.push(arrived),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // The error is an ICMP message about an earlier answer. On a connected socket it is about the peer.
                    Err(error) if self.0.peer_addr().is_ok() => return Err(error),
                    Err(error) => tracing::debug!(%error, "a client of NTP cannot be reached"),
                }
            }
            if !batch.is_empty() {
                return Ok(batch);
            }
        }
    }

    fn read(&self) -> io::Result<Arrived> {
        let mut buffer = [0; DATAGRAM];
        let mut space = nix::cmsg_space!(TimeSpec);
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let message = recvmsg::<SockaddrStorage>(self.0.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
        let stamp = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
            _ => None,
        });
        let from = message.address.as_ref().and_then(address);
        let length = message.bytes;
        let from = match from {
            Some(from) => from,
            None => self.0.peer_addr()?,
        };
        let datagram = buffer.get(..length).unwrap_or_default().to_vec();
        Ok((arrival(stamp.map(Timestamp::from_unix), now()), from, datagram))
    }

    /// Sends octets to a client. They are made from the time of sending.
    pub(super) fn send(&self, to: SocketAddr, octets: impl FnOnce(Timestamp) -> [u8; LENGTH]) {
        if let Err(error) = self.0.try_send_to(&octets(wall()), to) {
            tracing::debug!(client = %to, %error, "an NTP answer could not be sent");
        }
    }

    /// Sends to the peer.
    pub(super) async fn ask(&self, octets: &[u8]) -> io::Result<()> {
        self.0.send(octets).await.map(drop)
    }
}

fn address(from: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = from.as_sockaddr_in().map(|it| SocketAddr::from((it.ip(), it.port())));
    v4.or_else(|| from.as_sockaddr_in6().map(|it| std::net::SocketAddrV6::from(*it).into()))
}

/// Converts a kernel timestamp `stamp` of the wall clock, just before `now`, to a reading of both clocks.
fn arrival(stamp: Option<Timestamp>, now: Now) -> Now {
    let waited = stamp.map(|stamp| now.wall.since(stamp)).filter(|waited| (0..WAITED).contains(waited));
    let (Some(wall), Some(waited)) = (stamp, waited) else { return now };
    let waited = Duration::from_nanos(waited.unsigned_abs());
    Now { wall, since_boot: now.since_boot.saturating_sub(waited) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_datagram_comes_with_the_moment_of_its_arrival() {
        let socket = Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        // The kernel starts to timestamp arrivals a moment after the first socket asks for it. Until then the
        // timestamps are those of the reading.
        for _ in 0..10_000 {
            let before = wall();
            client.send_to(b"hello", socket.0.local_addr().unwrap()).unwrap();
            let after = wall();
            let batch = socket.receive().await.unwrap();
            let [(arrived, from, datagram)] = &batch[..] else { panic!("{batch:?}") };
            assert_eq!((from, &datagram[..]), (&client.local_addr().unwrap(), &b"hello"[..]));
            assert!(arrived.wall.since(before) >= 0, "{before:?} {arrived:?}");
            if after.since(arrived.wall) >= 0 {
                return;
            }
        }
        panic!("each datagram had the moment when it was read");
    }

    #[test]
    fn a_stamp_of_a_clock_that_was_set_does_not_count() {
        let seconds = |wall, since_boot| Now {
            wall: Timestamp::from_unix(Duration::from_millis(wall)),
            since_boot: Duration::from_millis(since_boot),
        };
        let now = seconds(100_000, 9_000);
        let arrived = |stamp| arrival(Some(Timestamp::from_unix(Duration::from_millis(stamp))), now);
        assert_eq!(arrived(99_750), seconds(99_750, 8_750));
        assert_eq!((arrived(90_000), arrived(100_001), arrival(None, now)), (now, now, now));
    }
}
