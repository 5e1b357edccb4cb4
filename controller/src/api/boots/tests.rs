//! Tests of the division of messages into boots, and of their judgements.

use super::*;
use crate::racks::observed::BootTraceEntry;
use basalt_api::kinds::Architecture;
use basalt_db::HeardPort;

const MAC: Mac = Mac::new([0x52, 0x54, 0, 0, 0, 1]);

type Seen<'a> = (i64, &'a str, &'a str, &'a str, &'a str, &'a str);

/// The columns of a row: seconds, service, client, request, answer, reason.
fn boots(rows: &[Seen<'_>]) -> Vec<Boot> {
    let entry = |&(at, service, client, asked, answered, reason): &Seen<'_>| BootTraceEntry {
        at_unix_ms: at * 1000,
        service: service.into(),
        client: client.into(),
        asked: asked.into(),
        answered: answered.into(),
        reason: reason.into(),
        address: UntrustedName::default(),
        times: 1,
        opens: asked.starts_with("DISCOVER") && !client.is_empty() && client != "system",
    };
    let trace = BootTrace { entries: rows.iter().map(entry).collect(), lost: 0, others_lost: 0 };
    told_apart(MAC, vec![("r1".to_owned(), trace)])
}

fn judged(rows: &[Seen<'_>]) -> String {
    boots(rows).pop().and_then(|boot| boot.judgement).map(|it| it.code).unwrap_or_default()
}

const DISCOVER: Seen<'_> =
    (0, "dhcp", "firmware", "DISCOVER, x86 BIOS", "OFFER 10.0.0.5: undionly.kpxe from 10.0.0.2", "");
const REQUEST: Seen<'_> =
    (1, "dhcp", "firmware", "REQUEST, x86 BIOS", "ACK 10.0.0.5: undionly.kpxe from 10.0.0.2", "");
const LOADER: Seen<'_> = (2, "tftp", "", "undionly.kpxe", "70000 bytes in 40 ms", "");
const IPXE: Seen<'_> = (4, "dhcp", "ipxe", "DISCOVER, iPXE", "OFFER 10.0.0.5: http://10.0.0.2:5248/ipxe", "");
const IPXE_ACK: Seen<'_> =
    (5, "dhcp", "ipxe", "REQUEST, iPXE", "ACK 10.0.0.5: http://10.0.0.2:5248/ipxe", "");
const SCRIPT: Seen<'_> = (6, "http", "ipxe", "script for iPXE", "ephemeral environment, attempt 7", "");
const KERNEL: Seen<'_> = (7, "http", "", "GET /blobs/0123456789ab…", "200, 9000000 bytes in 90 ms", "");
const CLAIM: Seen<'_> = (20, "agent", "", "POST /agent/v1/claim", "200", "");

#[test]
fn a_whole_boot_is_one_and_a_reset_begins_another() {
    let whole = [DISCOVER, REQUEST, LOADER, IPXE, IPXE_ACK, SCRIPT, KERNEL, CLAIM];
    assert_eq!(boots(&whole).len(), 1);
    let again = |seen: Seen<'static>| (25, seen.1, seen.2, seen.3, seen.4, seen.5);
    let reset = [&whole[..], &[again(DISCOVER)]].concat();
    let told = boots(&reset);
    assert_eq!(told.iter().map(|boot| boot.entries.len()).collect::<Vec<_>>(), [8, 1]);
    // The card's ROM is iPXE itself, so a boot begins with iPXE's request.
    let rom = [IPXE, IPXE_ACK, SCRIPT, again(IPXE)];
    assert_eq!(boots(&rom).len(), 2);
}

#[test]
fn firmware_that_asks_again_is_in_the_same_boot_unless_it_was_silent_for_a_minute() {
    let again = |at| (at, DISCOVER.1, DISCOVER.2, DISCOVER.3, DISCOVER.4, DISCOVER.5);
    assert_eq!(boots(&[again(0), again(4), again(12), again(28), again(60)]).len(), 1);
    assert_eq!(boots(&[again(0), again(61)]).len(), 2);
}

#[test]
fn how_far_it_came_is_judged_by_its_last_words() {
    assert_eq!(judged(&[DISCOVER]), "offer_not_taken");
    assert_eq!(judged(&[DISCOVER, REQUEST]), "loader_not_asked");
    let never =
        (2, "tftp", "", "undionly.kpxe", "no block was taken: 0 of 70000 bytes in 40 ms", "never_taken");
    assert_eq!(judged(&[DISCOVER, REQUEST, never]), "never_taken");
    assert_eq!(judged(&[DISCOVER, REQUEST, LOADER]), "loader_is_silent");
    let shim = (2, "tftp", "", "shimx64.efi", "1048504 bytes in 312 ms", "");
    let does_without = (3, "tftp", "", "revocations_sbat.efi", "refused: file not found", "not_found");
    assert_eq!(judged(&[DISCOVER, REQUEST, shim, does_without]), "shim_is_silent");
    let no_grub = (4, "tftp", "", "grubx64.efi", "refused: file not found", "not_found");
    assert_eq!(judged(&[DISCOVER, REQUEST, shim, does_without, no_grub]), "not_found");
    let grub = (4, "tftp", "", "grubx64.efi", "3843520 bytes in 2938 ms", "");
    let no_list = (5, "tftp", "", "grub/x86_64-efi/fs.lst", "refused: file not found", "not_found");
    assert_eq!(judged(&[DISCOVER, REQUEST, shim, grub, no_list]), "shim_is_silent");
    let off = (6, "tftp", "", "script for GRUB", "power off", "");
    let its_file = (6, "tftp", "", "grub/grub.cfg-52:54:00:00:00:01", "36 bytes in 3 ms", "");
    assert_eq!(judged(&[DISCOVER, REQUEST, shim, grub, no_list, off, its_file]), "power_off");
    assert_eq!(judged(&[DISCOVER, REQUEST, LOADER, IPXE, IPXE_ACK]), "script_not_asked");
    assert_eq!(judged(&[DISCOVER, REQUEST, LOADER, IPXE, IPXE_ACK, SCRIPT]), "kernel_not_asked");
    assert_eq!(judged(&[DISCOVER, REQUEST, LOADER, IPXE, IPXE_ACK, SCRIPT, KERNEL]), "agent_not_there");
    assert_eq!(judged(&[DISCOVER, REQUEST, LOADER, IPXE, IPXE_ACK, SCRIPT, KERNEL, CLAIM]), "agent");
}

#[test]
fn another_server_counts_where_nothing_else_does() {
    let other = (
        1,
        "dhcp",
        "firmware",
        "REQUEST, x86 BIOS",
        "not answered: the client chose server 10.0.0.9",
        "other_server",
    );
    assert_eq!(judged(&[DISCOVER, other]), "other_server");
    assert_eq!(
        judged(&[DISCOVER, other, LOADER]),
        "loader_is_silent",
        "the other one is a rack, and went on"
    );
}

#[test]
fn firmware_of_another_architecture_than_declared_is_said() {
    let arm = |asked: &'static str| {
        (0, "dhcp", "firmware", asked, "OFFER 10.0.0.5: snp-arm64.efi from 10.0.0.2", "")
    };
    let code = |declared, rows: &[Seen<'_>]| {
        let mut boots = boots(rows);
        architecture::compare(declared, &mut boots);
        boots.remove(0).judgement.unwrap()
    };
    for asked in ["DISCOVER, arm64 UEFI", "DISCOVER, arm64 UEFI by HTTP, for 10.0.0.5, by relay 10.0.0.1"] {
        let judgement = code(Architecture::Amd64, &[arm(asked)]);
        assert_eq!(judgement.code, "other_architecture");
        assert!(judgement.message.contains("is arm64, and it is declared as amd64"), "{}", judgement.message);
        assert_eq!(code(Architecture::Arm64, &[arm(asked)]).code, "offer_not_taken");
    }
    assert_eq!(code(Architecture::Arm64, &[DISCOVER, REQUEST, LOADER]).code, "other_architecture");
    assert_eq!(code(Architecture::Amd64, &[DISCOVER, REQUEST, LOADER]).code, "loader_is_silent");
    assert_eq!(code(Architecture::Arm64, &[DISCOVER, REQUEST, CLAIM]).code, "agent", "its agent came");
    let ipxe =
        (4, "dhcp", "ipxe", "REQUEST, iPXE on x86-64 UEFI, for 10.0.0.5", "ACK 10.0.0.5: http://…", "");
    let words = "m is declared as arm64, has a boot loader for amd64, and boots its disk";
    let script = (6, "http", "ipxe", "script for iPXE", words, "other_architecture");
    let judgement = code(Architecture::Arm64, &[ipxe, script]);
    assert_eq!(judgement.code, "other_architecture");
    assert!(judgement.message.starts_with("its iPXE runs on x86-64 UEFI, so"), "{}", judgement.message);
    assert_eq!(code(Architecture::Amd64, &[ipxe, SCRIPT]).code, "kernel_not_asked");
    assert_eq!(judged(&[ipxe, script]), "other_architecture", "it was declared otherwise then");
}

