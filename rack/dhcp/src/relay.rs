//! What a relay adds to a client's message: which link the client is on, and whom it should take for its server.

use std::net::Ipv4Addr;

use dhcproto::v4::OptionCode;

use crate::ingress::Packet;

/// Sub-options of option 82.
const LINK_SELECTION: u8 = 5;
const SERVER_IDENTIFIER_OVERRIDE: u8 = 11;

/// A message that came through a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Relayed {
    /// An address of the client's link: link selection (RFC 3527), subnet selection (RFC 3011), or the relay's own.
    pub(crate) link: Ipv4Addr,
    /// The relay's address that the client is to take for its server, so that its renewals pass the relay (RFC 5107).
    pub(crate) identity: Option<Ipv4Addr>,
}

impl Relayed {
    /// `None`: no relay forwarded this. Option 82 alone proves none, since clients can write it.
    pub(crate) fn of(packet: &Packet) -> Option<Self> {
        if packet.giaddr.is_unspecified() {
            return None;
        }
        let link =
            sub_option(packet, LINK_SELECTION).or_else(|| packet.options.ipv4(OptionCode::SubnetSelection));
        Some(Self {
            link: link.unwrap_or(packet.giaddr),
            identity: sub_option(packet, SERVER_IDENTIFIER_OVERRIDE).filter(|it| !it.is_unspecified()),
        })
    }
}

/// A sub-option of exactly one address. What follows one that is cut short is not read.
fn sub_option(packet: &Packet, code: u8) -> Option<Ipv4Addr> {
    let mut rest = packet.options.raw(OptionCode::RelayAgentInformation)?;
    while let [found, length, tail @ ..] = rest {
        let (value, tail) = tail.split_at_checked(usize::from(*length))?;
        if *found == code {
            return <[u8; 4]>::try_from(value).ok().map(Ipv4Addr::from);
        }
        rest = tail;
    }
    None
}
