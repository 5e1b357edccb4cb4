//! Boot answers beside a server that gives the addresses: proxyDHCP (PXE 2.1 §2.2.3), and the boot server port
//! (§2.2.5).
//!
//! A client's DISCOVER gets an offer with boot options and no address. Its REQUEST goes to the other server, but it is
//! broadcast, so this server receives it too and learns the client's address from it. Firmware may ask again on port
//! 4011.

use std::net::{Ipv4Addr, SocketAddrV4};

use dhcproto::v4::{MessageType, OptionCode};

use crate::BootMode;
use crate::exchange::{Answer, Exchange};
use crate::server::{Action, Destination, Event, Ignored};

/// The port where boot clients ask a boot server.
pub const BOOT_SERVER_PORT: u16 = 4011;

impl Exchange<'_> {
    /// True if another server gives the addresses of this link.
    pub(crate) fn is_beside_another(&self) -> bool {
        self.network.scopes.iter().all(|scope| scope.subnet.boot.mode == BootMode::Proxy)
    }

    /// Answers a message that came to the server port.
    pub(crate) fn beside(mut self) -> Answer {
        let packet = self.packet;
        match packet.kind {
            MessageType::Discover => {
                let mut offer = self.reply(MessageType::Offer, Ipv4Addr::UNSPECIFIED);
                self.boot_options(&mut offer).ok_or_else(|| self.boots_nothing())?;
                Ok(self.send(offer).collect())
            }
            MessageType::Request => {
                let asked = packet.options.ipv4(OptionCode::RequestedIpAddress);
                let address = asked.unwrap_or(packet.ciaddr);
                self.settle(address);
                Ok(vec![self.boots(address)?])
            }
            _ => Err(Ignored::OthersClient),
        }
    }

    /// Answers a message that came to [`BOOT_SERVER_PORT`].
    pub(crate) fn boot_server(self, from: SocketAddrV4) -> Answer {
        let packet = self.packet;
        if !matches!(packet.kind, MessageType::Request | MessageType::Inform) || !self.is_beside_another() {
            return Err(Ignored::NotARequest { op: packet.op.into(), kind: packet.kind.into() });
        }
        if packet.ciaddr != *from.ip() {
            return Err(Ignored::OtherAddress { says: packet.ciaddr, has: *from.ip() });
        }
        let mut reply = self.reply(MessageType::Ack, Ipv4Addr::UNSPECIFIED);
        self.boot_options(&mut reply).ok_or_else(|| self.boots_nothing())?;
        let boots = self.boots(packet.ciaddr)?;
        let (bytes, _) = self.encode(&reply);
        Ok(vec![Action::Send { via: self.via, to: Destination::Asker(from), bytes }, boots])
    }

    /// Reports that the client has this address from another server and boots the file that this server named.
    fn boots(&self, address: Ipv4Addr) -> Result<Action, Ignored> {
        if !self.scope.subnet.cidr.contains(&address) {
            return Err(Ignored::NotOurs(address));
        }
        let mut told = self.reply(MessageType::Ack, Ipv4Addr::UNSPECIFIED);
        let (client, file) = self.boot_options(&mut told).ok_or_else(|| self.boots_nothing())?;
        Ok(Action::Report(Event::Boot { mac: self.mac, address, client, file }))
    }

    /// The reason why a client gets no boot options.
    fn boots_nothing(&self) -> Ignored {
        self.other_architecture().map_or(Ignored::OthersClient, Ignored::OtherArchitecture)
    }
}
