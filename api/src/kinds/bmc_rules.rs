//! The rules between fields of a machine's BMC: the limits of the declared driver.

use super::bmc_key::bmc_key;
use super::bmc_webhook::webhook_rules;
use super::machine::{Bmc, BmcConfig, BmcTls, PowerDriver};
use crate::validate::Rule;

/// Longest user name and password that IPMI 2.0 can carry, in bytes (§22.28, §22.30).
const IPMI_USERNAME: usize = 16;
const IPMI_PASSWORD: usize = 20;

pub(super) fn bmc_rules(bmc: &Bmc, config: Option<BmcConfig>, rule: &mut Rule<'_>) {
    let driver = bmc.driver;
    // With `set_up`, commissioning finds the address and makes the account.
    let may_set_up = matches!(driver, PowerDriver::Ipmi | PowerDriver::Redfish);
    let sets_up = may_set_up && config != Some(BmcConfig::Leave) && bmc.username.is_none();
    match driver {
        PowerDriver::Manual if bmc.address.is_some() => rule.broken(
            "/bmc/address",
            "driver \"manual\" speaks to no BMC, and has no address",
            "leave the address out, or say driver = \"ipmi\", \"redfish\" or \"webhook\"",
        ),
        PowerDriver::Manual => {}
        _ if bmc.address.is_none() && !sets_up => rule.missing(
            "/bmc/address",
            format!("driver \"{driver}\" needs the BMC's address"),
            "the IP address or host name of the BMC, or driver = \"manual\"",
        ),
        _ => {}
    }
    if config == Some(BmcConfig::SetUp) && !may_set_up {
        rule.broken(
            "/commissioning/bmc",
            format!("an account is made by IPMI or Redfish, and driver = \"{driver}\" is neither"),
            "leave it out, or say driver = \"ipmi\" or \"redfish\"",
        );
    }
    match driver {
        PowerDriver::Ipmi => ipmi_rules(bmc, sets_up, rule),
        PowerDriver::Redfish => redfish_rules(bmc, sets_up, rule),
        PowerDriver::Webhook => account_rules(bmc, rule),
        PowerDriver::Manual => {}
    }
    webhook_rules(bmc, rule);
    if driver != PowerDriver::Redfish && bmc.options.system.is_some() {
        rule.broken(
            "/bmc/options/system",
            format!("driver \"{driver}\" knows one machine behind a BMC, and no systems"),
            "leave it out, or say driver = \"redfish\"",
        );
    }
    if bmc.tls.is_some() && !matches!(driver, PowerDriver::Redfish | PowerDriver::Webhook) {
        rule.broken(
            "/bmc/tls",
            format!("driver \"{driver}\" has no TLS, so that no certificate is looked at"),
            "leave it out, or say driver = \"redfish\" or \"webhook\"",
        );
    }
    if driver != PowerDriver::Ipmi {
        let of_ipmi = [
            ("options/cipher_suite", "cipher suites", bmc.options.cipher_suite.is_some()),
            ("options/privilege", "privilege levels", bmc.options.privilege.is_some()),
            ("k_g", "keys of BMCs", bmc.k_g.is_some()),
        ];
        for (field, what, _) in of_ipmi.into_iter().filter(|(.., given)| *given) {
            rule.broken(
                format!("/bmc/{field}"),
                format!("{what} are IPMI's, and driver \"{driver}\" has none"),
                "leave it out, or say driver = \"ipmi\"",
            );
        }
    }
    if let Some(tls) = &bmc.tls {
        tls_rules(tls, rule);
    }
}

fn ipmi_rules(bmc: &Bmc, sets_up: bool, rule: &mut Rule<'_>) {
    match bmc.username.as_deref() {
        None if sets_up => {}
        None => rule.missing(
            "/bmc/username",
            "driver \"ipmi\" needs an account of the BMC",
            "an account with the privilege operator, and its password; or leave commissioning.bmc out, and one is made",
        ),
        Some(name) if name.is_empty() || name.len() > IPMI_USERNAME => rule.broken(
            "/bmc/username",
            format!("IPMI has user names of 1 to {IPMI_USERNAME} bytes, and this one has {}", name.len()),
            "another account of the BMC, or driver = \"redfish\"",
        ),
        Some(_) => {}
    }
    // A password in its read form is stored already: there is nothing to check.
    let length = bmc.password.as_ref().and_then(|it| it.expose()).map_or(0, str::len);
    if length > IPMI_PASSWORD {
        rule.broken(
            "/bmc/password",
            format!("IPMI has passwords of up to {IPMI_PASSWORD} bytes, and this one has {length}"),
            "a shorter one, set on the BMC first, or driver = \"redfish\"",
        );
    }
    if let Some(why) = bmc.k_g.as_ref().and_then(|it| it.expose()).and_then(|key| bmc_key(key).err()) {
        rule.broken(
            "/bmc/k_g",
            why,
            "a text of 1 to 20 bytes, or 0x and 2 to 40 hexadecimal digits; left out or null for a BMC without a key",
        );
    }
    if let Some(suite) = bmc.options.cipher_suite
        && !matches!(suite, 3 | 17)
    {
        rule.broken(
            "/bmc/options/cipher_suite",
            format!("cipher suite {suite} is not one that Basalt speaks"),
            "3 or 17; left out, it is the first of 17 and 3 that the BMC accepts",
        );
    }
}

fn redfish_rules(bmc: &Bmc, sets_up: bool, rule: &mut Rule<'_>) {
    // A password that is left out may be stored already.
    if bmc.username.is_none() && !sets_up {
        rule.missing(
            "/bmc/username",
            "driver \"redfish\" needs an account of the BMC",
            "an account with the role Operator, and its password; or leave commissioning.bmc out, and one is made",
        );
    }
    account_rules(bmc, rule);
    if bmc.options.system.as_ref().is_some_and(|it| it.is_empty() || it.contains(['/', '?', '#'])) {
        rule.broken(
            "/bmc/options/system",
            "it is no last part of a path",
            "the part after /redfish/v1/Systems/ in its path, as System.Embedded.1; left out, it is the only one",
        );
    }
}

/// The rules for accounts of HTTP Basic authentication.
fn account_rules(bmc: &Bmc, rule: &mut Rule<'_>) {
    if bmc.username.as_ref().is_some_and(|name| name.is_empty() || name.contains(':')) {
        rule.broken(
            "/bmc/username",
            "HTTP has no accounts whose name is empty or has a colon (RFC 7617)",
            "another account of the BMC",
        );
    }
}

fn tls_rules(tls: &BmcTls, rule: &mut Rule<'_>) {
    let given = [("ca", tls.ca.is_some()), ("fingerprint", tls.fingerprint.is_some())];
    for (field, _) in given.into_iter().filter(|(_, given)| *given && !tls.verify) {
        rule.broken(
            format!("/bmc/tls/{field}"),
            format!("verify is false, so that nothing is compared with {field}"),
            format!("leave {field} out, or say verify = true"),
        );
    }
    if tls.ca.is_some() && tls.fingerprint.is_some() {
        rule.broken(
            "/bmc/tls/fingerprint",
            "the one certificate of this fingerprint is taken, whoever signed it, and ca says who may",
            "fingerprint or ca, not both",
        );
    }
    if tls.ca.as_ref().is_some_and(|ca| !ca.contains("-----BEGIN CERTIFICATE-----")) {
        rule.broken("/bmc/tls/ca", "ca has no certificate", "-----BEGIN CERTIFICATE----- and what follows");
    }
}
