//! Payloads that open a session: Open Session and RAKP 1-4 (§13.17-13.24).

use crate::error::Failure;
use crate::wire::Reader;

/// The RMCP+ status codes (table 13-15) that the code checks for.
pub(crate) mod status {
    pub(crate) const OK: u8 = 0x00;
    pub(crate) const NO_RESOURCES: u8 = 0x01;
    pub(crate) const INVALID_SESSION: u8 = 0x02;
    pub(crate) const INVALID_ROLE: u8 = 0x09;
    pub(crate) const UNAUTHORIZED_ROLE: u8 = 0x0a;
    pub(crate) const NO_RESOURCES_FOR_ROLE: u8 = 0x0b;
    pub(crate) const UNAUTHORIZED_NAME: u8 = 0x0d;
    pub(crate) const INVALID_CODE: u8 = 0x0f;
    pub(crate) const NO_MATCHING_SUITE: u8 = 0x11;
}

/// The texts of table 13-15.
const STATUS_WORDS: [&str; 19] = [
    "no error",
    "no resources for a session",
    "invalid session id",
    "invalid payload type",
    "invalid authentication algorithm",
    "invalid integrity algorithm",
    "no matching authentication payload",
    "no matching integrity payload",
    "inactive session id",
    "invalid role",
    "unauthorized role or privilege level",
    "no resources for a session at this role",
    "invalid name length",
    "unauthorized name",
    "unauthorized GUID",
    "invalid integrity check value",
    "invalid confidentiality algorithm",
    "no matching cipher suite",
    "illegal or unrecognised parameter",
];

/// The text of a status.
pub(crate) fn status_words(status: u8) -> &'static str {
    STATUS_WORDS.get(usize::from(status)).copied().unwrap_or("a status of its own")
}

/// True if the status means that the algorithms were refused.
pub(crate) fn refuses_suite(status: u8) -> bool {
    matches!(status, 0x04..=0x07 | 0x10 | 0x11)
}

/// The role octet's flag: look the user up by name alone, not by name and privilege.
pub(crate) const NAME_ONLY_LOOKUP: u8 = 0x10;

/// RMCP+ Open Session Request.
pub(crate) struct OpenRequest {
    pub(crate) tag: u8,
    pub(crate) privilege: u8,
    pub(crate) console_session: u32,
    pub(crate) algorithms: [u8; 3],
}

/// The three algorithm payloads: authentication, integrity, confidentiality.
fn encode_algorithms(algorithms: [u8; 3], out: &mut Vec<u8>) {
    for (kind, algorithm) in (0u8..).zip(algorithms) {
        out.extend_from_slice(&[kind, 0, 0, 8, algorithm, 0, 0, 0]);
    }
}

fn decode_algorithms(reader: &mut Reader<'_>) -> Option<[u8; 3]> {
    let mut algorithms = [0; 3];
    for (kind, slot) in (0u8..).zip(&mut algorithms) {
        let [is, _, _, _length, algorithm, ..] = reader.array::<8>()?;
        if is != kind {
            return None;
        }
        *slot = algorithm & 0x3f;
    }
    Some(algorithms)
}

impl OpenRequest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.tag, self.privilege, 0, 0];
        out.extend_from_slice(&self.console_session.to_le_bytes());
        encode_algorithms(self.algorithms, &mut out);
        out
    }

    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let [tag, privilege, _, _] = reader.array()?;
        Some(Self {
            tag,
            privilege: privilege & 0x0f,
            console_session: reader.u32()?,
            algorithms: decode_algorithms(&mut reader)?,
        })
    }
}

/// RMCP+ Open Session Response.
pub(crate) struct OpenResponse {
    pub(crate) tag: u8,
    pub(crate) status: u8,
    pub(crate) console_session: u32,
    /// Absent when the status is an error.
    pub(crate) accepted: Option<Accepted>,
}

/// The successful part of [`OpenResponse`].
pub(crate) struct Accepted {
    pub(crate) privilege: u8,
    pub(crate) bmc_session: u32,
    pub(crate) algorithms: [u8; 3],
}

