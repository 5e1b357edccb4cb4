//! Random zones against a model that reads the list of records from its beginning for each question.

use basalt_dns::{Record, RecordType, Soa, Zone};
use proptest::prelude::*;

use crate::support::{name, query, record, reply, zones};

/// An answer by RFC 1034 §4.3.2 and RFC 4592, without aliases.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Records(Vec<String>),
    Cut(String),
    NoData,
    NoName,
}

fn labels(text: &str) -> Vec<&str> {
    text.trim_end_matches('.').split('.').filter(|label| !label.is_empty()).collect()
}

fn is_below(owner: &str, above: &str) -> bool {
    labels(owner).ends_with(&labels(above))
}

fn model(records: &[(String, String)], asked: &str, rtype: &str) -> Expected {
    let ancestors: Vec<String> =
        (0..labels(asked).len()).map(|skip| labels(asked)[skip..].join(".") + ".").collect();
    let cut = ancestors
        .iter()
        .rev()
        .filter(|it| *it != "z.")
        .find(|it| records.iter().any(|(owner, line)| owner == *it && line.contains(" NS ")));
    if let Some(cut) = cut {
        return Expected::Cut(cut.clone());
    }
    let exists = |it: &str| it == "z." || records.iter().any(|(owner, _)| is_below(owner, it));
    let data_of = |owner: &str| {
        let mut data: Vec<String> = records
            .iter()
            .filter(|(it, line)| it == owner && line.contains(&format!(" {rtype} ")))
            .map(|(_, line)| record(line).data.to_string())
            .collect();
        data.sort();
        data.dedup();
        if data.is_empty() { Expected::NoData } else { Expected::Records(data) }
    };
    if exists(asked) {
        return data_of(asked);
    }
    let encloser = ancestors.iter().find(|it| exists(it)).unwrap();
    let wildcard = format!("*.{encloser}");
    if exists(&wildcard) { data_of(&wildcard) } else { Expected::NoName }
}

fn owner() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop_oneof![Just("a"), Just("b"), Just("*")], 0..5)
        .prop_map(|labels| labels.iter().map(|label| format!("{label}.")).collect::<String>() + "z.")
}

fn line(owner: &str, kind: u8, number: u8) -> String {
    match kind {
        // Wildcards cannot be delegated.
        0 if owner != "z." && !owner.starts_with('*') => format!("{owner} 1 NS ns{number}.y."),
        0 | 1 => format!("{owner} 1 TXT \"{number}\""),
        _ => format!("{owner} 1 A 10.0.0.{number}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_answer_is_the_models(
        zone in proptest::collection::vec((owner(), 0_u8..12, 0_u8..3), 0..12),
        asked in proptest::collection::vec((owner(), prop_oneof![Just("A"), Just("TXT")]), 12),
    ) {
        let records: Vec<(String, String)> = zone.iter().map(|(owner, kind, number)| (owner.clone(), line(owner, *kind, *number))).collect();
        let lines: Vec<Record> = records.iter().map(|(_, line)| record(line)).collect();
        let zones = zones([Zone::new(Soa::new(name("z."), 1), lines).unwrap()]);
        for (owner, rtype) in asked {
            let reply = reply(&zones, &query(&format!("{owner} {rtype}")));
            let mut data: Vec<String> = reply.answers.iter().map(|it| it.data.to_string()).collect();
            data.sort();
            let authority = reply.authorities.first();
            let found = match authority.map(Record::record_type) {
                None => Expected::Records(data),
                Some(RecordType::NS) => Expected::Cut(authority.unwrap().name.to_string()),
                Some(_) if reply.metadata.response_code == hickory_proto::op::ResponseCode::NoError => Expected::NoData,
                Some(_) => Expected::NoName,
            };
            prop_assert_eq!(found, model(&records, &owner, rtype), "{} {} in {:?}", owner, rtype, records);
        }
    }
}
