//! Boot clients and their boot options: PXE 2.1, RFC 4578, the architecture numbers of RFC 5970, UEFI HTTP boot, iPXE.

use std::collections::HashMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

use dhcproto::v4::OptionCode;
use serde::{Deserialize, Serialize};

use crate::egress::Message;
use crate::ingress::{Options, Packet};
use crate::{Boot, BootMode, Mac};

/// Option 175, iPXE's encapsulated options.
const IPXE_ENCAPSULATED: OptionCode = OptionCode::Unknown(175);
/// iPXE sub-option 19, `http`. An iPXE with HTTP support sends it with the value 1; an iPXE without it does not send
/// it.
const IPXE_HTTP: u8 = 19;
/// iPXE sub-option 176, `no-pxedhcp`: do not wait for a ProxyDHCP server; there is none.
const IPXE_NO_PXEDHCP: [u8; 3] = [176, 1, 1];
/// Option 43 for a PXE ROM: sub-option 6, PXE_DISCOVERY_CONTROL, bit 3: boot the file named in this reply and ask no
/// other server.
const PXE_USE_BOOT_FILE: [u8; 4] = [6, 1, 8, 255];
/// Option 0 is padding and has no length (RFC 2132 §3.1).
const PAD: u8 = 0;
pub(crate) const PXE_CLIENT: &[u8] = b"PXEClient";
pub(crate) const HTTP_CLIENT: &[u8] = b"HTTPClient";
pub(crate) const IPXE: &[u8] = b"iPXE";

/// The type of loader that a machine's firmware can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Firmware {
    /// x86 BIOS: 16-bit real mode loaders.
    Bios,
    /// x86-64 UEFI: 64-bit EFI programs.
    EfiX64,
    /// 64-bit ARM UEFI.
    EfiArm64,
}

impl Firmware {
    /// The architecture of the programs that it starts.
    #[must_use]
    pub const fn architecture(self) -> Architecture {
        match self {
            Self::Bios | Self::EfiX64 => Architecture::Amd64,
            Self::EfiArm64 => Architecture::Arm64,
        }
    }
}

impl fmt::Display for Firmware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bios => "x86 BIOS",
            Self::EfiX64 => "x86-64 UEFI",
            Self::EfiArm64 => "arm64 UEFI",
        })
    }
}

/// The processor architecture that a machine is declared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// x86-64, 64 bit.
    Amd64,
    /// AArch64, 64 bit.
    Arm64,
}

impl Architecture {
    /// Finds an architecture by the name that Debian gives it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Amd64, Self::Arm64].into_iter().find(|it| it.to_string() == name)
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        })
    }
}

/// The architectures of machines by their MACs. A MAC without a declared architecture is absent.
pub type Declared = Arc<HashMap<Mac, Architecture>>;

/// A boot client announces another architecture than its machine is declared with. It gets no loader: the loader would
/// start, and then load a kernel that cannot run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{announced} starts programs for {}, and the machine is declared as {declared}", .announced.architecture())]
pub struct OtherArchitecture {
    /// The firmware that option 93 of the client names.
    pub announced: Firmware,
    /// The architecture in the Machine's spec.
    pub declared: Architecture,
}

impl OtherArchitecture {
    /// Compares the two; `None` if they agree, or if one is unknown.
    #[must_use]
    pub fn between(announced: Option<Firmware>, declared: Option<Architecture>) -> Option<Self> {
        let (announced, declared) = (announced?, declared?);
        (announced.architecture() != declared).then_some(Self { announced, declared })
    }
}

/// How a ROM fetches its loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// From the next server, by TFTP.
    Tftp,
    /// From a URL (UEFI HTTP boot).
    Http,
}

impl Transport {
    /// The transport of a ROM with this vendor class; `None` if the class is not a ROM's. Firmware lists all of its
    /// architectures, including those of the other transport, and accepts only answers with its own class (UEFI 2.10
    /// §24.7.2).
    pub(crate) fn of(class: &[u8]) -> Option<Self> {
        if class.starts_with(HTTP_CLIENT) {
            Some(Self::Http)
        } else {
            class.starts_with(PXE_CLIENT).then_some(Self::Tftp)
        }
    }
}

/// The processor architecture types that a loader exists for (IANA, "Processor Architecture Types"). The registered
/// transport counts only if the client sends no class.
pub(crate) const ARCHITECTURES: &[(u16, Firmware, Transport)] = &[
    (0x0000, Firmware::Bios, Transport::Tftp),
    (0x0007, Firmware::EfiX64, Transport::Tftp),
    (0x0009, Firmware::EfiX64, Transport::Tftp), // "EBC": what x86-64 firmware sent before RFC 4578's erratum
    (0x000b, Firmware::EfiArm64, Transport::Tftp),
    (0x000f, Firmware::EfiX64, Transport::Http), // registered for 32-bit x86, sent by 64-bit firmware too
    (0x0010, Firmware::EfiX64, Transport::Http),
    (0x0013, Firmware::EfiArm64, Transport::Http),
];