impl OpenResponse {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let privilege = self.accepted.as_ref().map_or(0, |accepted| accepted.privilege);
        let mut out = vec![self.tag, self.status, privilege, 0];
        out.extend_from_slice(&self.console_session.to_le_bytes());
        if let Some(accepted) = &self.accepted {
            out.extend_from_slice(&accepted.bmc_session.to_le_bytes());
            encode_algorithms(accepted.algorithms, &mut out);
        }
        out
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Failure> {
        Self::parts(payload).ok_or(Failure::Malformed("Open Session response"))
    }

    fn parts(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let [tag, status] = reader.array()?;
        // Some BMCs, and ipmi_sim, end an error response after its status.
        let [privilege, _reserved] = reader.array().unwrap_or_default();
        let console_session = reader.u32();
        let accepted = if status == status::OK {
            Some(Accepted {
                privilege,
                bmc_session: reader.u32().filter(|session| *session != 0)?,
                algorithms: decode_algorithms(&mut reader)?,
            })
        } else {
            None
        };
        Some(Self { tag, status, console_session: console_session.unwrap_or(0), accepted })
    }
}

/// RAKP message 1: the user, the requested role, and a challenge.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Rakp1 {
    pub(crate) tag: u8,
    pub(crate) bmc_session: u32,
    pub(crate) console_random: [u8; 16],
    pub(crate) role: u8,
    pub(crate) username: Vec<u8>,
}

impl Rakp1 {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.tag, 0, 0, 0];
        out.extend_from_slice(&self.bmc_session.to_le_bytes());
        out.extend_from_slice(&self.console_random);
        let length = u8::try_from(self.username.len()).unwrap_or(u8::MAX);
        out.extend_from_slice(&[self.role, 0, 0, length]);
        out.extend_from_slice(&self.username);
        out
    }

    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let [tag, _, _, _] = reader.array()?;
        let bmc_session = reader.u32()?;
        let console_random = reader.array()?;
        let [role, _, _, length] = reader.array()?;
        if length > 16 {
            return None;
        }
        Some(Self {
            tag,
            bmc_session,
            console_random,
            role,
            username: reader.bytes(usize::from(length))?.to_vec(),
        })
    }
}

/// RAKP messages 2, 3 and 4: a tag, a status, the receiver's session, and a proof.
pub(crate) struct Rakp<'a> {
    pub(crate) tag: u8,
    pub(crate) status: u8,
    /// The session id of the side that receives this.
    pub(crate) session: u32,
    pub(crate) body: &'a [u8],
}

impl<'a> Rakp<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.tag, self.status, 0, 0];
        out.extend_from_slice(&self.session.to_le_bytes());
        out.extend_from_slice(self.body);
        out
    }

    pub(crate) fn decode(payload: &'a [u8], what: &'static str) -> Result<Self, Failure> {
        let mut reader = Reader::new(payload);
        let [tag, status] = reader.array().ok_or(Failure::Malformed(what))?;
        let session = match reader.array::<2>().and(reader.u32()) {
            Some(session) => session,
            None if status == status::OK => return Err(Failure::Malformed(what)),
            // Some BMCs end an error response after its status, as above.
            None => 0,
        };
        Ok(Self { tag, status, session, body: reader.rest() })
    }
}

/// The body of RAKP 2: the BMC's challenge, its GUID, and its authentication code.
pub(crate) struct Rakp2Body<'a> {
    pub(crate) bmc_random: [u8; 16],
    pub(crate) bmc_guid: [u8; 16],
    pub(crate) code: &'a [u8],
}

impl<'a> Rakp2Body<'a> {
    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Failure> {
        let mut reader = Reader::new(body);
        match (reader.array(), reader.array()) {
            (Some(bmc_random), Some(bmc_guid)) => Ok(Self { bmc_random, bmc_guid, code: reader.rest() }),
            _ => Err(Failure::Malformed("RAKP 2")),
        }
    }
}
