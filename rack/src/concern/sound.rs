//! The usable part of a concern: a bad subnet or machine is left out, and the others are not affected.

use std::collections::HashMap;

use basalt_dhcp::Mac;
use basalt_proto::rack_v1::boot_machine::Action;
use basalt_proto::rack_v1::{BootConcern, BootMachine, DhcpConcern, KnownConcern, LocalBoot, ProxyConcern};
use basalt_proxy::Parent;
use ipnet::IpNet;

use crate::{boot, dhcp, dhcp6};

/// A concern without its unusable parts, and the reason for each part that was left out.
pub(super) type Sound<T> = (T, Vec<String>);

/// Leaves out subnets that contradict themselves or an earlier one, and clients whose options are malformed.
pub(super) fn dhcp(mut whole: DhcpConcern) -> Sound<DhcpConcern> {
    let mut left_out = Vec::new();
    if dhcp::config::config(&whole, 0).is_err() {
        let (subnets, clients) =
            (std::mem::take(&mut whole.subnets), std::mem::take(&mut whole.client_options));
        for subnet in subnets {
            whole.subnets.push(subnet);
            if let Err(why) = dhcp::config::config(&whole, 0) {
                left_out.push(why.to_string());
                whole.subnets.pop();
            }
        }
        for client in clients {
            whole.client_options.push(client);
            if let Err(why) = dhcp::config::config(&whole, 0) {
                left_out.push(why.to_string());
                whole.client_options.pop();
            }
        }
    }
    if dhcp6::config::config(&whole, 0).is_err() {
        for subnet in std::mem::take(&mut whole.subnets6) {
            whole.subnets6.push(subnet);
            if let Err(why) = dhcp6::config::config(&whole, 0) {
                left_out.push(why.to_string());
                whole.subnets6.pop();
            }
        }
    }
    (whole, left_out)
}

/// Leaves out machines that share a MAC: a request with it could come from any of them. The region writes entries one
/// by one, so a MAC that moves to another machine may belong to both for a moment.
pub(super) fn known(mut whole: KnownConcern) -> Sound<KnownConcern> {
    let mut left_out = Vec::new();
    only_own_macs(&mut whole.machines, &mut left_out);
    (whole, left_out)
}

/// Leaves out machines that share a MAC. A machine with an unusable action boots its disk.
pub(super) fn boot(mut whole: BootConcern) -> Sound<BootConcern> {
    let mut left_out = Vec::new();
    only_own_macs(&mut whole.machines, &mut left_out);
    for machine in &mut whole.machines {
        if let Some(Action::Ephemeral(ephemeral)) = &machine.action
            && let Err(why) = boot::check_ephemeral(ephemeral)
        {
            left_out.push(format!("machine {:?} boots its disk: {why}", machine.name));
            machine.action = Some(Action::Local(LocalBoot {}));
        }
    }
    let tasks = whole.enlist.iter().flat_map(|it| &it.tasks).filter_map(|task| task.boot.as_ref());
    if let Some(Err(why)) = tasks.map(boot::check_ephemeral).find(Result::is_err) {
        left_out.push(format!("unknown machines boot their disks: {why}"));
        whole.enlist = None;
    }
    (whole, left_out)
}

/// Leaves out clients that are not networks. If a forbidden destination or the upstream cannot be parsed, there is no
/// proxy: it could reach a forbidden destination.
pub(super) fn proxy(mut whole: ProxyConcern) -> Sound<ProxyConcern> {
    let mut left_out = Vec::new();
    whole.clients.retain(|net| match net.parse::<IpNet>() {
        Ok(_) => true,
        Err(error) => {
            left_out.push(format!("hosts of {net:?} may not use the proxy: {error}"));
            false
        }
    });
    let denied = whole.denied.iter().find(|net| net.parse::<IpNet>().is_err());
    let problem = match (denied, whole.upstream.as_str()) {
        (Some(net), _) => Some(format!("{net:?} is no network to keep clients from")),
        (None, url) if !url.is_empty() && Parent::parse(url).is_none() => {
            Some(format!("{url:?} is no proxy; http://HOST:PORT is"))
        }
        _ => None,
    };
    if let Some(problem) = problem {
        whole.enabled = false;
        left_out.push(format!("no proxy is served: {problem}"));
    }
    (whole, left_out)
}

