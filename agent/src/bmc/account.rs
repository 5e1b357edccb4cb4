//! The region's account on the BMC, by IPMI. Other accounts are not changed.

use basalt_api::agent::{BmcAccount, BmcDriver, BmcSetup};
use basalt_api::sealing;

use super::password::{self, SHAPES, Shape};
use super::{
    Command, GET_CHANNEL_ACCESS, GET_USER_ACCESS, GET_USER_NAME, Interface, Refusal, SET_CHANNEL_ACCESS,
    SET_USER_ACCESS, SET_USER_NAME, SET_USER_PASSWORD, found,
};

/// Octets of a user name, and of a password in the shorter form.
const SHORT: usize = 16;
/// Octets of a password in the longer form (IPMI 2.0 §22.30), which bit 7 of the user's number asks for.
const LONG: usize = 20;
const LONG_FORM: u8 = 0x80;
/// Lowest privilege that may control power and boot device (appendix G).
const OPERATOR: u8 = 3;
/// Access mode "always available" (§22.22).
const ALWAYS: u8 = 2;
/// The tested password is wrong (§22.30).
const DIFFERS: u8 = 0x80;
/// Completion codes for a user that does not exist (§5.2).
const NOT_THERE: [u8; 3] = [0xc9, 0xcb, 0xcc];

/// Operations of Set User Password (§22.30).
#[derive(Clone, Copy)]
enum Operation {
    Disable = 0,
    Enable = 1,
    Set = 2,
    Test = 3,
}

/// Makes the account. Returns it with its password, sealed to the region's key for `purpose`. `promise` stores each password before the BMC
/// gets it.
///
/// # Errors
/// The message has the reason why there is no account, and a remedy. A slot that was free is freed again.
pub fn set_up(
    bmc: &mut impl Interface,
    wanted: &BmcSetup,
    purpose: &str,
    promise: &mut dyn FnMut(&BmcAccount) -> Result<(), String>,
) -> Result<BmcAccount, String> {
    let name = wanted.user.as_str();
    if name.is_empty() || name.len() > SHORT {
        return Err(format!(
            "IPMI has user names of 1 to {SHORT} bytes, and {name:?} is none: set bmc_user of Settings"
        ));
    }
    let key = hex::decode(&wanted.key).map_err(|_| "the region's key is not hexadecimal".to_owned())?;
    let channel = found::lan_channel(bmc)
        .map_err(|silence| silence.to_string())?
        .ok_or("the BMC has no LAN channel: nobody could log in by network")?;
    let place = place(bmc, channel, name)?;
    open_lan(bmc, channel)?;
    let account = |password: &str| -> Result<BmcAccount, String> {
        let sealed = sealing::seal(&key, purpose, password.as_bytes()).map_err(|error| error.to_string())?;
        let (user, driver, password) = (name.to_owned(), BmcDriver::Ipmi, hex::encode(sealed));
        Ok(BmcAccount { user, driver, slot: Some(place.slot), channel: Some(channel), password })
    };
    let mut told = None;
    let mut tell = |password: &str| {
        let account = account(password)?;
        promise(&account)?;
        told = Some(account);
        Ok(())
    };
    let made = if place.is_new {
        fill(bmc, channel, place.slot, name, &mut tell)
    } else {
        renew(bmc, channel, place.slot, &mut tell)
    };
    if made.is_err() && place.is_new {
        give_back(bmc, place.slot);
    }
    made?;
    told.ok_or_else(|| "the BMC has an account without a password".to_owned())
}

/// A function that stores a password at the rack.
type Promise<'a> = &'a mut dyn FnMut(&str) -> Result<(), String>;

/// The account's place on the BMC.
#[derive(Clone, Copy)]
struct Place {
    slot: u8,
    /// True if the slot was free.
    is_new: bool,
}

/// The slot with the existing account, or the first free one. Slot 1 belongs to the anonymous user.
fn place(bmc: &mut impl Interface, channel: u8, wanted: &str) -> Result<Place, String> {
    let access = bmc.ask(GET_USER_ACCESS, &[channel, 1]).map_err(|refusal| refusal.to_string())?;
    let count = access.first().map_or(0, |count| count & 0x3f);
    let (mut free, mut holders) = (None, Vec::new());
    for slot in 2..=count {
        let name = match bmc.ask(GET_USER_NAME, &[slot]) {
            Ok(name) => name,
            // Some BMCs refuse to name a user that does not exist.
            Err(Refusal::Code(_, code)) if NOT_THERE.contains(&code) => Vec::new(),
            Err(refusal) => return Err(refusal.to_string()),
        };
        let name = name.split(|octet| *octet == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name).trim().to_owned();
        match name.as_str() {
            "" | "(Empty User)" => free = free.or(Some(slot)),
            name if name == wanted => return Ok(Place { slot, is_new: false }),
            name => holders.push(name.to_owned()),
        }
    }
    free.map(|slot| Place { slot, is_new: true }).ok_or_else(|| {
        format!(
            "all {} user slots of the BMC are taken ({}): delete a user that nobody needs, or declare one of them in bmc",
            count.saturating_sub(1),
            holders.join(", ")
        )
    })
}

