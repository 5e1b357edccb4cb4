//! `basalt explain name HOST`: the answer of racks for a name, with its origin.

use std::fmt::Write;

use basalt_api::wire::{NameRack, NameReport, NameSource};

use crate::output::line;

/// The answer as text for people.
pub(crate) fn table(report: &NameReport) -> String {
    let mut text = format!("{}: {}\n", line(&report.name), line(&report.message));
    let rows: Vec<[String; 5]> = report
        .records
        .iter()
        .map(|it| {
            let star = it.wildcard.as_ref().map(|star| format!("wildcard {star}, ")).unwrap_or_default();
            let from = if it.from.is_empty() { "the region".to_owned() } else { sources(&it.from) };
            [it.owner.clone(), it.ttl.to_string(), it.rtype.clone(), it.data.clone(), format!("{star}{from}")]
        })
        .collect();
    if !rows.is_empty() {
        let headings = ["NAME", "TTL", "TYPE", "DATA", "FROM"].map(str::to_owned);
        text.push('\n');
        aligned(&mut text, [&headings].into_iter().chain(&rows));
    }
    for zone in &report.zones {
        let since = zone.since.strftime("%Y-%m-%d %H:%M:%S");
        let (origin, of) = (line(&zone.origin), sources(&zone.from));
        let _ = writeln!(
            text,
            "\nzone {origin} ({of}): serial {} since {since}; a missing name is remembered for {} s",
            zone.serial, zone.negative_ttl
        );
    }
    if !report.racks.is_empty() {
        text.push_str("\nracks:\n");
        let rows: Vec<[String; 2]> =
            report.racks.iter().map(|rack| [rack.rack.to_string(), state(rack)]).collect();
        aligned(&mut text, rows.iter());
    }
    text
}

fn state(rack: &NameRack) -> String {
    let since = rack.since.map(|at| format!(", since {}", at.strftime("%Y-%m-%d %H:%M:%S")));
    let at: Vec<String> = rack.addresses.iter().map(ToString::to_string).collect();
    let at = if at.is_empty() { String::new() } else { format!("; answers at {}", at.join(" ")) };
    format!("{}{}{at}", rack.message, since.unwrap_or_default())
}

fn sources(from: &[NameSource]) -> String {
    let one = |it: &NameSource| {
        let note = it.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
        format!("{} {}{note}", it.kind, it.name)
    };
    from.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Writes rows in columns.
fn aligned<'a, const N: usize>(text: &mut String, rows: impl Iterator<Item = &'a [String; N]> + Clone) {
    let width = |column: usize| {
        let cells = rows.clone().filter_map(|row| row.get(column));
        cells.map(|cell| line(cell).chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in rows {
        let mut columns = String::from(" ");
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(columns, " {:width$}", line(cell));
        }
        let _ = writeln!(text, "{}", columns.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_api::values::Timestamp;
    use basalt_api::wire::{NameOutcome, NameRecord, NameZone};

    #[test]
    fn an_answer_has_its_records_its_zone_and_its_racks() {
        let source = |kind: &str, name: &str, note: Option<&str>| NameSource {
            kind: kind.to_owned(),
            name: name.to_owned(),
            note: note.map(str::to_owned),
        };
        let record = |owner: &str, rtype: &str, data: &str, wildcard: Option<&str>, from| NameRecord {
            owner: owner.to_owned(),
            rtype: rtype.to_owned(),
            ttl: 60,
            data: data.to_owned(),
            zone: "lab.example".to_owned(),
            wildcard: wildcard.map(str::to_owned),
            from,
        };
        let at = "2026-01-31T12:00:00Z".parse().unwrap();
        let rack = |name: &str, since: Option<Timestamp>, addresses: &[&str], message: &str| NameRack {
            rack: name.parse().unwrap(),
            holds: since.is_none(),
            since,
            addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
            message: message.to_owned(),
        };
        let report = NameReport {
            name: "www.lab.example".to_owned(),
            outcome: NameOutcome::Answered,
            message: "zone lab.example answers\u{1b}[2J".to_owned(),
            records: vec![
                record(
                    "www.lab.example",
                    "CNAME",
                    "web1.lab.example.",
                    None,
                    vec![source("DnsRecord", "www", None)],
                ),
                record(
                    "web1.lab.example",
                    "A",
                    "10.77.0.9",
                    Some("*.lab.example"),
                    vec![source("Deployment", "web", Some("on machine m1"))],
                ),
                record("web1.lab.example", "NS", "ns.", None, Vec::new()),
            ],
            zones: vec![NameZone {
                origin: "lab.example".to_owned(),
                serial: 7,
                since: at,
                negative_ttl: 30,
                from: vec![source("Domain", "lab.example", None)],
            }],
            servers: Vec::new(),
            near: Vec::new(),
            racks: vec![rack("r1", None, &["10.77.0.2"], "holds it"), rack("rack2", Some(at), &[], "behind")],
        };
        assert_eq!(
            table(&report),
            "www.lab.example: zone lab.example answers<U+001B>[2J\n\
             \n\
             \x20 NAME             TTL TYPE  DATA              FROM\n\
             \x20 www.lab.example  60  CNAME web1.lab.example. DnsRecord www\n\
             \x20 web1.lab.example 60  A     10.77.0.9         wildcard *.lab.example, Deployment web (on machine m1)\n\
             \x20 web1.lab.example 60  NS    ns.               the region\n\
             \n\
             zone lab.example (Domain lab.example): serial 7 since 2026-01-31 12:00:00; a missing name is remembered for 30 s\n\
             \n\
             racks:\n\
             \x20 r1    holds it; answers at 10.77.0.2\n\
             \x20 rack2 behind, since 2026-01-31 12:00:00\n"
        );
    }
}
