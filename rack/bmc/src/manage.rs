//! A BMC's answers to commands that read and change its users and its LAN interface (IPMI 2.0 §22, §23).

use std::net::Ipv4Addr;

use crate::accounts::{Accounts, LAN_CHANNEL};
use crate::answers::{ok, refuse};
use crate::credentials::Privilege;
use crate::message::{CompletionCode, Response};

/// The system interface's own number (§6.3).
const SYSTEM_INTERFACE: u8 = 0x0f;
/// "This channel" (§6.3).
const PRESENT: u8 = 0x0e;
/// Octets 5 to 7 of Get Channel Info: the protocol is the specification's own.
const IPMI_FORUM: [u8; 3] = [0xf2, 0x1b, 0x00];
/// Access mode "always available" (§22.22), with user level and per-message authentication.
const ALWAYS: u8 = 0x02;

/// A command of this file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manage {
    SetChannelAccess,
    GetChannelAccess,
    GetChannelInfo,
    SetUserAccess,
    GetUserAccess,
    SetUserName,
    GetUserName,
    SetUserPassword,
    SetLan,
    GetLan,
    GetBootstrapAccount,
}

/// Carries out a command. `from` is the channel that it came from.
pub(crate) fn run(accounts: &mut Accounts, what: Manage, from: u8, data: &[u8]) -> Response {
    let done = match what {
        Manage::SetChannelAccess => set_channel_access(accounts, from, data),
        Manage::GetChannelAccess => lan_only(from, data).map(|()| channel_access(accounts)),
        Manage::GetChannelInfo => channel_info(from, data),
        Manage::SetUserAccess => set_user_access(accounts, from, data),
        Manage::GetUserAccess => user_access(accounts, from, data),
        Manage::SetUserName => set_user_name(accounts, data),
        Manage::GetUserName => user_name(accounts, data),
        Manage::SetUserPassword => set_user_password(accounts, data),
        Manage::SetLan => set_lan(accounts, from, data),
        Manage::GetLan => lan(accounts, from, data),
        // The account is the machine's own: sessions over LAN get none (DSP0270 §9.2).
        Manage::GetBootstrapAccount => match &accounts.bootstrap {
            Some(bootstrap) if from == SYSTEM_INTERFACE => return bootstrap.answer(data),
            _ => Err(CompletionCode::INVALID_COMMAND),
        },
    };
    done.map_or_else(refuse, ok)
}

type Answer = Result<Vec<u8>, CompletionCode>;

/// The channel that the first octet names.
fn channel(from: u8, data: &[u8]) -> Result<u8, CompletionCode> {
    match data.first().map(|octet| octet & 0x0f).ok_or(CompletionCode::BAD_LENGTH)? {
        PRESENT => Ok(from),
        named => Ok(named),
    }
}

fn lan_only(from: u8, data: &[u8]) -> Result<(), CompletionCode> {
    match channel(from, data)? {
        LAN_CHANNEL => Ok(()),
        _ => Err(CompletionCode::INVALID_FIELD),
    }
}

fn set_channel_access(accounts: &mut Accounts, from: u8, data: &[u8]) -> Answer {
    lan_only(from, data)?;
    let [_, access, _privilege] = data else { return Err(CompletionCode::BAD_LENGTH) };
    if access & 0xc0 != 0 {
        accounts.lan.enabled = access & 0x07 == ALWAYS;
    }
    Ok(vec![])
}

fn channel_access(accounts: &Accounts) -> Vec<u8> {
    vec![if accounts.lan.enabled { ALWAYS } else { 0 }, Privilege::Administrator.code()]
}

/// Medium and protocol (§22.24, tables 6-2 and 6-3).
fn channel_info(from: u8, data: &[u8]) -> Answer {
    let number = channel(from, data)?;
    let (medium, protocol, sessions) = match number {
        0 => (0x01, 0x01, 0),
        LAN_CHANNEL => (0x04, 0x01, 0x80),
        SYSTEM_INTERFACE => (0x0c, 0x05, 0),
        _ => return Err(CompletionCode::INVALID_FIELD),
    };
    Ok([&[number, medium, protocol, sessions][..], &IPMI_FORUM, &[0, 0]].concat())
}