#[test]
fn a_judgement_says_what_was_asked() {
    let never = (2, "tftp", "", "undionly.kpxe", "no block was taken", "never_taken");
    let judgement = boots(&[DISCOVER, never]).remove(0).judgement.unwrap();
    let expected = "the last thing it asked for was undionly.kpxe by TFTP, and it never took a block of it";
    assert_eq!(judgement.message, expected);
    assert!(judgement.to_do.contains("firewall"));
}

#[test]
fn who_was_never_heard_is_told_what_to_look_at() {
    let rack = |connected| Listener { rack: "r1".parse().unwrap(), connected, addresses: Vec::new() };
    let code = |macs: &[String], racks: &[Listener]| judge::silence(macs, racks, None, &[]).code;
    let mac = [MAC.to_string()];
    assert_eq!(code(&mac, &[rack(true)]), "never_heard");
    assert_eq!(code(&mac, &[rack(false)]), "no_rack");
    assert_eq!(code(&[], &[rack(true)]), "no_mac");
}

#[test]
fn who_was_never_heard_may_be_one_of_those_that_ask_over_infiniband() {
    let rack = Listener { rack: "r1".parse().unwrap(), connected: true, addresses: Vec::new() };
    let port = HeardPort { rack: "r1".into(), mac: "00:02:c9:12:34:56".into(), at: Timestamp::UNIX_EPOCH };
    let judgement = judge::silence(&[MAC.to_string()], &[rack], None, &[port]);
    assert_eq!(judgement.code, "never_heard");
    assert!(judgement.message.contains("over InfiniBand"), "{}", judgement.message);
    assert!(judgement.message.contains("as 00:02:c9:12:34:56 (rack r1)"), "{}", judgement.message);
    let over = "DISCOVER, x86-64 UEFI, over InfiniBand, port GUID 0002:c903:0012:3456";
    let words = "not answered: racks lease no addresses over InfiniBand and boot no machines there";
    let judgement = boots(&[(0, "dhcp", "firmware", over, words, "infiniband")]).remove(0).judgement.unwrap();
    assert!(judgement.message.contains("port GUID 0002:c903:0012:3456"), "{}", judgement.message);
    assert!(judgement.to_do.starts_with("connect an Ethernet port"), "{}", judgement.to_do);
}