/// A client that asks for something to boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootClient {
    /// iPXE, chain-loaded or in ROM: gets the URL of its script. An iPXE ROM without HTTP support counts as
    /// [`Self::Rom`]: it gets a loader, an iPXE with HTTP.
    Ipxe {
        /// The firmware below iPXE, by option 93. `None`: iPXE names no firmware of [`Firmware`].
        firmware: Option<Firmware>,
    },
    /// A PXE ROM or UEFI HTTP boot: gets a loader.
    Rom {
        /// The type of loader that the firmware can run.
        firmware: Firmware,
        /// How the ROM fetches the loader.
        transport: Transport,
    },
    /// There is no loader for the client's architecture: it gets an address and no boot options.
    Unsupported {
        /// The architecture number (option 93).
        architecture: u16,
    },
}

impl BootClient {
    /// Recognises a boot client by options 77, 175, 60 and 93; `None` for an operating system's DHCP client.
    #[must_use]
    pub fn of(packet: &Packet) -> Option<Self> {
        let options = &packet.options;
        let features = options.raw(IPXE_ENCAPSULATED);
        if options.raw(OptionCode::UserClass).is_some_and(is_ipxe) && features.is_none_or(has_http) {
            return Some(Self::Ipxe { firmware: firmware(packet) });
        }
        let class = options.raw(OptionCode::ClassIdentifier)?;
        let transport = Transport::of(class)?;
        let offered = architectures(options, class);
        match (supported(&offered), offered.first()) {
            (Some(firmware), _) => Some(Self::Rom { firmware, transport }),
            (None, Some(&architecture)) => Some(Self::Unsupported { architecture }),
            // PXE 2.1 ROMs that are older than option 93 are BIOS ROMs. HTTP boot is newer than option 93.
            (None, None) => {
                let firmware = Firmware::Bios;
                (transport == Transport::Tftp).then_some(Self::Rom { firmware, transport })
            }
        }
    }

    /// The firmware that the client announces; `None` if there is no loader for it.
    #[must_use]
    pub const fn firmware(self) -> Option<Firmware> {
        match self {
            Self::Ipxe { firmware } => firmware,
            Self::Rom { firmware, .. } => Some(firmware),
            Self::Unsupported { .. } => None,
        }
    }

    /// Returns the mismatch if this client gets no loader because of its architecture. iPXE gets its script in any
    /// case, since a script is text. The caller that renders the script compares the architectures
    /// ([`BootClient::firmware`]).
    #[must_use]
    pub fn other_architecture(self, declared: Option<Architecture>) -> Option<OtherArchitecture> {
        OtherArchitecture::between(self.firmware(), declared).filter(|_| matches!(self, Self::Rom { .. }))
    }

    /// Writes the boot options for this client into a reply, and returns the file or URL.
    pub(crate) fn answer(
        self,
        boot: &Boot,
        request: &Packet,
        server: Ipv4Addr,
        reply: &mut Message,
    ) -> Option<String> {
        let is_served =
            boot.firmware.is_empty() || firmware(request).is_none_or(|it| boot.firmware.contains(&it));
        if boot.mode == BootMode::Off || !is_served {
            return None;
        }
        let mac = request.mac()?;
        let file = match self {
            Self::Unsupported { .. } => return None,
            Self::Ipxe { .. } => {
                // Without these options, iPXE does not accept a reply without an address.
                match boot.mode {
                    BootMode::Proxy => reply.option(OptionCode::ClassIdentifier, PXE_CLIENT),
                    _ => reply.option(IPXE_ENCAPSULATED, IPXE_NO_PXEDHCP),
                };
                render(&boot.script_url, server, mac, "")
            }
            Self::Rom { firmware, transport: Transport::Tftp } => {
                reply.option(OptionCode::ClassIdentifier, PXE_CLIENT);
                reply.option(OptionCode::VendorExtensions, PXE_USE_BOOT_FILE);
                if let Some(uuid) = request.options.raw(OptionCode::ClientMachineIdentifier) {
                    reply.option(OptionCode::ClientMachineIdentifier, uuid);
                }
                boot.loaders.get(firmware).to_owned()
            }
            Self::Rom { firmware, transport: Transport::Http } => {
                reply.option(OptionCode::ClassIdentifier, HTTP_CLIENT);
                render(&boot.loader_url, server, mac, boot.loaders.get(firmware))
            }
        };
        reply.siaddr = server;
        reply.file = file.clone().into_bytes();
        let asked = request.options.raw(OptionCode::ParameterRequestList).unwrap_or_default();
        let by_http = matches!(self, Self::Rom { transport: Transport::Http, .. });
        if by_http || asked.contains(&OptionCode::BootfileName.into()) {
            reply.option(OptionCode::BootfileName, file.as_bytes());
        }
        if asked.contains(&OptionCode::TFTPServerName.into()) {
            reply.option(OptionCode::TFTPServerName, server.to_string());
        }
        Some(file)
    }
}