fn set_user_access(accounts: &mut Accounts, from: u8, data: &[u8]) -> Answer {
    lan_only(from, data)?;
    let [flags, id, limit, ..] = data else { return Err(CompletionCode::BAD_LENGTH) };
    let slot = accounts.slot(*id)?;
    if flags & 0x80 != 0 {
        slot.messaging = flags & 0x10 != 0;
    }
    // 15 means "no access", which is no privilege.
    slot.privilege = Privilege::from_code(*limit);
    Ok(vec![])
}

fn user_access(accounts: &mut Accounts, from: u8, data: &[u8]) -> Answer {
    lan_only(from, data)?;
    let [_, id, ..] = data else { return Err(CompletionCode::BAD_LENGTH) };
    let small = |count: usize| u8::try_from(count & 0x3f).unwrap_or(0x3f);
    let (count, enabled) = (small(accounts.count()), small(accounts.enabled()));
    let slot = accounts.slot(*id)?;
    let status = if slot.enabled { 0x40 } else { 0x80 };
    let messaging = if slot.messaging { 0x10 } else { 0 };
    let limit = slot.privilege.map_or(0x0f, Privilege::code);
    Ok(vec![count, enabled | status, 1, messaging | limit])
}

fn set_user_name(accounts: &mut Accounts, data: &[u8]) -> Answer {
    let (id, name) = data.split_first().ok_or(CompletionCode::BAD_LENGTH)?;
    accounts.set_name(*id, name).map(|()| vec![])
}

fn user_name(accounts: &mut Accounts, data: &[u8]) -> Answer {
    let slot = accounts.slot(*data.first().ok_or(CompletionCode::BAD_LENGTH)?)?;
    let mut name = slot.name.as_ref().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
    name.resize(16, 0);
    Ok(name)
}

fn set_user_password(accounts: &mut Accounts, data: &[u8]) -> Answer {
    let [id, operation, password @ ..] = data else { return Err(CompletionCode::BAD_LENGTH) };
    match operation & 0x03 {
        0 => accounts.slot(*id)?.enabled = false,
        1 => accounts.slot(*id)?.enabled = true,
        2 => accounts.password(*id, false, password)?,
        _ => accounts.password(*id, true, password)?,
    }
    Ok(vec![])
}

fn set_lan(accounts: &mut Accounts, from: u8, data: &[u8]) -> Answer {
    lan_only(from, data)?;
    let [_, parameter, data @ ..] = data else { return Err(CompletionCode::BAD_LENGTH) };
    let address = || data.first_chunk::<4>().map(|it| Ipv4Addr::from(*it)).ok_or(CompletionCode::BAD_LENGTH);
    let lan = &mut accounts.lan;
    match parameter {
        // Set in progress, authentication, and the privileges of suites: there is only one writer, and only RMCP+.
        0 | 2 | 10 | 24 => {}
        3 => lan.address = address()?,
        4 => lan.dhcp = data.first().ok_or(CompletionCode::BAD_LENGTH)? & 0x0f == 2,
        6 => lan.mask = address()?,
        12 => lan.gateway = address()?,
        _ => return Err(CompletionCode::PARAMETER_NOT_SUPPORTED),
    }
    Ok(vec![])
}

/// Get LAN Configuration Parameters (§23.2, table 23-4): the revision, then the parameter.
fn lan(accounts: &Accounts, from: u8, data: &[u8]) -> Answer {
    lan_only(from, data)?;
    let [_, parameter, ..] = data else { return Err(CompletionCode::BAD_LENGTH) };
    let lan = &accounts.lan;
    let value: Vec<u8> = match parameter {
        0 | 13 => return Err(CompletionCode::PARAMETER_NOT_SUPPORTED),
        1 => vec![0],
        2 => vec![0; 5],
        3 => lan.address.octets().to_vec(),
        4 => vec![if lan.dhcp { 2 } else { 1 }],
        5 => lan.mac.to_vec(),
        6 => lan.mask.octets().to_vec(),
        12 => lan.gateway.octets().to_vec(),
        20 => vec![0, 0],
        22 => vec![2],
        23 => vec![0, 3, 17],
        _ => return Err(CompletionCode::PARAMETER_NOT_SUPPORTED),
    };
    Ok([&[0x11][..], &value].concat())
}
