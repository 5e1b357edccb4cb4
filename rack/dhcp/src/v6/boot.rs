//! Boot clients and their boot options: RFC 5970, UEFI HTTP boot, iPXE.

use std::net::Ipv6Addr;

use dhcproto::v6::OptionCode;

use super::ingress::Packet;
use crate::pxe::{ARCHITECTURES, HTTP_CLIENT, IPXE, supported};
use crate::{Boot, BootClient, BootMode, Firmware, Mac, Transport};

/// Intel's enterprise number. Firmware sends its vendor class under it, and expects `HTTPClient` under it in an answer
/// (UEFI 2.10 §24.7.2).
const ENTERPRISE: u32 = 343;
/// The URL of a loader for firmware that fetches by TFTP.
const TFTP_URL: &str = "tftp://{server}/{loader}";
/// The iPXE variable for the hardware address, used if the server does not know the address: iPXE fills it in.
const OWN_MAC: &str = "${netX/mac}";

/// Recognises a boot client by options 15, 61 and 16; `None` for an operating system's DHCP client.
#[must_use]
pub fn client(packet: &Packet) -> Option<BootClient> {
    let user = packet.options.raw(OptionCode::UserClass).unwrap_or_default();
    if user == IPXE || classes(user).any(|class| class == IPXE) {
        return Some(BootClient::Ipxe { firmware: firmware(packet) });
    }
    let offered = architectures(packet);
    let known = offered.iter().find_map(|number| ARCHITECTURES.iter().find(|(known, ..)| known == number));
    match (known, offered.first()) {
        (Some(&(_, firmware, registered)), _) => {
            let transport = vendors(packet).find_map(Transport::of).unwrap_or(registered);
            Some(BootClient::Rom { firmware, transport })
        }
        (None, Some(&architecture)) => Some(BootClient::Unsupported { architecture }),
        (None, None) => None,
    }
}

/// The firmware of a boot client, by the first of its architectures that there is a loader for.
fn firmware(packet: &Packet) -> Option<Firmware> {
    supported(&architectures(packet))
}

/// Option 61's list; without it, the number inside the vendor class `PXEClient:Arch:00007:UNDI:003016`.
fn architectures(packet: &Packet) -> Vec<u16> {
    let listed = packet.options.raw(OptionCode::ClientArchType).unwrap_or_default();
    let (pairs, _) = listed.as_chunks::<2>();
    if !pairs.is_empty() {
        return pairs.iter().map(|&pair| u16::from_be_bytes(pair)).collect();
    }
    let number = |class: &[u8]| {
        let (_, rest) = std::str::from_utf8(class).ok()?.split_once(":Arch:")?;
        rest.split(':').next()?.parse().ok()
    };
    vendors(packet).filter(|class| Transport::of(class).is_some()).filter_map(number).collect()
}

/// The vendor classes of all vendors.
fn vendors(packet: &Packet) -> impl Iterator<Item = &[u8]> {
    let values = packet.options.all(OptionCode::VendorClass);
    values.filter_map(|value| value.split_first_chunk::<4>()).flat_map(|(_, rest)| classes(rest))
}

/// A list of length-prefixed classes. Reading stops at a class that is cut short.
fn classes(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, tail) = rest.split_first_chunk::<2>()?;
        let (class, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        rest = tail;
        Some(class)
    })
}

/// The URL for a boot client (option 59), and the vendor class that must stand beside it (option 16).
pub(super) fn answer(
    packet: &Packet,
    client: BootClient,
    boot: &Boot,
    server: Ipv6Addr,
    mac: Option<Mac>,
) -> Option<(String, Option<Vec<u8>>)> {
    let is_served = boot.firmware.is_empty() || firmware(packet).is_none_or(|it| boot.firmware.contains(&it));
    if boot.mode == BootMode::Off || !is_served {
        return None;
    }
    let mac = mac.map_or_else(|| OWN_MAC.to_owned(), |mac| mac.to_string());
    let render = |template: &str, loader: &str| {
        template
            .replace("{server}", &format!("[{server}]"))
            .replace("{mac}", &mac)
            .replace("{loader}", loader)
    };
    match client {
        BootClient::Unsupported { .. } => None,
        BootClient::Ipxe { .. } => Some((render(&boot.script_url, ""), None)),
        BootClient::Rom { firmware, transport: Transport::Tftp } => {
            Some((render(TFTP_URL, boot.loaders.get(firmware)), None))
        }
        BootClient::Rom { firmware, transport: Transport::Http } => {
            let length = u16::try_from(HTTP_CLIENT.len()).unwrap_or_default();
            let class = [&ENTERPRISE.to_be_bytes(), length.to_be_bytes().as_slice(), HTTP_CLIENT].concat();
            Some((render(&boot.loader_url, boot.loaders.get(firmware)), Some(class)))
        }
    }
}
