//! The destination of a password that a machine made for its BMC (docs/decisions/110-redfish-from-inside.md).
//!
//! Redfish sends the password to the BMC. IPMI sends a proof from which the receiver can guess the password offline (RAKP, IPMI 2.0
//! §13.20). So racks use the account only at the address for which it was made:
//!
//! | part | today, for the account to be used |
//! | --- | --- |
//! | address | the same; or the lease of the BMC's MAC address, in the network of the same address |
//! | port | the same |
//! | certificate | [`is_as_strict`]; and after a move, the certificate that the BMC showed before |

use std::net::IpAddr;

use basalt_api::agent::{self, AddressSource, BmcDriver};
use basalt_api::kinds::{Bmc, BmcTls, MachineSpec};
use basalt_api::values::Host;
use basalt_db::{BmcAccount, BmcDestination};

/// An account was made, and no rack can reach it.
const NO_ADDRESS: &str = "the BMC had no address in a management network when its account was made: connect it, give it an address by DHCP or in its settings, or declare bmc.address; then `basalt recommission` makes another";

/// The end of each other refusal.
const REMEDY: &str =
    "racks do not use the account: undo that, or run `basalt recommission`, which makes another";

/// The addresses where a BMC may be today.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// The address in the latest inventory.
    pub found: Option<IpAddr>,
    /// A rack's lease of the account's MAC address, in the network of the account's address.
    pub leased: Option<IpAddr>,
}

/// The declared part of the destination. It is stored with the task that asks for the account.
#[must_use]
pub fn declared(spec: &MachineSpec) -> BmcDestination {
    let Some(bmc) = &spec.bmc else { return BmcDestination::default() };
    BmcDestination { address: bmc.address.clone(), mac: None, port: bmc.port, tls: bmc.tls.clone() }
}

/// The destination of an account: the declared part, and the address that the machine found while it made the account.
#[must_use]
pub fn completed(declared: BmcDestination, found: Option<&agent::Bmc>) -> BmcDestination {
    if declared.address.is_some() {
        return declared;
    }
    let address = found.and_then(address).map(Host::from);
    let found = found.filter(|it| address.is_some() && it.address_source == Some(AddressSource::Dhcp));
    let mac = found.and_then(|it| it.mac.as_ref()?.parse().ok());
    BmcDestination { address, mac, ..declared }
}

/// The address that a machine says its BMC has. Addresses that are no host's own are left out.
#[must_use]
pub fn address(found: &agent::Bmc) -> Option<IpAddr> {
    let address: IpAddr = found.address.as_ref()?.parse().ok()?;
    let address = address.to_canonical();
    let is_hosts = !address.is_loopback() && !address.is_multicast() && !address.is_unspecified();
    is_hosts.then_some(address)
}

/// Directs a declared BMC to the destination of its account.
///
/// # Errors
/// The BMC is not at that destination any more; as text for `status.bmc.problem`.
pub fn direct(bmc: &mut Bmc, account: &BmcAccount, seen: Seen) -> Result<(), String> {
    let made_for = &account.destination;
    let Some(home) = &made_for.address else { return Err(NO_ADDRESS.to_owned()) };
    let default = port(account.driver);
    let (then, now) = (made_for.port.unwrap_or(default), bmc.port.unwrap_or(default));
    if then != now {
        return Err(format!("the BMC's account was made for port {then}, and bmc.port is {now}; {REMEDY}"));
    }
    let pinned = account.certificate.filter(|_| account.driver == BmcDriver::Redfish);
    let pinned = pinned.map(|it| BmcTls { verify: true, ca: None, fingerprint: Some(it) });
    bmc.tls = bmc.tls.take().or(pinned);
    if !is_as_strict(made_for.tls.as_ref(), bmc.tls.as_ref()) {
        return Err(format!("bmc.tls is not as strict as when the BMC's account was made; {REMEDY}"));
    }
    let (at, says) = match (&bmc.address, seen) {
        (Some(declared), _) => (declared.clone(), "bmc.address is"),
        (None, Seen { leased: Some(leased), .. }) => {
            let has_moved = !is_same(home, &leased.into());
            if has_moved && account.driver == BmcDriver::Redfish && bmc.tls.is_none() {
                return Err(format!(
                    "the BMC has moved from {home} to {leased}, and no rack saw its certificate before; racks do not use the account: declare \
                     bmc.tls.fingerprint, or run `basalt recommission`, which makes another"
                ));
            }
            bmc.address = Some(leased.into());
            return Ok(());
        }
        (None, Seen { found: Some(found), .. }) => (found.into(), "the BMC now has"),
        (None, _) => (home.clone(), ""),
    };
    if !is_same(home, &at) {
        return Err(format!("the BMC's account was made for address {home}, and {says} {at}; {REMEDY}"));
    }
    bmc.address = Some(at);
    Ok(())
}

/// The usual port of a protocol.
const fn port(driver: BmcDriver) -> u16 {
    match driver {
        BmcDriver::Ipmi => 623,
        BmcDriver::Redfish => 443,
    }
}

/// True: both are one address, or one name.
fn is_same(one: &Host, other: &Host) -> bool {
    match (one.ip(), other.ip()) {
        (Some(one), Some(other)) => one.to_canonical() == other.to_canonical(),
        _ => one.as_str().eq_ignore_ascii_case(other.as_str()),
    }
}

/// True if `now` accepts no certificate that `then` refused. A fingerprint is the strictest rule, since it accepts one certificate.
fn is_as_strict(then: Option<&BmcTls>, now: Option<&BmcTls>) -> bool {
    let pins = |tls: &BmcTls| tls.verify && tls.fingerprint.is_some();
    let accepts_any = then.is_some_and(|then| !then.verify);
    then == now || accepts_any || (now.is_some_and(pins) && !then.is_some_and(pins))
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_api::values::Sha256;

    fn tls(verify: bool, ca: Option<&str>, pin: Option<u8>) -> BmcTls {
        let fingerprint = pin.map(|byte| Sha256::new([byte; 32]));
        BmcTls { verify, ca: ca.map(str::to_owned), fingerprint }
    }

    #[test]
    fn a_rule_for_certificates_may_only_become_stricter() {
        let first_seen = None;
        let any = Some(tls(false, None, None));
        let roots = Some(tls(true, None, None));
        let ca = Some(tls(true, Some("ca"), None));
        let one = Some(tls(true, None, Some(1)));
        let two = Some(tls(true, None, Some(2)));
        let all = [&first_seen, &any, &roots, &ca, &one, &two];
        // A row: the rule when the account was made. A column: the rule now.
        let expected = [
            [true, false, false, false, true, true],
            [true, true, true, true, true, true],
            [false, false, true, false, true, true],
            [false, false, false, true, true, true],
            [false, false, false, false, true, false],
            [false, false, false, false, false, true],
        ];
        let found = all.map(|then| all.map(|now| is_as_strict(then.as_ref(), now.as_ref())));
        assert_eq!(found, expected);
    }

    #[test]
    fn one_address_has_several_spellings() {
        let host = |text: &str| text.parse::<Host>().unwrap();
        assert!(is_same(&host("10.0.0.1"), &host("::ffff:10.0.0.1")));
        assert!(is_same(&host("2001:db8::1"), &host("2001:DB8:0:0::1")));
        assert!(is_same(&host("bmc-1.example.com"), &host("BMC-1.Example.com")));
        assert!(!is_same(&host("10.0.0.1"), &host("bmc-1.example.com")));
    }
}
