use super::*;
use serde_json::Value;

fn vectors() -> Value {
    serde_json::from_str(include_str!("vectors.json")).expect("the cases are JSON")
}

fn machines() -> &'static Kind {
    Kind::find("Machine").expect("a kind")
}

/// The same cases test the console: `controller/ui/tests/unit/filter.test.ts`.
#[test]
fn every_case_of_the_console_is_answered_as_there() {
    let vectors = vectors();
    let cases = vectors["found"].as_array().expect("cases");
    assert!(cases.len() > 60);
    for case in cases {
        let (kind, text) = (case["kind"].as_str().expect("a kind"), case["where"].as_str().expect("a text"));
        let filter = Filter::new(Kind::find(kind).expect("a kind"), text);
        let filter = match (filter, case["wrong"].as_str()) {
            (Ok(filter), None) => filter,
            (Err(wrong), Some(wanted)) => {
                assert_eq!(
                    (wrong.message.as_str(), wrong.at as u64),
                    (wanted, case["at"].as_u64().expect("a place"))
                );
                continue;
            }
            (found, wanted) => panic!("{text}: {found:?}, not {wanted:?}"),
        };
        let objects = vectors["objects"][kind].as_array().expect("objects");
        let found = objects.iter().filter(|it| filter.fits(it));
        let names: Vec<&str> = found.filter_map(|it| it["metadata"]["name"].as_str()).collect();
        assert_eq!(names.join(" "), case["names"].as_str().expect("names"), "{kind} {text}");
    }
}

#[test]
fn an_unfinished_filter_is_refused_at_its_place() {
    for (text, at, message) in [
        ("zone:", 1, "zone has no value"),
        ("web zone: row-1", 5, "zone has no value"),
        ("zone:(row-1", 6, "the parenthesis that opens here is not closed"),
        ("é \"two words", 3, "the quote that opens here is not closed"),
        ("zone:\"\"", 1, "zone has no value"),
        ("spec.zon:row-1", 1, "a Machine has no spec.zon"),
        ("status.*.model:x status.nope:1", 18, "a Machine has no status.nope"),
        ("metadata.secret:1", 1, "a Machine has no metadata.secret"),
        ("label-row>1", 1, "label-row is no number"),
    ] {
        let wrong = Filter::new(machines(), text).expect_err(text);
        assert_eq!((wrong.at, wrong.message.as_str()), (at, message), "{text}");
        assert!(!wrong.hint.is_empty());
    }
    let long = "x".repeat(MAX_FILTER_BYTES + 1);
    assert_eq!(
        Filter::new(machines(), &long).expect_err("it is too long").message,
        "the filter has 2001 bytes"
    );
}

#[test]
fn no_text_breaks_the_reader() {
    let signs =
        ["(", ")", "!", "=", ",", "\"", " ", ":", "<", ">", "zone", "a", "\u{1F600}", "\n", "spec.", "*"];
    let mut seed = 7_usize;
    let mut next = |most: usize| {
        seed = seed.wrapping_mul(48271) % 2_147_483_647;
        seed % most
    };
    let object = vectors()["objects"]["Machine"][0].clone();
    for _ in 0..5000 {
        let text: String = (0..next(14)).map(|_| signs[next(signs.len())]).collect();
        match Filter::new(machines(), &text) {
            Ok(filter) => drop(filter.fits(&object)),
            Err(wrong) => assert!((1..=text.chars().count()).contains(&wrong.at), "{text:?} {wrong}"),
        }
    }
}

#[test]
fn what_columns_answer_is_met_by_every_object_that_fits() {
    let narrowing = |text: &str| Filter::new(machines(), text).expect(text).narrowing();
    let some = |patterns: &[&str]| Some(patterns.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
    assert_eq!(narrowing("web cores>=3"), Narrowing::default());
    let all = narrowing("name:WEB,(db name:x zone=row-1 pool:!(a) label-row:a_b%,!c");
    assert_eq!(all.names, some(&["%web%", "%(db%"]));
    assert_eq!((all.zones, all.pools), (some(&["row-1"]), None));
    assert_eq!(all.label, Some(("row".to_owned(), vec!["%a\\_b\\%%".to_owned()])));
    assert_eq!(narrowing("label-row:É").label, None, "databases write small letters by their own rules");
}

#[test]
fn states_of_many_words_are_spaced() {
    let object = |reason: &str| serde_json::json!({"status": {"conditions": [{"type": "Stalled", "status": "true", "reason": reason}]}});
    for (reason, wanted) in
        [("CannotBeRead", "Cannot be read"), ("BadBmcs", "Bad BMCs"), ("NoDnsServer", "No DNS server")]
    {
        assert_eq!(state::of(&object(reason)).words(), [wanted, "failed"]);
    }
}