#[test]
fn what_was_lost_is_of_the_boot_that_it_was_told_with() {
    let trace = |at_s: i64, lost| {
        let entry = BootTraceEntry {
            at_unix_ms: at_s * 1000,
            service: "dhcp".into(),
            client: "firmware".into(),
            asked: "DISCOVER".into(),
            answered: UntrustedName::default(),
            reason: "no_subnet".into(),
            address: UntrustedName::default(),
            times: 0,
            opens: true,
        };
        ("r1".to_owned(), BootTrace { entries: vec![entry], lost, others_lost: 0 })
    };
    let told = told_apart(MAC, vec![trace(0, 3), trace(600, 0)]);
    assert_eq!(told.iter().map(|boot| boot.lost).collect::<Vec<_>>(), [3, 0]);
    assert_eq!(told[0].entries[0].times, 1);
}

#[test]
fn what_comes_latest_in_a_boot_counts_and_not_what_ended_last() {
    let whole = [DISCOVER, REQUEST, LOADER, IPXE, IPXE_ACK, SCRIPT, KERNEL];
    assert_eq!(judged(&whole), "agent_not_there");
    let image = (40, "http", "", "GET /blobs/ba9876543210…", "200, 900000000 bytes", "");
    assert_eq!(judged(&[&whole[..], &[CLAIM, image]].concat()), "agent", "it fetches what it installs");
    // The last acknowledgement was lost: the rack ended the transfer of the loader when iPXE ran already.
    let given_up = (32, "tftp", "", "undionly.kpxe", "the client fell silent after …", "fell_silent");
    assert_eq!(judged(&[&whole[..], &[given_up]].concat()), "agent_not_there");
}

#[test]
fn who_leases_and_asks_for_nothing_to_boot_was_heard_all_the_same() {
    let lease = basalt_db::LastLease {
        address: "10.77.0.100".into(),
        mac: MAC.to_string(),
        rack: Some("r1".into()),
        ends_at: Timestamp::UNIX_EPOCH,
    };
    let judgement = judge::silence(&[MAC.to_string()], &[], Some(&lease), &[]);
    assert_eq!(judgement.code, "leased_only");
    assert!(judgement.message.contains("leased 10.77.0.100 of r1"), "{}", judgement.message);
    assert!(!judgement.message.contains("no rack heard"), "{}", judgement.message);
}

