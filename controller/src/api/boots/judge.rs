//! Judges a boot, if its last entries are conclusive, by two tables: of the racks' reasons, and of the stages of a boot.

use basalt_api::wire::{BootEntry, Judgement, Listener};
use basalt_db::{HeardPort, LastLease};

/// A rack's reason, its meaning, and advice. `{asked}` and `{answered}` are replaced by those of the entry.
const REASONS: &[(&str, &str, &str)] = &[
    (
        "never_taken",
        "the last thing it asked for was {asked} by TFTP, and it never took a block of it",
        "a firewall or router between it and the rack lets the question pass and not the answer, which comes from another UDP port; \
         allow UDP from the rack's addresses to the machines, or boot by HTTP",
    ),
    (
        "fell_silent",
        "it took a part of {asked} and fell silent: {answered}",
        "look at whether it was switched off, at its link, and at the MTU of the network between",
    ),
    (
        "aborted",
        "it ended the transfer of {asked} itself: {answered}",
        "look at its console: its firmware does not like the file",
    ),
    (
        "no_subnet",
        "no subnet is declared for the link that it asks on: {answered}",
        "declare the Subnet, on a Vlan with dhcp enabled, that the rack's or the relay's address is in",
    ),
    ("boot_off", "it has an address, and nothing to boot: {answered}", "set boot.mode of the Subnet to dhcp"),
    (
        "architecture",
        "nothing is booted of its architecture here: {asked}",
        "name the architecture in boot.architectures of the Subnet; there are loaders for amd64 and arm64",
    ),
    (
        "other_architecture",
        "it announced another architecture than it was declared with then: {answered}",
        "see that architecture of the Machine is that of its firmware, and power cycle it",
    ),
    (
        "infiniband",
        "it asks over InfiniBand ({asked}), where Basalt boots no machine",
        "connect an Ethernet port of the machine, name its MAC in boot_macs, and put it first in the boot order of the firmware; a card that \
         can be both may have to be set to Ethernet",
    ),
    (
        "unknown_client",
        "nobody declared it, and unknown machines get no address here",
        "declare a Machine with this MAC, or have unknown machines enlisted",
    ),
    (
        "no_free_address",
        "there was no address for it: {answered}",
        "widen the Subnet's dynamic IpRanges, or shorten lease_time of its Vlan",
    ),
    (
        "addresses_rest",
        "there was no address for it: {answered}",
        "find the hosts that use addresses without a lease: the racks' alarms address_conflict name them; take their addresses out of the \
         dynamic IpRange, or declare them as Devices. An address rests for a minute after a rack found it in use, and for ten after a client did. \
         If clients have most of the range, widen it",
    ),
    (
        "no_dynamic",
        "there was no address for it: {answered}",
        "declare a dynamic IpRange in the Subnet, or an IpAddress with this MAC; where there is a range, the rack has no part of it yet: \
         status.blocks of the IpRange says who has it",
    ),
    (
        "too_many_addresses",
        "there was no address for it: {answered}",
        "it has sixteen by the identity (DUID) that it shows: see what runs on it that asks for so many; if they are several machines, which hide \
         their hardware addresses and were made of one disk, give each a DUID of its own (of systemd: /etc/machine-id)",
    ),
    (
        "withheld",
        "the rack lost its leases, and gives no dynamic address before it knows of those that run",
        "wait ten minutes, or bring a region back that tells the rack",
    ),
    (
        "conflict",
        "the address that it was to have is another host's: {answered}",
        "find that host by its MAC; take its address out of the dynamic IpRange, or declare it as a Device",
    ),
    (
        "other_server",
        "it took the offer of another DHCP server: {answered}",
        "switch that server off on this network, or set boot.mode of the Subnet to proxy so that racks answer beside it",
    ),
    (
        "not_ours",
        "it asks for an address that no rack here knows: {answered}",
        "another DHCP server gave it; see whether that still runs",
    ),
    (
        "address_refused",
        "it was told that it cannot have its address: {answered}",
        "it asks anew by itself; if it goes on like this, two servers or two subnets are on its link",
    ),
    ("malformed", "its question lacks what it needs: {answered}", "update its firmware"),
    (
        "disk",
        "the rack could not write to its disk, and so could not answer",
        "make room on the rack's disk, or replace it",
    ),
    (
        "token_refused",
        "it was refused its script: {answered}",
        "have it boot by the network from the start, with a DHCP answer of this rack; a proxy or NAT between hides who it is",
    ),
    (
        "wrong_network",
        "its script was asked for in a network where the machine does not stand",
        "if the machine was moved there, declare an IpAddress of its MAC in a subnet of that VLAN; otherwise find out who has taken its MAC",
    ),
    (
        "nothing_to_do",
        "it was told to boot its disk: {answered}",
        "see `basalt explain machine NAME` for what it waits for",
    ),
    (
        "not_found",
        "it asked for what this rack does not have: {asked}",
        "see `basalt-rack check` for loaders that are missing",
    ),
    (
        "unavailable",
        "{asked} could not be had: {answered}",
        "see the rack's log, and whether a region is there to fetch it from",
    ),
    ("no_space", "the rack has no room for {asked}", "give the rack's cache more room"),
    ("corrupt", "{asked} came damaged to the rack", "see the rack's log; upload the image again"),
    (
        "busy",
        "the rack had too much to do: {answered}",
        "it asks again by itself; add a rack if this stays so",
    ),
    (
        "wrong_address",
        "its agent was refused: {answered}",
        "another host has its address or its token; see its alarms",
    ),
    ("fenced", "two programs began its attempt: {answered}", "see its alarms before it is tried again"),
    ("taken", "its attempt was taken by another program: {answered}", "see its alarms"),
    ("outdated", "its agent is of a boot before the last one: {answered}", "power cycle it"),
    (
        "expired",
        "it came too late: {answered}",
        "it is tried again by itself; see `basalt explain machine NAME`",
    ),
    (
        "no_attempt",
        "it came for a task that is no longer its own: {answered}",
        "see `basalt explain machine NAME`",
    ),
    ("bad_token", "its agent's token is not good: {answered}", "power cycle it, so that it gets another"),
];