fn only_own_macs(machines: &mut Vec<BootMachine>, left_out: &mut Vec<String>) {
    let mut owners: HashMap<Mac, Vec<String>> = HashMap::new();
    for machine in machines.iter() {
        for mac in machine.macs.iter().filter_map(|mac| mac.parse().ok()) {
            owners.entry(mac).or_default().push(machine.name.clone());
        }
    }
    machines.retain(|machine| match boot::check_macs(machine, &owners) {
        Ok(()) => true,
        Err(why) => {
            left_out.push(why);
            false
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::fixtures;
    use basalt_proto::rack_v1::{ClientOptions, Dhcp6Subnet, DhcpSubnet, RawOption};

    fn subnet(cidr: &str, lease_seconds: u32) -> DhcpSubnet {
        DhcpSubnet { subnet_uid: cidr.into(), cidr: cidr.into(), lease_seconds, ..DhcpSubnet::default() }
    }

    fn client(mac: &str, code: u32) -> ClientOptions {
        ClientOptions { mac: mac.into(), options: vec![RawOption { code, value: vec![1] }] }
    }

    #[test]
    fn a_subnet_that_contradicts_itself_is_left_out_and_the_others_are_served() {
        let whole = DhcpConcern {
            subnets: vec![
                subnet("10.77.0.0/24", 600),
                subnet("10.78.0.0/24", 30),
                subnet("10.77.0.0/16", 600),
            ],
            client_options: vec![client("52:54:00:00:00:01", 300), client("52:54:00:00:00:02", 150)],
            subnets6: vec![
                Dhcp6Subnet { cidr: "nonsense".into(), ..Dhcp6Subnet::default() },
                Dhcp6Subnet { cidr: "2001:db8::/64".into(), ..Dhcp6Subnet::default() },
            ],
            ..DhcpConcern::default()
        };
        let (sound, left_out) = dhcp(whole);
        let cidrs: Vec<_> = sound.subnets.iter().map(|it| it.cidr.as_str()).collect();
        assert_eq!(cidrs, ["10.77.0.0/24"]);
        assert_eq!(sound.client_options, [client("52:54:00:00:00:02", 150)]);
        assert_eq!(sound.subnets6.len(), 1);
        for (why, what) in left_out.iter().zip(["30 s", "overlap", "300", "nonsense"]) {
            assert!(why.contains(what), "{what}: {why}");
        }
        assert_eq!(left_out.len(), 4);
    }

    #[test]
    fn a_machine_that_cannot_be_booted_boots_its_disk_and_keeps_no_other_from_its_task() {
        let mut whole = fixtures::concern();
        let mut bad = fixtures::ephemeral(18);
        bad.kernel_options = "quiet || shell".into();
        whole.machines.push(fixtures::machine(4, Action::Ephemeral(bad.clone())));
        let mut enlist = fixtures::enlist();
        enlist.tasks[1].boot = Some(bad);
        whole.enlist = Some(enlist);
        let (sound, left_out) = boot(whole.clone());
        assert_eq!(sound.machines[..3], whole.machines[..3]);
        assert_eq!(sound.machines[3].action, Some(Action::Local(LocalBoot {})));
        assert_eq!(sound.enlist, None);
        assert!(left_out[0].contains("machine \"m4\" boots its disk: kernel options"), "{left_out:?}");
        assert!(left_out[1].contains("unknown machines"), "{left_out:?}");
    }

    #[test]
    fn a_proxy_that_would_reach_too_much_is_none_and_a_client_that_is_no_network_is_left_out() {
        let whole = ProxyConcern {
            enabled: true,
            clients: vec!["10.77.0.0/24".into(), "lab".into()],
            denied: vec!["10.9.0.0/24".into()],
            upstream: "http://proxy.example.com:3128".into(),
            ..ProxyConcern::default()
        };
        let (sound, left_out) = proxy(whole.clone());
        assert_eq!((sound.enabled, &sound.clients[..]), (true, &["10.77.0.0/24".to_owned()][..]));
        assert!(left_out.len() == 1 && left_out[0].contains("\"lab\""), "{left_out:?}");
        let denied = ProxyConcern { denied: vec!["bmcs".into()], ..whole.clone() };
        let upstream = ProxyConcern { upstream: "https://proxy.example.com".into(), ..whole };
        for (bad, word) in [(denied, "\"bmcs\""), (upstream, "http://HOST:PORT")] {
            let (sound, left_out) = proxy(bad);
            assert!(!sound.enabled && left_out.iter().any(|why| why.contains(word)), "{left_out:?}");
        }
    }

    #[test]
    fn machines_that_share_a_mac_are_left_out() {
        let mut whole = fixtures::concern();
        whole.machines.push(fixtures::machine(4, Action::Local(LocalBoot {})));
        whole.machines[1].macs = whole.machines[0].macs.clone();
        whole.machines[2].macs = vec!["nonsense".to_owned()];
        let last = vec![whole.machines[3].clone()];
        let (sound, left_out) = boot(whole.clone());
        assert_eq!(sound.machines, last);
        for why in &left_out[..2] {
            assert!(why.contains("belongs to both \"m1\" and \"m2\""), "{left_out:?}");
        }
        assert!(left_out[2].contains("machine \"m3\""), "{left_out:?}");
        assert_eq!(known(KnownConcern { machines: whole.machines }).0.machines, last);
    }
}