#[test]
fn addresses_that_rest_are_no_reason_for_a_wider_range_alone() {
    let refused =
        |reason| (0, "dhcp", "firmware", "DISCOVER, x86 BIOS", "not answered: no address is free", reason);
    let to_do = |reason| boots(&[refused(reason)]).remove(0).judgement.unwrap().to_do;
    assert!(to_do("no_free_address").starts_with("widen"));
    assert!(to_do("addresses_rest").starts_with("find the hosts that use addresses without a lease"));
    assert!(to_do("no_dynamic").starts_with("declare a dynamic IpRange"));
    assert!(to_do("too_many_addresses").contains("DUID of its own"));
}

mod without_a_subnet {
    use super::*;
    use crate::driver::answers::serving::Network;
    use crate::driver::topology::network::{Net, RackSeen};
    use basalt_api::kinds::{SubnetSpec, VlanSpec};

    fn rack(name: &str, address: &str) -> RackSeen {
        let address = vec![address.parse().unwrap()];
        RackSeen {
            uid: uuid::Uuid::from_u128(name.bytes().last().unwrap().into()).into(),
            name: name.to_owned(),
            addresses: address.clone(),
            served: address.clone(),
            reached: address,
            maintenance: false,
            linked_to: Default::default(),
            elsewhere: false,
            connected: None,
            last_seen: Timestamp::UNIX_EPOCH,
            answers_dns: std::collections::BTreeSet::new(),
            serves_proxy: false,
            takes_logs: Default::default(),
            gives_no_address: None,
            short: Default::default(),
        }
    }

    fn network(change: impl FnOnce(&mut VlanSpec), racks: Vec<RackSeen>) -> Network {
        let mut vlan = VlanSpec::new("lab".parse().unwrap(), 0);
        vlan.dhcp.enabled = true;
        change(&mut vlan);
        let subnet = SubnetSpec::new("lab.0".parse().unwrap(), "10.77.0.0/24".parse().unwrap());
        let uid = uuid::Uuid::from_u128(9).into();
        let net = Net { uid, name: "lab".to_owned(), subnet, vlan, fabric_class: None };
        Network { nets: [net].into(), racks, now: Timestamp::UNIX_EPOCH }
    }

    fn code(network: &Network, link: &str) -> String {
        let answered = format!("not answered: no subnet is configured for {link}");
        let boot = boots(&[(0, "dhcp", "firmware", "DISCOVER, x86 BIOS", &answered, "no_subnet")]).remove(0);
        network::judge(&boot.entries, network).map_or_else(|| boot.judgement.unwrap().code, |it| it.code)
    }

    #[test]
    fn each_cause_has_its_own_judgement() {
        let near = || vec![rack("r1", "10.77.0.2")];
        assert_eq!(code(&network(|_| (), near()), "10.99.0.2"), "no_subnet", "none is declared");
        assert_eq!(code(&network(|it| it.dhcp.enabled = false, near()), "10.77.0.2"), "dhcp_off");
        let names = |it: &mut VlanSpec| it.dhcp.racks = ["r2".parse().unwrap()].into();
        assert_eq!(code(&network(names, near()), "10.77.0.2"), "rack_not_named");
        let aside = vec![RackSeen { maintenance: true, ..rack("r1", "10.77.0.2") }];
        assert_eq!(code(&network(|_| (), aside), "10.77.0.2"), "rack_in_maintenance");
        assert_eq!(code(&network(|_| (), near()), "10.77.0.2"), "rack_not_told");
        assert_eq!(
            code(&network(|_| (), vec![rack("r1", "10.88.0.2")]), "10.77.0.1"),
            "rack_not_there",
            "a relay asked"
        );
    }

    #[test]
    fn a_rack_that_is_not_named_is_told_with_those_that_are() {
        let names = |it: &mut VlanSpec| it.dhcp.racks = ["r2".parse().unwrap()].into();
        let network = network(names, vec![rack("r1", "10.77.0.2")]);
        let answered = "not answered: no subnet is configured for 10.77.0.2";
        let boot = boots(&[(0, "dhcp", "firmware", "DISCOVER, x86 BIOS", answered, "no_subnet")]).remove(0);
        let judgement = network::judge(&boot.entries, &network).unwrap();
        assert_eq!(
            judgement.message,
            "it asks on the link of 10.77.0.2, where Subnet \"lab\" is declared; dhcp.racks of Vlan lab.0 names r2 alone, and r1 heard it"
        );
        assert!(judgement.to_do.starts_with("add r1 to dhcp.racks of Vlan lab.0"), "{}", judgement.to_do);
    }
}