/// A stage of a boot whose last request was answered: the condition, the meaning, and advice.
type Rule = (&'static str, fn(&BootEntry) -> bool, &'static str, &'static str);
const STAGES: &[Rule] = &[
    (
        "offer_not_taken",
        |it| is_dhcp(it) && (it.answered.starts_with("OFFER") || it.answered.starts_with("ADVERTISE")),
        "it was offered an address and did not ask for it: {answered}",
        "the offer does not reach it, or it likes another server's better: look at the relay, at the VLAN of its port, and at spanning tree \
         (ports of machines should be edge ports)",
    ),
    (
        "loader_not_asked",
        |it| is_dhcp(it) && is(it, "firmware"),
        "it was told what to boot and never asked for it: {answered}",
        "a firewall between it and the rack drops UDP port 69 (TCP port 5248 for a URL), or another DHCP server names another loader",
    ),
    (
        "script_not_asked",
        |it| is_dhcp(it) && is(it, "ipxe"),
        "iPXE was told where its script is and never asked for it: {answered}",
        "a firewall between it and the rack drops TCP port 5248",
    ),
    (
        "shim_is_silent",
        |it| {
            !is_dhcp(it)
                && (it.asked.contains("shimx64.efi") || it.asked.contains("grubx64.efi"))
                && !it.answered.starts_with("its size, ")
        },
        "it has {asked}, and what it loaded asked for nothing",
        "look at its console: firmware may trust other keys than Microsoft's UEFI CA, or have revoked this shim or GRUB (install newer ones on the \
         racks); and a GRUB that was loaded by HTTP may know no network",
    ),
    (
        "loader_is_silent",
        |it| !is_dhcp(it) && it.service != "agent" && stays_in_firmware(it),
        "it has {asked}, and what it loaded asked for nothing",
        "look at its console: Secure Boot refuses unsigned loaders (set the loader to shim_grub), and a loader without a driver for the card finds no network",
    ),
    (
        "kernel_not_asked",
        |it| it.asked.starts_with("script") && it.answered.starts_with("ephemeral"),
        "it has its script, and asked for no kernel",
        "look at its console; a firewall may drop TCP port 5248",
    ),
    (
        "power_off",
        |it| it.asked.starts_with("script"),
        "it was told to switch itself off",
        "nothing: that is what it is to do",
    ),
    (
        "agent_not_there",
        |it| it.asked.contains("/blobs/"),
        "it loaded {asked}, and its agent did not come for its task",
        "look at its console: the kernel may have no driver for its network card, or not enough memory",
    ),
    (
        "agent",
        |it| it.service == "agent",
        "it booted: its agent was here",
        "see `basalt explain machine NAME` for how its task goes",
    ),
];

fn is_dhcp(entry: &BootEntry) -> bool {
    entry.service.starts_with("dhcp")
}

fn is(entry: &BootEntry, client: &str) -> bool {
    entry.client.as_deref() == Some(client)
}

fn stays_in_firmware(entry: &BootEntry) -> bool {
    !entry.asked.starts_with("script") && !entry.asked.contains("/blobs/")
}

/// Optional files: shim and GRUB always ask for them, and go on without them.
const OPTIONAL: [&str; 3] = ["revocations_", "shim_certificate_", ".lst"];

fn is_optional(entry: &BootEntry) -> bool {
    entry.reason.as_deref() == Some("not_found") && OPTIONAL.iter().any(|name| entry.asked.contains(name))
}

/// The stage that a request shows. A transfer may be given up long after the machine has gone on, and an agent fetches blobs.
fn reach(entry: &BootEntry) -> u8 {
    match entry.service.as_str() {
        "agent" => 5,
        _ if entry.asked.contains("/blobs/") => 4,
        "dhcp" | "dhcp6" if is(entry, "ipxe") => 2,
        "dhcp" | "dhcp6" if is(entry, "system") && entry.reason.is_some() => 4,
        "dhcp" | "dhcp6" => 0,
        _ if entry.asked.starts_with("script") => 3,
        _ if is_optional(entry) => 0,
        // A request for the size does not fetch the file.
        _ if entry.answered.starts_with("its size, ") => 0,
        _ => 1,
    }
}

/// Judges a boot by the last request of its latest stage. An entry about another rack's offer counts only if there are no
/// others.
pub(super) fn of(entries: &[BootEntry]) -> Option<Judgement> {
    let other = |it: &&BootEntry| it.reason.as_deref() != Some("other_server");
    let last = entries.iter().filter(other).max_by_key(|it| reach(it)).or_else(|| entries.last())?;
    // The machine took another server's offer.
    let preferred = entries.iter().rev().find(|it| !other(it)).filter(|it| it.at >= last.at && is_dhcp(last));
    let last = preferred.filter(|_| last.answered.starts_with("OFFER")).unwrap_or(last);
    let say = |code: &str, message: &str, to_do: &str| Judgement {
        code: code.to_owned(),
        message: message.replace("{asked}", &last.asked).replace("{answered}", &last.answered),
        to_do: to_do.to_owned(),
    };
    match &last.reason {
        Some(reason) => {
            let (code, message, to_do) = REASONS.iter().find(|(code, ..)| code == reason)?;
            Some(say(code, message, to_do))
        }
        None => {
            let (code, _, message, to_do) = STAGES.iter().find(|(_, holds, ..)| holds(last))?;
            Some(say(code, message, to_do))
        }
    }
}

/// Judges a machine whose boot no rack has seen. If it has leased an address, it has booted from something else, because racks trace every
/// client that asks for something to boot.
pub(super) fn silence(
    macs: &[String],
    racks: &[Listener],
    lease: Option<&LastLease>,
    infiniband: &[HeardPort],
) -> Judgement {
    if let Some(LastLease { address, mac, rack, ends_at }) = lease {
        let rack = rack.as_deref().unwrap_or("a rack that is gone");
        return Judgement {
            code: "leased_only".to_owned(),
            message: format!(
                "{mac} has not asked for anything to boot within 14 days, and leased {address} of {rack}, until {ends_at}: what runs there was not \
                 booted from the network"
            ),
            to_do: "put the network card first in the boot order of its firmware, or have the region do so by declaring its BMC; then power cycle it"
                .to_owned(),
        };
    }
    let who = if macs.is_empty() { "it has no MAC that it boots by".to_owned() } else { macs.join(", ") };
    let listening = racks.iter().filter(|rack| rack.connected).count();
    let (code, to_do) = match (macs.is_empty(), listening) {
        (true, _) => ("no_mac", "name the MAC of the card that it boots by in boot_macs of the Machine"),
        (_, 0) => (
            "no_rack",
            "no rack is connected, and what racks heard comes when one is: look at the racks and their link to the region",
        ),
        _ => (
            "never_heard",
            "see that it boots from the network card with this MAC, that the card's port is in the VLAN of a rack or of a relay that names one, \
             that the Vlan has dhcp enabled, and run `basalt-rack check` on the rack",
        ),
    };
    let mut message = format!("no rack heard of it within 14 days: {who}");
    let mut to_do = to_do.to_owned();
    if !infiniband.is_empty() {
        let ports: Vec<_> = infiniband.iter().map(|it| format!("{} (rack {})", it.mac, it.rack)).collect();
        message.push_str(&format!(
            "; DHCP over InfiniBand was heard within the last day, as {}, and Basalt boots no machine there",
            ports.join(", ")
        ));
        to_do.push_str("; `basalt explain boot` with one of these addresses says the GUID of its port: a card of this machine that is set to \
                        InfiniBand has to be set to Ethernet");
    }
    Judgement { code: code.to_owned(), message, to_do }
}