/// A new user: name, password, rights. It is enabled last, since some BMCs enable no user without a password.
fn fill(
    bmc: &mut impl Interface,
    channel: u8,
    slot: u8,
    name: &str,
    promise: Promise<'_>,
) -> Result<(), String> {
    let mut octets = name.as_bytes().to_vec();
    octets.resize(SHORT, 0);
    tell(bmc, SET_USER_NAME, &[&[slot], octets.as_slice()].concat())?;
    take_password(bmc, slot, promise)?;
    let_in(bmc, channel, slot)
}

/// A new password for an existing user. It is the last step: after a later failure nobody would know the password.
fn renew(bmc: &mut impl Interface, channel: u8, slot: u8, promise: Promise<'_>) -> Result<(), String> {
    let_in(bmc, channel, slot)?;
    take_password(bmc, slot, promise)
}

/// Gives a user the privilege for power control, and lets it log in.
fn let_in(bmc: &mut impl Interface, channel: u8, slot: u8) -> Result<(), String> {
    // Bit 7: the bits below count; bit 4: messages over LAN. Link authentication and callback stay off.
    tell(bmc, SET_USER_ACCESS, &[0x90 | channel, slot, OPERATOR, 0])?;
    operate(bmc, slot, Operation::Enable, "").map_err(|refusal| refusal.to_string())?;
    let access = bmc.ask(GET_USER_ACCESS, &[channel, slot]).map_err(|refusal| refusal.to_string())?;
    let rights = access.get(3).copied().unwrap_or_default();
    if rights & 0x10 == 0 || rights & 0x0f < OPERATOR || rights & 0x0f == 0x0f {
        return Err(format!(
            "the BMC took the rights of the user in slot {slot} and has others (0x{rights:02x}): give it the privilege operator on channel {channel} by hand"
        ));
    }
    Ok(())
}

/// Sets the first generated password that the BMC accepts and keeps.
fn take_password(bmc: &mut impl Interface, slot: u8, promise: Promise<'_>) -> Result<(), String> {
    let mut last = String::new();
    for shape in SHAPES {
        let password = password::random(shape).map_err(|error| format!("no random bytes: {error}"))?;
        // A password that is not stored at the rack would be lost with the machine.
        promise(&password)?;
        match keeps(bmc, slot, &password) {
            Ok(()) => return Ok(()),
            Err(refusal) => last = refusal.to_string(),
        }
    }
    let shapes: Vec<String> = SHAPES
        .iter()
        .map(|Shape { length, mixed }| {
            format!("{length} {}", if *mixed { "mixed characters" } else { "letters and digits" })
        })
        .collect();
    Err(format!(
        "the BMC takes no password of {} ({last}): relax its rules for passwords, or declare an account in bmc",
        shapes.join(", ")
    ))
}

fn keeps(bmc: &mut impl Interface, slot: u8, password: &str) -> Result<(), Refusal> {
    operate(bmc, slot, Operation::Set, password)?;
    match operate(bmc, slot, Operation::Test, password) {
        Err(Refusal::Code(command, DIFFERS)) => {
            Err(Refusal::Silent(command, "it stored another password than it was told".to_owned()))
        }
        // Some BMCs cannot test a password. The rack tests it later by a login.
        _ => Ok(()),
    }
}

fn operate(bmc: &mut impl Interface, slot: u8, operation: Operation, password: &str) -> Result<(), Refusal> {
    let (form, flag) = if password.len() > SHORT { (LONG, LONG_FORM) } else { (SHORT, 0) };
    let mut data = vec![slot | flag, operation as u8];
    if matches!(operation, Operation::Set | Operation::Test) {
        data.extend_from_slice(password.as_bytes());
        data.resize(2 + form, 0);
    }
    bmc.ask(SET_USER_PASSWORD, &data).map(|_| ())
}

/// Allows sessions over LAN at any time, now and after a restart of the BMC.
fn open_lan(bmc: &mut impl Interface, channel: u8) -> Result<(), String> {
    let access = |bmc: &mut _, which: u8| -> Option<u8> {
        Interface::ask(bmc, GET_CHANNEL_ACCESS, &[channel, which]).ok()?.first().copied()
    };
    // Non-volatile and volatile; bits 3 to 5 stay as they are.
    for which in [0x40, 0x80] {
        if let Some(now) = access(bmc, which).filter(|now| now & 0x07 != ALWAYS) {
            let changed = bmc.ask(SET_CHANNEL_ACCESS, &[channel, which | (now & 0x38) | ALWAYS, 0]);
            let after = access(bmc, which).unwrap_or_default();
            if after & 0x07 != ALWAYS {
                let why =
                    changed.err().map_or("the BMC took it without effect".to_owned(), |it| it.to_string());
                return Err(format!(
                    "the BMC takes no sessions over LAN on channel {channel}, and it cannot be turned on from inside ({why}): turn IPMI over LAN on in its settings"
                ));
            }
        }
    }
    Ok(())
}

/// Frees a slot again.
fn give_back(bmc: &mut impl Interface, slot: u8) {
    let _ = operate(bmc, slot, Operation::Disable, "");
    let _ = bmc.ask(SET_USER_NAME, &[&[slot][..], &[0; SHORT]].concat());
}

fn tell(bmc: &mut impl Interface, command: Command, data: &[u8]) -> Result<(), String> {
    bmc.ask(command, data).map(|_| ()).map_err(|refusal| refusal.to_string())
}
