//! The BMC's answers to commands: a table, and a small function for each answer that takes more than a line.

use crate::accounts::{Accounts, LAN_CHANNEL};
use crate::client::BMC_KEY_IS_SET;
use crate::command::{self, BootOverride, PowerVerb, boot_parameter};
use crate::credentials::Privilege;
use crate::manage::{self, Manage};
use crate::message::{self, CommandId, CompletionCode, Response};
use crate::server::{ChassisRequest, ServerConfig};

/// The handling of a command.
pub(crate) enum Action {
    DeviceId,
    Guid,
    Capabilities,
    CipherSuites,
    SetPrivilege,
    Close,
    ColdReset,
    ChassisStatus,
    ChassisControl,
    SetBootOptions,
    GetBootOptions,
    /// A fixed answer, for interrupts and events of the machine's own interface, which this BMC does not have.
    Quiet(&'static [u8]),
    Manage(Manage),
}

/// The sender of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// A session over LAN, by its number.
    Session(u32),
    /// The machine itself.
    Machine,
}

impl From {
    fn channel(self) -> u8 {
        match self {
            Self::Session(_) => LAN_CHANNEL,
            Self::Machine => 0x0f,
        }
    }
}

/// A command that a session may send.
pub(crate) struct Served {
    pub(crate) id: CommandId,
    /// The privilege that a session needs for it (appendix G).
    pub(crate) privilege: Privilege,
    pub(crate) action: Action,
}

/// Every command a BMC serves.
static COMMANDS: [Served; 26] = [
    serve(command::GET_DEVICE_ID, Privilege::User, Action::DeviceId),
    serve(command::COLD_RESET, Privilege::Administrator, Action::ColdReset),
    serve(command::GET_SYSTEM_GUID, Privilege::User, Action::Guid),
    serve(command::GET_CHANNEL_AUTH_CAPABILITIES, Privilege::Callback, Action::Capabilities),
    serve(command::GET_CHANNEL_CIPHER_SUITES, Privilege::Callback, Action::CipherSuites),
    serve(command::SET_SESSION_PRIVILEGE, Privilege::Callback, Action::SetPrivilege),
    serve(command::CLOSE_SESSION, Privilege::Callback, Action::Close),
    serve(command::GET_CHASSIS_STATUS, Privilege::User, Action::ChassisStatus),
    serve(command::CHASSIS_CONTROL, Privilege::Operator, Action::ChassisControl),
    serve(command::SET_BOOT_OPTIONS, Privilege::Operator, Action::SetBootOptions),
    serve(command::GET_BOOT_OPTIONS, Privilege::Operator, Action::GetBootOptions),
    serve(command::SET_GLOBAL_ENABLES, Privilege::Administrator, Action::Quiet(&[])),
    serve(command::GET_GLOBAL_ENABLES, Privilege::User, Action::Quiet(&[0])),
    serve(command::CLEAR_MESSAGE_FLAGS, Privilege::Administrator, Action::Quiet(&[])),
    serve(command::GET_MESSAGE_FLAGS, Privilege::Administrator, Action::Quiet(&[0])),
    manage(command::SET_CHANNEL_ACCESS, Privilege::Administrator, Manage::SetChannelAccess),
    manage(command::GET_CHANNEL_ACCESS, Privilege::User, Manage::GetChannelAccess),
    manage(command::GET_CHANNEL_INFO, Privilege::User, Manage::GetChannelInfo),
    manage(command::SET_USER_ACCESS, Privilege::Administrator, Manage::SetUserAccess),
    manage(command::GET_USER_ACCESS, Privilege::Operator, Manage::GetUserAccess),
    manage(command::SET_USER_NAME, Privilege::Administrator, Manage::SetUserName),
    manage(command::GET_USER_NAME, Privilege::Operator, Manage::GetUserName),
    manage(command::SET_USER_PASSWORD, Privilege::Administrator, Manage::SetUserPassword),
    manage(command::SET_LAN_PARAMETER, Privilege::Administrator, Manage::SetLan),
    manage(command::GET_LAN_PARAMETER, Privilege::Operator, Manage::GetLan),
    manage(command::GET_BOOTSTRAP_ACCOUNT, Privilege::Administrator, Manage::GetBootstrapAccount),
];

const fn manage(id: CommandId, privilege: Privilege, what: Manage) -> Served {
    serve(id, privilege, Action::Manage(what))
}

const fn serve(id: CommandId, privilege: Privilege, action: Action) -> Served {
    Served { id, privilege, action }
}

/// The result of a command in a session.
pub(crate) enum Outcome {
    Answer(Response),
    /// Ask the chassis. The number is the boot option parameter to repeat in the answer.
    Chassis(ChassisRequest, u8),
    Closed(Response),
    /// Answer, then end every session.
    Restarted(Response),
}

/// The table's row for a request.
pub(crate) fn find(net_fn: u8, command: u8) -> Option<&'static Served> {
    COMMANDS.iter().find(|served| (served.id.net_fn, served.id.command) == (net_fn, command))
}

pub(crate) fn ok(data: Vec<u8>) -> Response {
    Response { code: CompletionCode::OK, data }
}