/// User class `iPXE`: bare, as iPXE sends it, or as a list of length-prefixed classes (RFC 3004).
fn is_ipxe(user_class: &[u8]) -> bool {
    if user_class == IPXE {
        return true;
    }
    let mut rest = user_class;
    while let Some((&len, tail)) = rest.split_first() {
        let Some((class, tail)) = tail.split_at_checked(usize::from(len)) else { return false };
        if class == IPXE {
            return true;
        }
        rest = tail;
    }
    false
}

/// True if the encapsulated options say that this iPXE has HTTP. Reading stops at an option that is cut short.
fn has_http(mut features: &[u8]) -> bool {
    while let Some((&code, rest)) = features.split_first() {
        if code == PAD {
            features = rest;
            continue;
        }
        let Some((&len, rest)) = rest.split_first() else { return false };
        let Some((value, rest)) = rest.split_at_checked(usize::from(len)) else { return false };
        if code == IPXE_HTTP {
            return value.iter().any(|&byte| byte != 0);
        }
        features = rest;
    }
    false
}

/// The firmware of a boot client, by the first of its architectures that there is a loader for.
fn firmware(request: &Packet) -> Option<Firmware> {
    let class = request.options.raw(OptionCode::ClassIdentifier).unwrap_or_default();
    supported(&architectures(&request.options, class))
}

/// The firmware of the first of these architectures that there is a loader for.
pub(crate) fn supported(architectures: &[u16]) -> Option<Firmware> {
    architectures.iter().find_map(|number| ARCHITECTURES.iter().find(|row| row.0 == *number)).map(|row| row.1)
}

/// Option 93's list; without it, the number inside `PXEClient:Arch:00007:UNDI:003016`.
fn architectures(options: &Options, class: &[u8]) -> Vec<u16> {
    let listed = options.raw(OptionCode::ClientSystemArchitecture).unwrap_or_default();
    let (pairs, _) = listed.as_chunks::<2>();
    if !pairs.is_empty() {
        return pairs.iter().map(|&pair| u16::from_be_bytes(pair)).collect();
    }
    let text = std::str::from_utf8(class).unwrap_or_default();
    let number = text.split_once(":Arch:").and_then(|(_, rest)| rest.split(':').next());
    number.and_then(|digits| digits.parse().ok()).into_iter().collect()
}

fn render(template: &str, server: Ipv4Addr, mac: Mac, loader: &str) -> String {
    template
        .replace("{server}", &server.to_string())
        .replace("{mac}", &mac.to_string())
        .replace("{loader}", loader)
}

/// The boot client that a simulated client presents itself as; used by [`crate::client`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootIdentity {
    /// Option 93: the architecture number.
    pub architecture: u16,
    /// Option 97, the machine's UUID as in SMBIOS.
    pub uuid: Option<[u8; 16]>,
    /// Presents itself as iPXE (option 77).
    pub ipxe: bool,
}

impl BootIdentity {
    /// A ROM of this firmware that fetches by TFTP.
    #[must_use]
    pub fn rom(firmware: Firmware) -> Self {
        let architecture = match firmware {
            Firmware::Bios => 0,
            Firmware::EfiX64 => 7,
            Firmware::EfiArm64 => 11,
        };
        Self { architecture, uuid: None, ipxe: false }
    }

    /// iPXE on this firmware.
    #[must_use]
    pub fn ipxe(firmware: Firmware) -> Self {
        Self { ipxe: true, ..Self::rom(firmware) }
    }

    pub(crate) fn write(&self, message: &mut Message) {
        let http = ARCHITECTURES.iter().any(|row| row.0 == self.architecture && row.2 == Transport::Http);
        let class = if http { "HTTPClient" } else { "PXEClient" };
        message.option(
            OptionCode::ClassIdentifier,
            format!("{class}:Arch:{:05}:UNDI:003016", self.architecture),
        );
        message.option(OptionCode::ClientSystemArchitecture, self.architecture.to_be_bytes());
        message.option(OptionCode::ClientNetworkInterface, [1, 3, 16]);
        if let Some(uuid) = self.uuid {
            message.option(OptionCode::ClientMachineIdentifier, [&[0], uuid.as_slice()].concat());
        }
        if self.ipxe {
            message.option(OptionCode::UserClass, IPXE);
        }
    }
}
