//! The fields that a relay adds to a client's message: the client's link, and the server identifier that it should see.

use std::net::Ipv4Addr;

use dhcproto::v4::OptionCode;

use crate::ingress::Packet;

/// Sub-options of option 82 (RFC 3046).
const LINK_SELECTION: u8 = 5;
const SERVER_IDENTIFIER_OVERRIDE: u8 = 11;

/// A message that came through a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Relayed {
    /// An address of the client's link: link selection (RFC 3527), subnet selection (RFC 3011), or the relay's own.
    pub(crate) link: Ipv4Addr,
    /// The relay's address that replaces the server identifier, so that renewals pass through the relay (RFC 5107).
    pub(crate) identity: Option<Ipv4Addr>,
}

impl Relayed {
    /// `None`: no relay forwarded this. Option 82 alone does not prove a relay, since clients can write it.
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

/// A sub-option that is exactly one address. Reading stops at a sub-option that is cut short.
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
