//! `basalt explain boot`: requests of a booting machine to racks, and the reason why the boot stopped.

use std::fmt::Write;

use basalt_api::wire::{Boot, BootEntry, Boots, Judgement, Listener};

use crate::output::line;

const HEADINGS: [&str; 6] = ["TIME", "+MS", "RACK", "SERVICE", "ASKED", "ANSWERED"];

/// The last boots as text, the newest first.
pub(crate) fn table(asked: &str, boots: &Boots, most: usize) -> String {
    let mut text = String::new();
    let macs: Vec<String> = boots.macs.iter().map(ToString::to_string).collect();
    let who = match &boots.machine {
        Some(machine) => format!("machine {machine}, {}", macs.join(" ")),
        None if macs.is_empty() => asked.to_owned(),
        None => format!("{}, which no Machine has", macs.join(" ")),
    };
    let _ = writeln!(text, "{who}");
    for boot in boots.boots.iter().take(most) {
        text.push_str(&one(boot));
    }
    let further = boots.boots.len().saturating_sub(most);
    if further > 0 {
        let _ = writeln!(text, "\n{further} earlier boots are not shown (--history)");
    }
    if let Some(judgement) = &boots.judgement {
        text.push_str(&judged(judgement));
    }
    if boots.boots.is_empty() {
        text.push_str(&listening(&boots.racks));
    }
    if boots.others_lost > 0 {
        let lost = boots.others_lost;
        let _ = writeln!(
            text,
            "\nwithin the last day racks heard {lost} more questions of machines that nobody declared than they keep"
        );
    }
    text
}

fn one(boot: &Boot) -> String {
    let began = boot.began.strftime("%Y-%m-%d %H:%M:%S");
    let mut text = format!("\nboot of {began}, by {}\n", boot.mac);
    let rows: Vec<[String; 6]> = boot.entries.iter().map(|entry| row(boot, entry)).collect();
    let headings = HEADINGS.map(str::to_owned);
    let width = |column: usize| {
        let cells = rows.iter().chain([&headings]).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
    for row in [&headings].into_iter().chain(&rows) {
        let mut line = String::from(" ");
        for (place, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match place {
                1 => write!(line, " {cell:>width$}"),
                _ => write!(line, " {cell:width$}"),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if boot.lost > 0 {
        let _ = writeln!(text, "  {} more were not kept: the machine asked too much", boot.lost);
    }
    if let Some(judgement) = &boot.judgement {
        text.push_str(&judged(judgement));
    }
    text
}

fn row(boot: &Boot, entry: &BootEntry) -> [String; 6] {
    let since = entry.at.duration_since(boot.began).as_millis();
    let times = if entry.times > 1 { format!(" ({} times more)", entry.times) } else { String::new() };
    let reason = entry.reason.as_ref().map(|reason| format!(" [{reason}]")).unwrap_or_default();
    [
        entry.at.strftime("%H:%M:%S").to_string(),
        since.to_string(),
        entry.rack.clone(),
        entry.service.clone(),
        format!("{}{times}", entry.asked),
        format!("{}{reason}", entry.answered),
    ]
    .map(|cell| line(&cell).into_owned())
}

fn judged(judgement: &Judgement) -> String {
    format!("  => {}\n     to do: {}\n", line(&judgement.message), line(&judgement.to_do))
}

fn listening(racks: &[Listener]) -> String {
    let mut text = String::from("\nracks:\n");
    for Listener { rack, connected, addresses } in racks {
        let away = if *connected { "" } else { ", not connected: what it heard comes when it is" };
        let _ = writeln!(text, "  {rack} listens at {}{away}", addresses.join(" "));
    }
    if racks.is_empty() {
        text.push_str("  there is none\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_api::values::Timestamp;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(1_800_000_000_000 + ms).unwrap()
    }

    fn entry(ms: i64, service: &str, asked: &str, answered: &str, reason: Option<&str>) -> BootEntry {
        BootEntry {
            at: at(ms),
            rack: "r1".into(),
            service: service.into(),
            client: None,
            asked: asked.into(),
            answered: answered.into(),
            reason: reason.map(str::to_owned),
            address: None,
            times: 1,
            opens: false,
        }
    }

    fn booted() -> Boot {
        let judgement =
            Judgement { code: "never_taken".into(), message: "it took nothing".into(), to_do: "look".into() };
        let repeated =
            BootEntry { times: 3, ..entry(9_000, "tftp", "undionly.kpxe", "no block", Some("never_taken")) };
        Boot {
            began: at(0),
            mac: "52:54:00:00:00:01".parse().unwrap(),
            entries: vec![entry(0, "dhcp", "DISCOVER, x86 BIOS", "OFFER 10.0.0.5", None), repeated],
            lost: 2,
            judgement: Some(judgement),
        }
    }

    #[test]
    fn a_boot_is_a_table_with_its_judgement_below() {
        let boots = Boots {
            machine: "web1".parse().ok(),
            macs: vec!["52:54:00:00:00:01".parse().unwrap()],
            boots: vec![booted()],
            ..Boots::default()
        };
        assert_eq!(
            table("web1", &boots, 15),
            "machine web1, 52:54:00:00:00:01\n\
             \n\
             boot of 2027-01-15 08:00:00, by 52:54:00:00:00:01\n\
             \x20 TIME      +MS RACK SERVICE ASKED                        ANSWERED\n\
             \x20 08:00:00    0 r1   dhcp    DISCOVER, x86 BIOS           OFFER 10.0.0.5\n\
             \x20 08:00:09 9000 r1   tftp    undionly.kpxe (3 times more) no block [never_taken]\n\
             \x20 2 more were not kept: the machine asked too much\n\
             \x20 => it took nothing\n\
             \x20    to do: look\n"
        );
    }

    #[test]
    fn of_many_boots_the_newest_are_shown() {
        let boots = Boots { boots: vec![booted(), booted(), booted()], ..Boots::default() };
        let text = table("x", &boots, 1);
        assert_eq!(text.matches("boot of").count(), 1);
        assert!(text.ends_with("2 earlier boots are not shown (--history)\n"), "{text}");
    }

    #[test]
    fn who_was_never_heard_is_told_who_listens() {
        let racks = vec![
            Listener { rack: "r1".parse().unwrap(), connected: true, addresses: vec!["10.0.0.2".into()] },
            Listener { rack: "r2".parse().unwrap(), connected: false, addresses: vec!["10.0.0.3".into()] },
        ];
        let judgement = Judgement {
            code: "never_heard".into(),
            message: "no rack heard of it".into(),
            to_do: "look".into(),
        };
        let macs = vec!["52:54:00:00:00:01".parse().unwrap()];
        let text = table(
            "x",
            &Boots { macs, racks, judgement: Some(judgement), others_lost: 7, ..Boots::default() },
            15,
        );
        assert!(
            text.starts_with("52:54:00:00:00:01, which no Machine has\n  => no rack heard of it\n"),
            "{text}"
        );
        assert!(text.contains("  r1 listens at 10.0.0.2\n  r2 listens at 10.0.0.3, not connected"), "{text}");
        assert!(text.contains("heard 7 more questions"), "{text}");
    }
}
