//! Leases outside a rack's blocks, as they are reported to the region: neighbouring addresses are joined.

use std::net::IpAddr;

use basalt_dhcp::Time;
use basalt_proto::rack_v1::Leftover;

/// The most leases that are reported one by one. A fact must fit into a message, and IPv6 leases are rarely neighbours.
const MOST: usize = 4096;

/// A running lease: its subnet, its address, and the milliseconds until it ends.
pub(crate) type Running<'a> = (&'a str, IpAddr, u64);

/// The milliseconds until `ends`.
pub(crate) fn lasts(now: Time, ends: Time) -> u64 {
    u64::try_from(now.until(ends).as_millis()).unwrap_or(u64::MAX)
}

/// Joins leases, which must come in order of address: neighbours or, if those are still too many, all of a subnet.
pub(crate) fn runs<'a>(leases: impl Iterator<Item = Running<'a>> + Clone) -> Vec<Leftover> {
    let runs = joined(leases.clone(), |last, address| next(last) == Some(address));
    if runs.len() <= MOST { runs } else { joined(leases, |_, _| true) }
}

fn joined<'a>(
    leases: impl Iterator<Item = Running<'a>>,
    joins: impl Fn(IpAddr, IpAddr) -> bool,
) -> Vec<Leftover> {
    let mut runs: Vec<Leftover> = Vec::new();
    let mut last = None;
    for (subnet, address, ends_in_ms) in leases {
        match runs.last_mut() {
            Some(run) if run.subnet_uid == subnet && last.is_some_and(|last| joins(last, address)) => {
                run.end = address.to_string();
                run.ends_in_ms = run.ends_in_ms.max(ends_in_ms);
            }
            _ => runs.push(Leftover {
                subnet_uid: subnet.to_owned(),
                start: address.to_string(),
                end: address.to_string(),
                ends_in_ms,
            }),
        }
        last = Some(address);
    }
    runs
}

fn next(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => u32::from(address).checked_add(1).map(|it| IpAddr::V4(it.into())),
        IpAddr::V6(address) => u128::from(address).checked_add(1).map(|it| IpAddr::V6(it.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(leases: &[(&str, &str, u64)]) -> Vec<(String, String, String, u64)> {
        let leases = leases.iter().map(|(subnet, address, ends)| (*subnet, address.parse().unwrap(), *ends));
        runs(leases).into_iter().map(|it| (it.subnet_uid, it.start, it.end, it.ends_in_ms)).collect()
    }

    #[test]
    fn neighbours_of_one_subnet_are_one_until_the_last_of_them_ends() {
        let run =
            |subnet: &str, start: &str, end: &str, ends| (subnet.into(), start.into(), end.into(), ends);
        assert_eq!(
            told(&[("a", "10.0.0.1", 5), ("a", "10.0.0.2", 9), ("a", "10.0.0.4", 1), ("b", "10.0.0.5", 1)]),
            [
                run("a", "10.0.0.1", "10.0.0.2", 9),
                run("a", "10.0.0.4", "10.0.0.4", 1),
                run("b", "10.0.0.5", "10.0.0.5", 1)
            ]
        );
        assert_eq!(
            told(&[("a", "fd00::ff", 1), ("a", "fd00::100", 2)]),
            [run("a", "fd00::ff", "fd00::100", 2)]
        );
    }

    #[test]
    fn what_would_be_too_much_is_one_span_for_each_subnet() {
        let address =
            |subnet: u128, number: u128| IpAddr::V6(((0xfd00 << 112) + (subnet << 64) + number * 7).into());
        let leases = (0..2).flat_map(|subnet| (0..5000).map(move |number| (subnet, number)));
        let told = runs(leases.map(|(subnet, number)| {
            (if subnet == 0 { "a" } else { "b" }, address(subnet, number), u64::try_from(number).unwrap())
        }));
        let spans: Vec<_> =
            told.iter().map(|it| (&*it.subnet_uid, &*it.start, &*it.end, it.ends_in_ms)).collect();
        assert_eq!(
            spans,
            [("a", "fd00::", "fd00::88b1", 4999), ("b", "fd00:0:0:1::", "fd00:0:0:1::88b1", 4999)]
        );
    }
}