pub(crate) fn refuse(code: CompletionCode) -> Response {
    Response { code, data: vec![] }
}

/// Answers one of the few commands allowed outside a session.
pub(crate) fn sessionless(config: &ServerConfig, message: &[u8]) -> Option<Vec<u8>> {
    let request = message::decode_request(message).ok()?;
    let response = match find(request.net_fn, request.command)?.action {
        Action::Capabilities => capabilities(config, request.data),
        Action::CipherSuites => cipher_suites(config, request.data),
        Action::Guid => ok(config.guid.to_vec()),
        _ => return None,
    };
    Some(message::encode_response(request.net_fn, request.command, request.sequence, &response))
}

/// Carries out `action`, or returns the request to the chassis that it needs.
pub(crate) fn run(
    config: &ServerConfig,
    accounts: &mut Accounts,
    action: &Action,
    from: From,
    data: &[u8],
) -> Outcome {
    match action {
        Action::Quiet(answer) => Outcome::Answer(ok(answer.to_vec())),
        Action::Manage(what) => Outcome::Answer(manage::run(accounts, *what, from.channel(), data)),
        Action::DeviceId => Outcome::Answer(ok(config.device.encode())),
        Action::Guid => Outcome::Answer(ok(config.guid.to_vec())),
        Action::Capabilities => Outcome::Answer(capabilities(config, data)),
        Action::CipherSuites => Outcome::Answer(cipher_suites(config, data)),
        Action::Close => match (from, data.first_chunk()) {
            (From::Session(session), Some(named)) if *named == session.to_le_bytes() => {
                Outcome::Closed(ok(vec![]))
            }
            _ => Outcome::Answer(refuse(CompletionCode(0x87))),
        },
        Action::ColdReset => Outcome::Restarted(ok(vec![])),
        Action::ChassisStatus => Outcome::Chassis(ChassisRequest::Status, 0),
        Action::ChassisControl => match data.first().copied().and_then(PowerVerb::from_code) {
            Some(verb) => Outcome::Chassis(ChassisRequest::Control(verb), 0),
            None => Outcome::Answer(refuse(CompletionCode::INVALID_FIELD)),
        },
        Action::SetBootOptions => set_boot_options(data),
        Action::GetBootOptions => match data.first().map(|parameter| parameter & 0x7f) {
            Some(parameter @ boot_parameter::BOOT_FLAGS) => {
                Outcome::Chassis(ChassisRequest::BootOverride, parameter)
            }
            Some(_) => Outcome::Answer(refuse(CompletionCode::PARAMETER_NOT_SUPPORTED)),
            None => Outcome::Answer(refuse(CompletionCode::BAD_LENGTH)),
        },
        Action::SetPrivilege => Outcome::Answer(refuse(CompletionCode::UNSPECIFIED)),
    }
}

/// Get Channel Authentication Capabilities (§22.13): IPMI 2.0 only, named users only.
fn capabilities(config: &ServerConfig, data: &[u8]) -> Response {
    let [asked, _privilege, ..] = data else {
        return refuse(CompletionCode::BAD_LENGTH);
    };
    let extended = if asked & 0x80 != 0 { 0x80 } else { 0 };
    let named_users = 0x04;
    let bmc_key = if config.bmc_key.is_some() { BMC_KEY_IS_SET } else { 0 };
    let ipmi_2_0_only = if extended != 0 { 0x02 } else { 0 };
    ok(vec![1, extended, named_users | bmc_key, ipmi_2_0_only, 0, 0, 0, 0])
}

fn set_boot_options(data: &[u8]) -> Outcome {
    let Some((parameter, data)) = data.split_first() else {
        return Outcome::Answer(refuse(CompletionCode::BAD_LENGTH));
    };
    match parameter & 0x7f {
        boot_parameter::BOOT_FLAGS => match BootOverride::decode(data) {
            Some(boot) => Outcome::Chassis(ChassisRequest::SetBootOverride(boot), 0),
            None => Outcome::Answer(refuse(CompletionCode::INVALID_FIELD)),
        },
        // Accepted without effect: this BMC has one writer and no other reader, and keeps the flags until a boot uses
        // them.
        boot_parameter::SET_IN_PROGRESS
        | boot_parameter::VALID_BIT_CLEARING
        | boot_parameter::ACKNOWLEDGE => Outcome::Answer(ok(vec![])),
        _ => Outcome::Answer(refuse(CompletionCode::PARAMETER_NOT_SUPPORTED)),
    }
}

/// Get Channel Cipher Suites (§22.15): records of the suites, 16 octets at a time.
fn cipher_suites(config: &ServerConfig, data: &[u8]) -> Response {
    let [_channel, _payload, list, ..] = data else {
        return refuse(CompletionCode::BAD_LENGTH);
    };
    let mut records = Vec::new();
    for suite in &config.suites {
        let [authentication, integrity, confidentiality] = suite.algorithms();
        records.extend_from_slice(&[
            0xc0,
            suite.id,
            authentication,
            0x40 | integrity,
            0x80 | confidentiality,
        ]);
    }
    let page = records.chunks(16).nth(usize::from(list & 0x3f)).unwrap_or_default();
    ok([&[1], page].concat())
}
