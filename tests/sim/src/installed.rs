//! An installed system. It boots from its disk, configures its network from its netplan file, and runs the boot hook of
//! its cloud-init seed.

use std::net::{Ipv4Addr, SocketAddr};

use basalt_api::agent::{FIRST_BOOT_DONE, FIRST_BOOT_FAILED};

use crate::event::{Event, Speaker};
use crate::hardware::System;
use crate::life::{Life, Stop};
use crate::task::FAILS;
use crate::{cable, dhcp, web};

/// Number of attempts of the boot hook to report.
const TRIES: u32 = 60;

/// Boots the disk, if it is bootable. Returns once the system has nothing left to do.
pub(crate) fn boot(life: &Life) -> Result<bool, Stop> {
    let system = match life.act(|_| life.chassis().hardware.system())? {
        Ok(Some(system)) => system,
        Ok(None) => return Ok(false),
        Err(error) => return life.refused(format!("the disk cannot be read: {error}")).map(|()| false),
    };
    life.act(|power| power.button = true)?;
    life.event(Event::BootedDisk { attempt: system.attempt, hostname: system.hostname.clone() })?;
    network(life, &system)?;
    for level in levels(&system.seed.vendor_data) {
        report(life, &urls(&system.seed.vendor_data), &level, "")?;
    }
    if let Some(scripts) = &system.first_boot {
        let failure = format!("script {FAILS} ended with exit status: 1");
        let (level, said) = match scripts.iter().any(|name| name == FAILS) {
            true => (FIRST_BOOT_FAILED, failure.as_str()),
            false => (FIRST_BOOT_DONE, ""),
        };
        report(life, &urls(&system.seed.vendor_data), level, said)?;
    }
    Ok(true)
}

fn network(life: &Life, system: &System) -> Result<(), Stop> {
    if let Some((address, prefix)) = fixed_address(&system.netplan) {
        return match life.act(|_| cable::configure(life.namespace(), address, prefix, None))? {
            Ok(()) => Ok(()),
            Err(error) => life.refused(format!("netplan: {error}")),
        };
    }
    // An operating system never stops asking.
    while dhcp::lease(life, Speaker::System)?.is_none() {
        life.linger()?;
    }
    Ok(())
}

/// Reports to the first URL that answers, with retries.
fn report(life: &Life, urls: &[String], level: &str, said: &str) -> Result<(), Stop> {
    for number in 0..TRIES {
        for url in urls {
            match web::post(life, &format!("{url}/{level}"), said.as_bytes())? {
                Ok(_) => return life.event(Event::Reported { level: level.to_owned() }),
                // One log entry is enough.
                Err(why) if number == 0 => life.refused(why)?,
                Err(_) => {}
            }
        }
        life.linger()?;
    }
    life.refused(format!("{level} could not be reported to {}", urls.join(" ")))
}

/// The first static IPv4 address in the netplan file.
fn fixed_address(netplan: &str) -> Option<(Ipv4Addr, u8)> {
    let list = netplan
        .lines()
        .skip_while(|line| line.trim() != "dhcp4: false")
        .find_map(|line| line.trim().strip_prefix("addresses:"))?;
    list.split(['[', ']', ',', '"', '\'', ' ']).find_map(|word| {
        let (address, prefix) = word.split_once('/')?;
        Some((address.parse().ok()?, prefix.parse().ok().filter(|prefix| *prefix <= 32)?))
    })
}

/// The lines of the boot hook (cloud-init: "Cloud boothook"). None if the vendor data has another format.
fn boot_hook(vendor_data: &str) -> Option<&str> {
    vendor_data.strip_prefix("#cloud-boothook\n")
}

/// The boot hook's URLs: the words in its loop. Simulated machines resolve no names, so URLs with a name are left out.
fn urls(vendor_data: &str) -> Vec<String> {
    let hook = boot_hook(vendor_data).unwrap_or_default();
    let words = hook.lines().find_map(|line| line.trim().strip_prefix("for url in ")?.strip_suffix("; do"));
    let words = words.unwrap_or_default().split_whitespace().map(|word| word.trim_matches('\''));
    words.filter(|url| is_by_address(url)).map(str::to_owned).collect()
}

fn is_by_address(url: &str) -> bool {
    let authority = url.strip_prefix("http://").and_then(|rest| rest.split('/').next());
    authority.is_some_and(|it| it.parse::<SocketAddr>().is_ok())
}

/// The boot hook's levels, in order: the arguments of its calls of `report`.
fn levels(vendor_data: &str) -> Vec<String> {
    let hook = boot_hook(vendor_data).unwrap_or_default();
    let calls = hook.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words: Vec<&str> =
        calls.flat_map(|line| line.split([' ', '(', ')', ';', '&'])).filter(|w| !w.is_empty()).collect();
    let after_report = words.windows(2).filter(|pair| pair.first() == Some(&"report"));
    after_report
        .filter_map(|pair| pair.get(1))
        .filter(|word| **word != "{")
        .map(|word| (*word).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOOK: &str = "#cloud-boothook
#!/bin/sh
# Tells the rack. In the background, and to report is not urgent.
post() {
    python3 -c '…' \"$1\"
}
report() {
    for try in $(seq 60); do
        for url in 'http://lab.rack.basalt.internal:5248/report/T' 'http://10.77.0.1:5248/report/T' 'http://10.77.0.2:5248/report/T'; do
            post \"$url/$1\" && return 0
        done
        sleep 10
    done
}
(report booted; cloud-init status --wait && sync && report cloud_init) </dev/null >/dev/null 2>&1 &
";

    #[test]
    fn the_boot_hook_says_where_and_what_to_report() {
        assert_eq!(urls(HOOK), ["http://10.77.0.1:5248/report/T", "http://10.77.0.2:5248/report/T"]);
        assert_eq!(levels(HOOK), ["booted", "cloud_init"]);
    }

    #[test]
    fn without_a_boot_hook_nothing_is_reported() {
        for other in ["", "#cloud-config\n{}\n", "for url in 'x'; do"] {
            assert!(urls(other).is_empty() && levels(other).is_empty(), "{other:?}");
        }
    }

    #[test]
    fn a_fixed_address_is_found_in_netplan_and_dhcp_has_none() {
        let fixed = "network:\n  ethernets:\n    \"eth0\":\n      dhcp4: false\n      addresses: [\"10.77.0.60/24\"]\n";
        assert_eq!(fixed_address(fixed), Some((Ipv4Addr::new(10, 77, 0, 60), 24)));
        let dynamic = "network:\n  ethernets:\n    \"eth0\":\n      dhcp4: true\n      nameservers:\n        addresses: [\"10.77.0.1\"]\n";
        assert_eq!(fixed_address(dynamic), None);
    }
}
